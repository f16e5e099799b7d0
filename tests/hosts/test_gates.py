"""A gated runtime under real systemd, from the installed package: a client's workflow through gateway, gate and engine.

The engine is the fake ComfyUI, run by the host's own python with the libraries that the package brings.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hosts.harness import Host
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

FAKE = Path(__file__).resolve().parents[1] / "fakes" / "comfyui.py"
ENGINE, GATE = "llmgw-engine-art.service", "llmgw-gate-art.service"
_PATIENCE_S = 60.0
_SCORE_LIMIT = 1.4

CONFIG = """security: {apiKeys: [sk-ada-0123456789, sk-bob-0123456789], allowMissingAuth: false}
engines: {comfyui: {dir: /opt/comfyui, python: /opt/comfyui/venv/bin/python}}
models: [{id: art, kind: image, runtime: art}]
runtimes: {art: {engine: comfyui, memoryGb: 0.4, keepWarm: true, requestStartupWaitMs: 60000}}
"""
PYTHON = '#!/bin/sh\nPYTHONPATH=/usr/lib/llmgw/vendor exec /usr/bin/python3 "$@"\n'
GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 8}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "cat"}},
}


@contextmanager
def painting() -> Iterator[Host]:
    """A host that serves the model `art`."""
    with installed_host("gates") as host:
        tree = host.path("/opt/comfyui")
        (tree / "venv/bin").mkdir(parents=True)
        shutil.copy(FAKE, tree / "main.py")
        python = tree / "venv/bin/python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        rewrite(host.path("/etc/llmgw/config.yaml"), CONFIG)
        wait_active(host, "llmgw-daemon.service", "llmgw-gateway.service")
        host.run("llmgw", "reload")
        host.run("llmgw", "runtime-start", "art", timeout_s=_PATIENCE_S)
        yield host


def ask(host: Host, key: str, path: str, body: object = None, *more: str) -> tuple[int, Any]:
    """Status and answer of one request to the gateway."""
    words = ["--data", json.dumps(body), "--header", "content-type: application/json"] if body is not None else []
    done = host.run(
        *("curl", "--silent", "--max-time", "60", "--header", f"authorization: Bearer sk-{key}-0123456789"),
        *("--write-out", "\n%{http_code}", *words, *more, f"http://127.0.0.1:8100{path}"),
        timeout_s=70.0,
    )
    answer, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(answer) if answer.startswith("{") else answer


def pid(host: Host, unit: str) -> int:
    return int(host.run("systemctl", "show", "--value", "--property=MainPID", unit).stdout)


def until(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < _PATIENCE_S
        time.sleep(0.2)  # systemd and the daemon act by themselves; there is no event that reaches us here


def test_a_gated_engine_is_reached_through_its_gate_alone_and_they_live_and_end_together() -> None:
    with painting() as host:
        status, told = ask(host, "ada", "/v1/workflows", {"model": "art", "prompt": GRAPH})
        assert (status, told["status"]) == (200, "done"), (told, host.journal("-u", "llmgw-*")[-4000:])
        assert list(ask(host, "ada", "/v1/comfyui/art/history")[1]) == [told["id"]]
        assert ask(host, "bob", "/v1/comfyui/art/history") == (200, {})
        file = told["files"][0]
        assert host.path(f"/var/lib/llmgw/homes/art/base/output/{file['subfolder']}/{file['filename']}").is_file()

        _check_units(host)
        gate, engine = pid(host, GATE), pid(host, ENGINE)
        host.run("systemctl", "restart", "llmgw-daemon.service")
        assert (pid(host, GATE), pid(host, ENGINE)) == (gate, engine)

        host.run("systemctl", "kill", "--signal=KILL", GATE)
        until(lambda: pid(host, GATE) not in (0, gate))
        assert pid(host, ENGINE) == engine
        until(lambda: ask(host, "ada", f"/v1/comfyui/art/progress/{told['id']}")[0] == 200)

        gate = pid(host, GATE)
        host.run("systemctl", "kill", "--signal=KILL", ENGINE)
        until(lambda: 0 not in (pid(host, GATE), pid(host, ENGINE)) and pid(host, GATE) != gate)
        until(lambda: ask(host, "ada", "/v1/workflows", {"model": "art", "prompt": GRAPH})[0] == 200)
        assert told["id"] in ask(host, "ada", "/v1/comfyui/art/history")[1]

        host.run("llmgw", "runtime-stop", "art")
        assert (pid(host, GATE), pid(host, ENGINE)) == (0, 0)
        states = host.run("systemctl", "is-active", GATE, ENGINE, check=False).stdout.split()
        assert states == ["inactive", "inactive"]


def _check_units(host: Host) -> None:
    done = host.run("systemd-analyze", "verify", "--man=no", GATE, ENGINE, check=False)
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    report = host.run("systemd-analyze", "security", "--no-pager", GATE, check=False).stdout
    match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
    assert match is not None and float(match[1]) <= _SCORE_LIMIT, report
    for unit in (GATE, ENGINE):
        shown = host.run("systemctl", "show", "--property=User,Slice", unit).stdout
        assert "User=llmgw-engine\n" in shown and "Slice=llmgw-engines.slice\n" in shown
    (runtime,) = json.loads(host.run("llmgw", "runtimes", "--json").stdout)["runtimes"]
    gate = f"http://127.0.0.1:{runtime['port']}"
    code = ("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
    assert host.run(*code, f"{gate}/queue").stdout == "401"
    assert host.run(*code, f"{gate}/health").stdout == "200"
    key = host.path("/run/llmgw/keys/art.key").read_text().strip()
    everything = host.run("sh", "-c", "cat /proc/[0-9]*/cmdline /run/systemd/system/llmgw-* | tr '\\0' ' '").stdout
    assert key not in everything and "engines.gates comfyui" in everything
    # The engine's process has no way to the gate's book of owners but its user, and that way is shut by its sandbox.
    assert "ReadWritePaths=-/var/lib/llmgw/gates/art" in host.path(f"/run/systemd/system/{GATE}").read_text()
    assert "/gates/" not in host.path(f"/run/systemd/system/{ENGINE}").read_text()
