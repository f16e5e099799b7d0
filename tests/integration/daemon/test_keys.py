"""Clients' keys in a real daemon: made, told to the gateway, kept over a restart, revoked; and who may do that."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path

import pytest

from core.api import RouteTable
from core.client import DaemonClient
from core.errors import LlmgwError
from core.keys import CreateKeyRequest
from core.wipe import WipeRequest
from tests.integration.daemon.stack import ROOT, Stack, running
from tests.rewriting import rewrite

CONFIG = "security: {apiKeys: [sk-in-the-config]}\nruntimes: {}\n"


async def first_table(client: DaemonClient) -> RouteTable:
    async with aclosing(client.routes()) as tables:
        return await anext(tables)


async def names(stack: Stack) -> list[str]:
    return [key.name for key in (await first_table(stack.client)).keys]


async def test_a_key_is_told_to_the_gateway_before_its_maker_reads_it(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack, aclosing(stack.client.routes()) as tables:
        assert [key.name for key in (await anext(tables)).keys] == ["apiKeys[0]"]
        asked = CreateKeyRequest(
            name="team-a", models=["qwen-*"], requests_per_minute=7, expires_at="2099-01-01T00:00:00Z"
        )
        made = await stack.client.create_key(asked)
        _, key = (await anext(tables)).keys
        assert (key.sha256, key.models, key.requests_per_minute, key.made) == (
            sha256(made.secret.encode()).hexdigest(), ["qwen-*"], 7, True,
        )  # fmt: skip
        assert (await stack.client.revoke_key("team-a", apply=False)).key == made.key
        assert (await stack.client.revoke_key(made.key.id, apply=True)).key == made.key
        assert [key.name for key in (await anext(tables)).keys] == ["apiKeys[0]"]


async def test_keys_outlive_a_daemon_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack:
        answered = []
        for number in range(6):
            making = [
                asyncio.create_task(stack.client.create_key(CreateKeyRequest(name=f"k{number}-{each}")))
                for each in range(8)
            ]
            await asyncio.wait(making, return_when=asyncio.FIRST_COMPLETED)
            stack.kill(stack.daemon)
            answered += [
                one.key.name
                for one in await asyncio.gather(*making, return_exceptions=True)
                if not isinstance(one, BaseException)
            ]
            stack.start_daemon()
            await stack.until(lambda state: True)
            assert set(answered) <= set(await names(stack))
        assert len(answered) >= 6
        listed = (await stack.client.keys()).keys
        assert [key.name for key in listed][0] == "apiKeys[0]"
        assert not list(stack.layout.client_keys.parent.glob("*.json.new")) and len({key.id for key in listed}) == len(
            listed
        )


async def test_a_file_that_breaks_opens_nothing_and_is_told_once_until_it_is_mended(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack:
        await stack.client.create_key(CreateKeyRequest(name="team-a", scope="admin"))
        good = stack.layout.client_keys.read_bytes()
        stack.layout.client_keys.write_bytes(good[:-40])
        await stack.client.reload()
        await stack.client.reload()
        table = await first_table(stack.client)
        while table.security.only_admin_keys is False:
            table = await first_table(stack.client)
        assert [key.name for key in table.keys] == ["apiKeys[0]"]
        with pytest.raises(LlmgwError) as caught:
            await stack.client.create_key(CreateKeyRequest(name="new"))
        assert caught.value.code == "keys_unreadable" and "llmgw reload" in caught.value.hint
        assert stack.log_text().count("keys_unreadable") == 1
        found = [(each.check, each.status) for each in (await stack.client.doctor()).findings]
        assert ("keys", "blocks") in found
        assert stack.layout.client_keys.read_bytes() == good[:-40]
        stack.layout.client_keys.write_bytes(good)
        await stack.client.reload()
        assert [key.name for key in (await stack.client.keys()).keys] == ["apiKeys[0]", "team-a"]


async def test_a_node_with_made_keys_only_may_listen_for_others_and_may_go_on_when_the_last_is_revoked(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, "runtimes: {}\n") as stack:
        await stack.client.create_key(CreateKeyRequest(name="only"))
        wide = stack.layout.config.read_text().replace("server: {", "server: {host: 0.0.0.0, ")
        rewrite(stack.layout.config, wide + "security: {allowNonLoopbackBind: true}\n")
        await stack.client.reload()
        await stack.client.revoke_key("only", apply=True)
        stack.kill(stack.daemon)
        stack.start_daemon()
        state = await stack.until(lambda state: True)
        assert (state.server_host, state.config.error) == ("0.0.0.0", "")


async def test_no_key_stands_in_the_log_or_in_any_file(tmp_path: Path) -> None:
    async with running(tmp_path, "runtimes: {}\n") as stack:
        made = await stack.client.create_key(CreateKeyRequest(name="team-a"))
        for named in (made.secret, "x", "team-a"):
            for apply in (False, True):
                try:
                    await stack.client.revoke_key(named, apply=apply)
                except LlmgwError as error:
                    assert made.secret not in error.render()
        assert "key_made key=team-a" in stack.log_text() and "key_revoked key=team-a" in stack.log_text()
        digest = sha256(made.secret.encode()).hexdigest()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                assert made.secret.encode() not in path.read_bytes() and digest.encode() not in path.read_bytes(), path


async def test_a_wipe_of_everything_takes_the_keys_and_they_hold_no_longer(tmp_path: Path) -> None:
    async with running(tmp_path, "runtimes: {}\n") as stack:
        await stack.client.create_key(CreateKeyRequest(name="team-a"))
        little = await stack.client.plan_wipe(models=True, everything=False)
        assert str(stack.layout.client_keys) not in {item.path for item in little.items}
        await stack.client.wipe(WipeRequest(confirm=little.node, all=True))
        assert not stack.layout.client_keys.exists()
        assert await names(stack) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else: run the tests as root")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/v1/keys", ""), ("POST", "/v1/keys", '{"name": "mine", "scope": "admin"}'),
     ("POST", "/v1/keys/revoke", '{"key": "team-a", "apply": true}')],
)  # fmt: skip
async def test_others_on_the_machine_may_neither_see_nor_make_nor_revoke_keys(
    method: str, path: str, body: str
) -> None:
    # pytest's own folders are closed to others, and then nobody could even ask.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        await refuse_others(Path(folder), method, path, body)


async def refuse_others(state: Path, method: str, path: str, body: str) -> None:
    async with running(state, "runtimes: {}\n") as stack:
        await stack.client.create_key(CreateKeyRequest(name="team-a"))
        line = [
            "curl", "-sS", "-X", method, "--data", body, "--unix-socket", str(stack.layout.daemon_socket), f"http://d{path}",
        ]  # fmt: skip
        done = await asyncio.to_thread(
            subprocess.run, line, user=65534, group=65534, extra_groups=[], capture_output=True, cwd="/", check=True
        )
        assert json.loads(done.stdout)["error"]["code"] == "caller_refused"
        assert [key.name for key in (await stack.client.keys()).keys] == ["team-a"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"name": 1}',
        b'{"name": "a", "models": "m"}',
        b'{"name": "a", "requestsPerMinute": 1.5}',
        b'{"name": "a", "concurrency": 99999999999999999999}',
        b'{"name": "\\ud800"}',
        b'{"name": "a\\nb"}',
        b"[" * 100_000,
    ],
)
async def test_a_request_that_makes_no_sense_is_a_usage_error(tmp_path: Path, body: bytes) -> None:
    async with running(tmp_path, "runtimes: {}\n") as stack:
        for path in ("/v1/keys", "/v1/keys/revoke"):
            reply = await stack.client._http.fetch("POST", path, body=body, timeout_s=10)
            assert reply.status in (400, 404), reply.body
        assert (await stack.client.keys()).keys == []


def llmgw(stack: Stack, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli", *words, "--state", str(stack.layout.config.parent)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


async def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as stack:

        async def run(*words: str) -> tuple[int, str, str]:
            return await asyncio.to_thread(llmgw, stack, *words)

        rules = [
            "--model",
            "qwen-*",
            "--model",
            "m",
            "--expires",
            "30d",
            "--concurrency",
            "3",
            "--tokens-per-minute",
            "9",
        ]
        code, out, err = await run("key", "create", "team-a", *rules, "--dry-run")
        assert (code, err) == (0, "") and out.startswith("would make team-a: for inference, models qwen-*, m, until 20")
        assert await names(stack) == ["apiKeys[0]"]

        code, out, err = await run("key", "create", "team-a", *rules)
        secret = out.strip()
        assert code == 0 and out == f"{secret}\n" and secret.startswith("sk-llmgw-") and secret not in err
        (_, key) = (await first_table(stack.client)).keys
        assert (key.sha256, key.concurrency, key.tokens_per_minute) == (sha256(secret.encode()).hexdigest(), 3, 9)

        code, out, _ = await run("key", "create", "root", "--scope", "admin", "--json")
        made = json.loads(out)
        assert set(made) == {"key", "secret"} and made["key"]["scope"] == "admin"

        code, out, _ = await run("key", "list", "--json")
        listed = json.loads(out)["keys"]
        assert [(each["name"], each["source"]) for each in listed] == [
            ("apiKeys[0]", "config"), ("team-a", "made"), ("root", "made"),
        ]  # fmt: skip
        assert secret not in out and key.sha256[:8] not in out and "sha256" not in out
        code, out, _ = await run("key", "list")
        assert "qwen-*, m" in out and "never" in out and key.sha256[:8] not in out

        code, out, _ = await run("key", "revoke", "team-a")
        assert (code, out.splitlines()[-1]) == (0, "--apply does it")
        assert "team-a" in await names(stack)
        code, out, _ = await run("key", "revoke", "team-a", "--apply", "--json")
        assert (code, json.loads(out)["applied"], json.loads(out)["key"]["name"]) == (0, True, "team-a")
        assert await names(stack) == ["apiKeys[0]", "root"]

        for words, want in (
            (("revoke", "team-a", "--apply"), (4, "key_unknown")),
            (("revoke", "apiKeys[0]", "--apply"), (5, "key_in_config")),
            (("create", "root"), (5, "key_exists")),
            (("create", "a b"), (2, "key_invalid")),
            (("create", "a", "--expires", "yesterday"), (2, "key_invalid")),
            (("create", "a", "--concurrency", "0"), (2, "usage")),
            (("create", "a", "--scope", "god"), (2, "usage")),
        ):
            code, out, _ = await run("key", *words, "--json")
            assert (code, json.loads(out)["error"]["code"]) == want, words
