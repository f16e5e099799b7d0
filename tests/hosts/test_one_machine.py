"""One machine that serves, from the installed package to a real answer, and what no restart may break.

The engine is the genuine llama-server and the model a real one; each test goes on where `served` left off, on a host
of its own that boots from what was installed there.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.hosts.harness import Host, cached_layer
from tests.hosts.node import PROGRAMS, WHEELS, Node
from tests.hosts.package import install, installed_host, installed_layer, wait_active
from tests.hosts.wheels import starter_wheels

pytestmark = pytest.mark.engine

_SCORE_LIMIT = 2.0
_INSTALL_S = 240.0
_GATEWAY = "llmgw-gateway.service"


@cache
def served_layer() -> Path:
    """The installed package, with the starter model added by its commands: what the first test below proves."""
    return cached_layer("served", installed_layer().name.removeprefix("installed-"), _make_served_layer)


def _make_served_layer(layer: Path) -> None:
    with installed_host("node", binds=[(starter_wheels(), WHEELS)]) as host:
        node = Node(host)
        node.prepare()
        node.add_starter()
        host.shutdown()
        host.keep_as_layer(layer)


@contextmanager
def served() -> Iterator[Node]:
    """A host that has just booted and serves: keep-warm starts the engine again."""
    with Host("node", layers=[served_layer(), installed_layer()], binds=[(starter_wheels(), WHEELS)]) as host:
        node = Node(host)
        wait_active(host, "llmgw.target", *PROGRAMS)
        assert "Paris" in node.chat()
        yield node


def test_two_commands_after_the_installation_a_real_answer_comes() -> None:
    with installed_host("node", binds=[(starter_wheels(), WHEELS)]) as host:
        node = Node(host)
        node.prepare()
        node.add_starter()
        assert "Paris" in node.chat()
        words, events = node.stream()
        assert "Paris" in words
        assert events > 5
        engine = node.engine()
        shown = host.run("systemctl", "show", "--property=User,Slice,ActiveState,ControlGroup", engine.unit).stdout
        assert "User=llmgw-engine\n" in shown
        assert "Slice=llmgw-engines.slice\n" in shown
        assert "ActiveState=active\n" in shown
        assert host.run("ps", "-o", "user:20=", "-p", str(engine.pid)).stdout.strip() == "llmgw-engine"
        program = host.run("readlink", f"/proc/{engine.pid}/exe").stdout
        assert re.match(r"/opt/llmgw/engines/llamacpp/b\d+-[a-z0-9.-]+/bin/llama-server\n", program)
        assert "active (running)" in host.run("systemctl", "status", "--no-pager", engine.unit).stdout
        assert "llama" in host.run("journalctl", "--no-pager", "--output=cat", "--unit", engine.unit).stdout
        assert host.run("llmgw", "logs", engine.runtime).stdout


def test_a_place_from_which_nothing_can_be_run_is_an_error_that_names_the_setting() -> None:
    with installed_host("node", binds=[(starter_wheels(), WHEELS)]) as host:
        node = Node(host)
        node.prepare()
        host.run("mount", "-t", "tmpfs", "-o", "mode=0755,noexec", "tmpfs", "/opt/llmgw/engines")
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, *PROGRAMS)
        refused = node.llmgw("engine", "install", "llamacpp", check=False, timeout_s=_INSTALL_S)
        assert refused.code == 10 and "paths.engines mounted with noexec?" in refused.stderr, refused.stderr
        host.run("mount", "-o", "remount,ro,noexec", "/opt/llmgw/engines")
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, *PROGRAMS)
        refused = node.llmgw("engine", "install", "llamacpp", check=False, timeout_s=_INSTALL_S)
        assert refused.code != 0 and "read-only; paths.engines" in refused.stderr, refused.stderr
        # A disk of the operator's there is emptied by a wipe, and does not keep the package from being purged.
        host.run("mount", "-o", "remount,rw", "/opt/llmgw/engines")
        assert host.path("/opt/llmgw/engines/llamacpp").is_dir()
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, *PROGRAMS)
        node.llmgw("wipe", "--confirm", host.run("hostname").stdout.strip())
        assert list(host.path("/opt/llmgw/engines").iterdir()) == []
        host.run("apt-get", "purge", "--yes", "llmgw", timeout_s=120)


def test_a_generated_unit_is_sound_and_closed() -> None:
    with served() as node:
        unit = node.engine().unit
        done = node.host.run("systemd-analyze", "verify", "--man=no", unit, check=False)
        assert (done.code, done.stdout, done.stderr) == (0, "", "")
        report = node.host.run("systemd-analyze", "security", "--no-pager", unit, check=False).stdout
        match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
        assert match, report
        assert float(match[1]) <= _SCORE_LIMIT, report
        listening = node.host.run("ss", "--listening", "--tcp", "--numeric", "--no-header").stdout.splitlines()
        assert all(line.split()[3].startswith("127.0.0.1:") for line in listening), listening


def test_the_engine_key_is_in_no_argument_unit_log_or_answer() -> None:
    with served() as node:
        keys = [path.read_text().strip() for path in node.host.path("/run/llmgw/keys").iterdir()]
        assert keys and all(keys)
        everything = [
            "cat /proc/[0-9]*/cmdline",
            "cat /run/systemd/system/llmgw-*",
            "journalctl --no-pager",
            "llmgw status --json; llmgw runtimes --json; llmgw config show",
            "curl -s http://127.0.0.1:8100/gateway/node http://127.0.0.1:8100/gateway/status",
        ]
        for source in everything:
            text = node.host.run("sh", "-c", f"{{ {source}; }} 2>&1 | tr '\\0' ' '").stdout
            assert not [key for key in keys if key in text], source
        refused = node.host.run(
            *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
            "cat",
            f"/run/llmgw/keys/{next(node.host.path('/run/llmgw/keys').iterdir()).name}",
            check=False,
        )
        assert refused.code != 0


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_the_engine_outlives_a_program_of_ours(program: str, how: str) -> None:
    with served() as node:
        engine, before = node.engine(), node.main_pid(program)
        if how == "kill":
            node.host.run("systemctl", "kill", "--signal=KILL", program)
            node.host.run("systemctl", "reset-failed", program, check=False)
        else:
            node.host.run("systemctl", "restart", program)
        assert "Paris" in node.chat()
        wait_active(node.host, program)
        assert node.main_pid(program) != before
        assert node.main_pid(engine.unit) == engine.pid
        assert node.engine().restarts == engine.restarts


def test_a_killed_engine_comes_back_by_itself() -> None:
    with served() as node:
        engine = node.engine()
        node.host.run("systemctl", "kill", "--signal=KILL", engine.unit)
        assert "Paris" in node.chat(within_s=60)
        again = node.engine()
        assert again.unit == engine.unit
        assert again.pid not in (0, engine.pid)
        servers = node.host.run("pgrep", "--uid", "llmgw-engine").stdout.split()
        assert len(servers) == 1, servers


def test_power_loss_is_followed_by_the_same_service() -> None:
    with served() as node:
        node.host.kill()
        node.host.boot()
        wait_active(node.host, "llmgw.target", *PROGRAMS)
        assert "Paris" in node.chat()


def test_no_connection_is_refused_while_the_gateway_restarts() -> None:
    ask = "curl -s -o /dev/null -w '%{http_code}\\n' --max-time 20 http://127.0.0.1:8100/health"
    with served() as node:
        script = f"for i in $(seq 60); do {ask}; [ $i != 20 ] || systemctl --no-block restart llmgw-gateway; done"
        codes = node.host.run("sh", "-c", script, timeout_s=120).stdout.split()
        assert codes == ["200"] * 60


def test_a_reloaded_gateway_serves_on_at_the_same_socket_and_at_no_other() -> None:
    with served() as node:
        # Two workers, as on a larger machine: there each would have a socket of its own, were it not for systemd's.
        node.host.path("/etc/systemd/system/llmgw-gateway.service.d").mkdir()
        drop_in = node.host.path("/etc/systemd/system/llmgw-gateway.service.d/workers.conf")
        drop_in.write_text("[Service]\nEnvironment=LLMGW_WORKERS=2\n")
        node.host.run("systemctl", "daemon-reload")
        node.host.run("systemctl", "restart", _GATEWAY)
        arbiter, listening = node.main_pid(_GATEWAY), _listening(node)
        before = _workers(node, arbiter)
        ask = {"model": node.model(), "prompt": "Count:", "stream": True, "max_tokens": 400, "ignore_eos": True}
        node.host.path("/root/ask.json").write_text(json.dumps(ask))
        words = "curl -sSN -H content-type:application/json -d @/root/ask.json http://127.0.0.1:8100/v1/completions"
        node.host.run("systemd-run", "--unit=stream", "sh", "-c", f"exec {words} > /root/stream")
        _until(node, "grep -q data: /root/stream")
        node.host.run("systemctl", "reload", _GATEWAY)
        _until(node, f"[ $(pgrep -cP {arbiter}) -ge 3 ]")
        assert "[DONE]" not in node.host.path("/root/stream").read_text(), "too short a stream to prove anything"
        assert "Paris" in node.chat()
        _until(node, "grep -q 'data: .DONE.' /root/stream")
        _until(node, f"[ $(pgrep -cP {arbiter}) = 2 ]")
        assert not _workers(node, arbiter) & before
        assert "Paris" in node.chat()
        assert node.main_pid(_GATEWAY) == arbiter
        assert _listening(node) == listening


def _until(node: Node, condition: str) -> None:
    """Wait until a shell's condition holds in the host."""
    node.host.run("timeout", "60", "sh", "-c", f"until {condition}; do sleep 0.1; done", timeout_s=70)


