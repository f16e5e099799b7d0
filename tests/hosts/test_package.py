"""The Debian package's life on a machine: installed, looked at, upgraded, removed, purged; and in a chroot."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hosts.harness import Host, base_tree
from tests.hosts.package import ROOT, built_package, install, installed_host, wait_active

UNITS = sorted(path.name for path in (ROOT / "packaging/systemd").iterdir())
ALWAYS_ACTIVE = ("llmgw.target", "llmgw-daemon.service", "llmgw-gateway.socket", "llmgw-gateway.service")
SCORES = ROOT / "tests/data/security-scores.json"

_ENGINE = """[Unit]
Description=stands for an engine
PartOf=llmgw.target
[Service]
Slice=llmgw-engines.slice
ExecStart=/bin/sleep infinity
"""

_MODES = {
    "/etc/llmgw": "750 root llmgw-admin",
    "/etc/llmgw/config.yaml": "640 root llmgw-admin",
    "/var/lib/llmgw": "755 root root",
    "/opt/llmgw": "755 root root",
    "/opt/llmgw/engines": "755 root root",
    "/var/lib/llmgw/homes": "711 root root",
    "/var/lib/llmgw/gateway": "700 llmgw llmgw",
    "/run/llmgw": "755 root root",
    "/run/llmgw/keys": "750 root llmgw",
}


def start_engine(host: Host, name: str = "llmgw-engine-test.service") -> str:
    """Run something under a generated engine's name; returns its pid."""
    host.path(f"/run/systemd/system/{name}").write_text(_ENGINE)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", name)
    return main_pid(host, name)


def main_pid(host: Host, unit: str) -> str:
    return host.run("systemctl", "show", "--value", "--property=MainPID", unit).stdout.strip()


def state_of(host: Host, unit: str) -> str:
    return host.run("systemctl", "is-active", unit, check=False).stdout.strip()


def leftovers(host: Host) -> list[str]:
    """Everything on the disk that carries our name, but for what dpkg and the journal remember."""
    find = "find / -xdev -name '*llmgw*' -not -path '/proc/*' -not -path '/root/*' -not -path '/var/log/journal/*'"
    return sorted(host.run("sh", "-c", f"{find}; find /run -name '*llmgw*'").stdout.split())


