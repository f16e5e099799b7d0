"""What every other test here takes for granted about a test host."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.hosts.harness import Host, Network, base_tree
from tests.hosts.harness.cgroups import unified_root

_LEAVES_EVERYTHING = """
import os, sys
from tests.hosts.harness import Host, Network
with Network(("left",)) as net, Host("left", net=net):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_a_host_boots_with_nothing_failed_and_without_a_way_out() -> None:
    with Host("a") as host:
        assert host.run("systemctl", "is-system-running").stdout == "running\n"
        assert host.run("ip", "route").stdout == ""
        assert host.path("/etc/hostname").read_text() == "a\n"


def test_a_unit_of_the_host_has_a_cgroup_and_a_journal_and_an_exit_code() -> None:
    with Host("a") as host:
        done = host.unit("sh", "-c", "cat /proc/self/cgroup; logger said-so; exit 3", check=False)
        assert done.code == 3
        assert "0::/system.slice/run-" in done.stdout
        host.run("journalctl", "--sync")
        assert "said-so" in host.journal("--output=cat")


def test_power_loss_keeps_the_disk_and_the_journal_and_gives_a_new_boot_id() -> None:
    with Host("a") as host:
        host.run("sh", "-c", "echo kept >/var/lib/kept; journalctl --sync")
        before = host.run("cat", "/proc/sys/kernel/random/boot_id").stdout
        host.kill()
        host.boot()
        assert host.run("cat", "/var/lib/kept").stdout == "kept\n"
        assert host.run("cat", "/proc/sys/kernel/random/boot_id").stdout != before
        assert len(host.journal("--list-boots", "--quiet").strip().splitlines()) >= 2


def test_the_base_tree_is_never_written_to() -> None:
    with Host("a") as host:
        host.run("sh", "-c", "echo changed >/etc/issue; rm /etc/debian_version")
    assert "changed" not in (base_tree() / "etc/issue").read_text()
    assert (base_tree() / "etc/debian_version").is_file()


def test_a_layer_carries_what_one_host_changed_to_another(tmp_path: Path) -> None:
    with Host("a") as host:
        host.run("sh", "-c", "echo new >/opt/new; rm /etc/debian_version")
        host.shutdown()
        layer = host.keep_as_layer(tmp_path / "layer")
    with Host("b", layers=[layer]) as host:
        assert host.run("cat", "/opt/new", "/etc/hostname").stdout == "new\nb\n"
        assert host.run("test", "-e", "/etc/debian_version", check=False).code == 1


def test_a_hybrid_host_enforces_a_memory_limit() -> None:
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return  # controllers on version 2: every host enforces it, and hybrid mode has nothing to offer
    with Host("a", cgroup="hybrid") as host:
        done = host.unit(
            "sh", "-c", "head -c 200m /dev/zero | tail >/dev/null", properties={"MemoryMax": "50M"}, check=False
        )
        assert "Killed" in done.stderr


def test_a_cut_host_is_silent_and_a_frozen_host_accepts_and_says_nothing() -> None:
    with Network(("a", "b")) as net, Host("a", net=net) as a, Host("b", net=net) as b:
        serve = ("systemd-run", "--quiet", "--unit=web", "python3", "-m", "http.server", "80")
        b.run(*serve)
        ask = ("curl", "-sS", "--max-time", "1", "--retry", "20", "--retry-connrefused", "http://b/")
        assert a.run(*ask).stdout
        once = ("curl", "-sS", "--max-time", "1", "http://b/")
        net.cut("b")
        assert "onnection timed out" in a.run(*once, check=False).stderr
        net.heal("b")
        assert a.run(*ask).stdout
        b.freeze()
        assert "with 0 bytes received" in a.run(*once, check=False).stderr
        b.thaw()
        assert a.run(*ask).stdout


def test_what_a_killed_test_process_left_is_collected_by_the_next() -> None:
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", _LEAVES_EVERYTHING]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        prefix = f"lth{int(process.stdout.readline())}"
        assert (unified_root() / prefix / "left").is_dir()
        os.kill(process.pid, signal.SIGKILL)
    assert (unified_root() / prefix / "left").is_dir()
    subprocess.run(
        [sys.executable, "-c", "from tests.hosts.harness.estate import estate; estate()"],
        cwd=root,
        check=True,
        timeout=60,
    )
    assert not (unified_root() / prefix).exists()
    assert not list(Path("/run/netns").glob(f"{prefix}-*"))
    assert not Path("/dev/shm", prefix).exists()