def _workers(node: Node, arbiter: int) -> set[int]:
    return {int(pid) for pid in node.host.run("pgrep", "--parent", str(arbiter), check=False).stdout.split()}


def _listening(node: Node) -> list[str]:
    lines = node.host.run("ss", "--listening", "--tcp", "--numeric", "--no-header").stdout.splitlines()
    return sorted(line.split()[3] for line in lines)


def test_an_upgrade_leaves_the_engine_serving() -> None:
    with served() as node:
        engine = node.engine()
        node.host.run("apt-get", "install", "--yes", "--reinstall", "/root/llmgw.deb", timeout_s=180)
        wait_active(node.host, "llmgw.target", *PROGRAMS)
        assert "Paris" in node.chat()
        assert node.main_pid(engine.unit) == engine.pid


def test_who_is_not_an_administrator_is_refused_and_a_member_may_act() -> None:
    with served() as node:
        runtime = node.engine().runtime
        as_nobody = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
        refused = node.host.run(*as_nobody, "llmgw", "runtime-restart", runtime, "--json", check=False)
        assert refused.code != 0
        assert json.loads(refused.stdout)["error"]["code"]
        node.host.run("useradd", "--groups", "llmgw-admin", "ada")
        as_member = ("setpriv", "--reuid=ada", "--regid=ada", "--init-groups")
        node.host.run(*as_member, "llmgw", "runtime-restart", runtime, timeout_s=120)
        assert "Paris" in node.chat()


def test_removing_the_package_stops_the_engine_and_reinstalling_serves_again() -> None:
    with served() as node:
        unit = node.engine().unit
        node.host.run("apt-get", "remove", "--yes", "llmgw", timeout_s=120)
        assert node.host.run("systemctl", "is-active", unit, check=False).stdout.strip() != "active"
        assert node.host.run("pgrep", "--uid", "llmgw,llmgw-engine", check=False).stdout == ""
        assert not list(node.host.path("/run/systemd/system").glob("llmgw-*"))
        install(node.host)
        assert "Paris" in node.chat()
