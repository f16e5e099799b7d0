"""A node without systemd whose only keys are made ones: it comes up, its keys open it, and their limits hold."""

import json
import urllib.error
import urllib.request
from pathlib import Path

from tests.integration.cli.test_up import SIM, write_config
from tests.integration.cli.upped import Up, run_cli, wait_until


def status(up: Up, key: str, max_tokens: int = 4) -> tuple[int, str]:
    """Of one chat with this key, and the code of the error if it is one."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": max_tokens}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{up.serving['url']}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, str(json.loads(error.read())["error"]["code"])


def made(up: Up, *words: str) -> str:
    """The key that the command prints, once the gateway knows it."""
    key = run_cli("key", "create", *words, state=up.state).out.strip()
    wait_until("the key opens", lambda: status(up, key)[0] == 200)
    return key


def test_a_node_of_made_keys_serves_who_has_one_and_nobody_else(tmp_path: Path) -> None:
    write_config(tmp_path, f"security: {{allowMissingAuth: false}}\n{SIM}")
    with Up(tmp_path, LLMGW_WORKERS="2") as up:
        assert up.serving["answer"] == ""
        wait_until("it says why", lambda: "no first question was asked" in up.err)
        key = made(up, "team-a", "--concurrency", "2")
        frugal = made(up, "frugal", "--tokens-per-minute", "100")
        assert status(up, "")[1] == status(up, key + "x")[1] == "unauthorized"

        # What the engine says that it read and wrote is what is charged.
        codes = [status(up, frugal, max_tokens=40) for _ in range(8)]
        assert codes[0] == (200, "") and codes[-1] == (429, "key_tokens_exceeded")
        assert {status(up, key)[0] for _ in range(8)} == {200}

        assert run_cli("key", "revoke", "team-a", "--apply", state=up.state).code == 0
        wait_until("the key is refused", lambda: status(up, key) == (401, "unauthorized"))
        assert [each["name"] for each in run_cli("key", "list", "--json", state=up.state).json["keys"]] == ["frugal"]
        assert up.stop() == 0
        for path in tmp_path.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert key.encode() not in data and frugal.encode() not in data, path