def test_lintian_has_nothing_to_say() -> None:
    done = subprocess.run(
        ["lintian", "--fail-on", "error,warning", "--allow-root", str(built_package())],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_installing_brings_up_a_node_that_answers_on_loopback_alone() -> None:
    with Host("a") as host:
        install(host)
        wait_active(host, *ALWAYS_ACTIVE)
        answer = host.run("curl", "-sS", "--fail", "--max-time", "10", "http://127.0.0.1:8100/health")
        assert json.loads(answer.stdout)["ok"] is True
        listening = host.run("ss", "--listening", "--tcp", "--udp", "--numeric", "--no-header").stdout
        addresses = [line.split()[4] for line in listening.splitlines()]
        assert addresses
        assert all(address.startswith(("127.0.0.1:", "[::1]:")) for address in addresses), listening
        assert host.run("systemctl", "--failed", "--no-legend", "--plain").stdout == ""
        assert host.run("cat", "/proc/sys/net/ipv4/ip_local_reserved_ports").stdout == "8201-8299\n"


def test_after_a_reboot_everything_is_up_again_with_the_right_owners() -> None:
    with installed_host("a") as host:
        wait_active(host, *ALWAYS_ACTIVE)
        found = {path: host.run("stat", "--format=%a %U %G", path).stdout.strip() for path in _MODES}
        assert found == _MODES
        groups = host.run("id", "--name", "--groups", "llmgw-engine").stdout.split()
        assert {"llmgw-engine", "video", "render"} <= set(groups)
        owners = host.run("ps", "-o", "user:20=", "-C", "llmgw-gateway").stdout.split()
        assert owners and set(owners) == {"llmgw"}


def test_the_smoke_test_that_debian_runs_passes() -> None:
    with installed_host("a", binds=[(ROOT / "debian/tests", "/srv/tests")]) as host:
        wait_active(host, *ALWAYS_ACTIVE)
        done = host.run("/srv/tests/smoke", check=False)
        assert done.code == 0, done.stdout + done.stderr


def test_needrestart_is_told_to_leave_engines_alone() -> None:
    with installed_host("a") as host:
        told = "package main; our %nrconf; do '/etc/needrestart/conf.d/llmgw.conf'; die $@ if $@; "
        asks = "for my $u (@ARGV) { print grep { $u =~ $_ } keys %{$nrconf{override_rc}}; print qq(;) }"
        units = ("llmgw-engine-qwen.service", "llmgw-gate-x.service", "llmgw-daemon.service")
        answers = host.run("perl", "-e", told + asks, *units).stdout.split(";")
        assert [bool(answer) for answer in answers[:3]] == [True, True, False]


def test_the_manual_and_the_completion_are_there() -> None:
    with installed_host("a") as host:
        pages = host.run("sh", "-c", "ls /usr/share/man/man*/llmgw*").stdout.split()
        assert {Path(page).name for page in pages} == {
            f"{path.name.removesuffix('.md')}.gz" for path in (ROOT / "docs/man").glob("*.md")
        }
        completes = ". /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/llmgw"
        asked = f"{completes}; COMP_WORDS=(llmgw runtime-s); COMP_CWORD=1; complete -p llmgw; _llmgw_completion llmgw"
        done = host.run("bash", "-c", f'{asked}; echo "${{COMPREPLY[*]}}"')
        assert "runtime-start" in done.stdout, done.stdout + done.stderr


def test_the_programs_can_be_told_apart_in_a_process_list() -> None:
    with installed_host("a") as host:
        wait_active(host, *ALWAYS_ACTIVE)
        for unit, program in (("llmgw-daemon", "llmgw-daemon"), ("llmgw-gateway", "llmgw-gateway")):
            pid = main_pid(host, f"{unit}.service")
            assert program in host.run("ps", "-o", "comm=", "-p", pid).stdout
            assert program in host.run("ps", "-o", "args=", "-p", pid).stdout


def test_systemd_has_nothing_to_say_against_the_static_units() -> None:
    with installed_host("a") as host:
        done = host.run("systemd-analyze", "verify", "--man=no", *UNITS, check=False)
        assert (done.code, done.stdout, done.stderr) == (0, "", "")


def test_no_unit_is_more_exposed_than_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    allowed: dict[str, float] = json.loads(SCORES.read_text())
    with installed_host("a") as host:
        services = [unit for unit in UNITS if unit.endswith(".service")]
        assert sorted(allowed) == services
        scores = {}
        for unit in services:
            report = host.run("systemd-analyze", "security", "--no-pager", unit, check=False).stdout
            match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
            assert match, report
            scores[unit] = float(match[1])
        with capsys.disabled():
            print("\n" + "\n".join(f"  {unit} exposure {score}" for unit, score in scores.items()))
        risen = {unit: (score, allowed[unit]) for unit, score in scores.items() if score > allowed[unit]}
        assert not risen, f"exposure rose above {SCORES.name}: {risen}"


def test_an_upgrade_restarts_our_programs_and_leaves_engines_and_the_port_alone() -> None:
    with installed_host("a") as host:
        wait_active(host, *ALWAYS_ACTIVE)
        engine = start_engine(host)
        host.path("/etc/llmgw/config.yaml").write_text("# the operator's own\n")
        programs = {unit: main_pid(host, unit) for unit in ("llmgw-daemon.service", "llmgw-gateway.service")}
        entered = host.run("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "llmgw-gateway.socket")
        shutil.copy(built_package(), host.path("/root/llmgw.deb"))
        host.run("apt-get", "install", "--yes", "--reinstall", "/root/llmgw.deb", timeout_s=120)
        assert main_pid(host, "llmgw-engine-test.service") == engine
        again = host.run("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "llmgw-gateway.socket")
        assert again.stdout == entered.stdout, "the port was let go"
        wait_active(host, *ALWAYS_ACTIVE)
        for unit, pid in programs.items():
            assert main_pid(host, unit) != pid
        assert host.path("/etc/llmgw/config.yaml").read_text() == "# the operator's own\n"


def test_removing_stops_everything_and_purging_leaves_nothing_but_the_users() -> None:
    with installed_host("a") as host:
        wait_active(host, *ALWAYS_ACTIVE)
        start_engine(host)
        host.path("/var/lib/llmgw/weights/kept").write_text("large")
        host.path("/opt/llmgw/engines/kept").write_text("a build")
        host.run("apt-get", "remove", "--yes", "llmgw", timeout_s=120)
        for unit in (*ALWAYS_ACTIVE, "llmgw-engine-test.service"):
            assert state_of(host, unit) in ("inactive", "failed"), unit
        assert host.run("pgrep", "--uid", "llmgw,llmgw-engine", check=False).stdout == ""
        assert host.path("/etc/llmgw/config.yaml").is_file()
        assert host.path("/var/lib/llmgw/weights/kept").is_file()
        assert host.path("/opt/llmgw/engines/kept").is_file()
        assert not host.path("/run/systemd/system/llmgw-engine-test.service").exists()
        assert not host.path("/usr/lib/llmgw").exists(), host.run("find", "/usr/lib/llmgw").stdout

        install(host)
        wait_active(host, *ALWAYS_ACTIVE)
        assert host.path("/var/lib/llmgw/weights/kept").read_text() == "large"

        host.run("apt-get", "purge", "--yes", "llmgw", timeout_s=120)
        host.run("systemctl", "daemon-reload")
        assert leftovers(host) == []
        assert host.run("systemctl", "list-unit-files", "--no-legend", "llmgw*", check=False).stdout == ""


def test_it_installs_into_a_tree_where_nothing_runs(tmp_path: Path) -> None:
    for part in ("upper", "work", "root"):
        (tmp_path / part).mkdir()
    script = f"""
        cd {tmp_path}
        mount -t overlay overlay -o lowerdir={base_tree()},upperdir=upper,workdir=work root
        cp {built_package()} root/root/llmgw.deb
        mount -t tmpfs tmpfs root/dev
        mknod -m 666 root/dev/null c 1 3
        exec chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \\
            sh -ec 'apt-get install --yes /root/llmgw.deb; llmgw --version; id llmgw; stat -c "%a %U %G" /etc/llmgw'
    """
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "llmgw 0.1.0" in done.stdout
    assert "750 root llmgw-admin" in done.stdout
    enabled = tmp_path / "upper/etc/systemd/system"
    assert (enabled / "multi-user.target.wants/llmgw.target").is_symlink()
    assert (enabled / "llmgw.target.wants/llmgw-gateway.socket").is_symlink()
