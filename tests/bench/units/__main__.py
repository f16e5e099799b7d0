"""Starts many runtimes under the installed daemon and compares with `systemctl` and the same units.

    time to all active   daemon, from the moment when it has read the changed config; systemctl, from `daemon-reload`,
                         which makes the units known, and one `start` of them all
    noticed              from the change of the file to that moment: editors write more than once, and are waited for
    idle CPU             of the daemon with all of them serving, percent of one core
    memory               resident, of the daemon

Each engine is `sleep`, answering health through the gateway, so that nothing but the service manager and the daemon
is measured. Three rounds, interleaved; medians.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

from tests.hosts.harness import Host
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

_IDLE_S = 15.0
_PATIENCE_S = 120.0
_TICKS_PER_S = 100.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.units", description=__doc__)
    parser.add_argument("--runtimes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args(arguments)
    with installed_host("bench") as host:
        wait_active(host, "llmgw.target", "llmgw-daemon.service", "llmgw-gateway.service")
        result = measure(host, parsed.runtimes, parsed.rounds)
    sys.stdout.write(json.dumps(result, indent=2) + "\n" if parsed.json else render(result))
    return 0


def measure(host: Host, count: int, rounds: int) -> dict[str, float]:
    """Seconds, percent and MiB."""
    by_daemon, noticed, by_systemctl, idle, ports = [], [], [], [], 0
    for _ in range(rounds):
        notice_s, start_s = start_by_daemon(host, count)
        noticed.append(notice_s)
        by_daemon.append(start_s)
        wait_running(host, count)
        ports = len({line for line in ports_of(host) if line})
        idle.append(idle_percent(host))
        memory_mib = resident_mib(host)
        copy_units(host)
        host.run("llmgw", "stop")
        wait_count(host, "llmgw-engine-*", 0)
        by_systemctl.append(start_by_systemctl(host, count))
        host.run("sh", "-c", "systemctl stop 'copy-*' && rm -f /run/systemd/system/copy-* && systemctl daemon-reload")
        # Emptied before it serves again, so that nothing is started but by the next round's change.
        write_config(host, 0)
        host.run("llmgw", "reload")
        host.run("llmgw", "start")
    daemon_s, systemctl_s = statistics.median(by_daemon), statistics.median(by_systemctl)
    return {
        "runtimes": count,
        "distinct_ports": ports,
        "noticed_s": statistics.median(noticed),
        "daemon_s": daemon_s,
        "systemctl_s": systemctl_s,
        "ratio": daemon_s / systemctl_s,
        "daemon_idle_percent": statistics.median(idle),
        "daemon_resident_mib": memory_mib,
    }


def render(result: dict[str, float]) -> str:
    return (
        f"{result['runtimes']:.0f} runtimes, {result['distinct_ports']:.0f} distinct ports\n"
        f"noticed      after {result['noticed_s']:.2f} s\n"
        f"all active   daemon {result['daemon_s']:.2f} s   systemctl {result['systemctl_s']:.2f} s   "
        f"ratio {result['ratio']:.2f} (bar 1.2)\n"
        f"daemon idle  {result['daemon_idle_percent']:.2f} % of a core (bar 1)   "
        f"{result['daemon_resident_mib']:.0f} MiB resident (bar 80)\n"
    )


def write_config(host: Host, count: int) -> None:
    one = "{engine: command, command: [/bin/sleep, infinity], healthUrl: 'http://127.0.0.1:8100/health', memoryGb: 0.01"
    lines = [f"  r{number}: {one}, keepWarm: true}}" for number in range(count)]
    text = "runtimes:\n" + "\n".join(lines) + "\n" if count else "runtimes: {}\n"
    rewrite(host.path("/etc/llmgw/config.yaml"), text)


def start_by_daemon(host: Host, count: int) -> tuple[float, float]:
    """Seconds until the daemon has read the change, and from there until all are active."""
    changed_s = time.time()
    write_config(host, count)
    wait_count(host, "llmgw-engine-*", count)
    ended_s = time.time()
    since = f"--since=@{int(changed_s)}"
    lines = host.run(
        "journalctl", "--unit=llmgw-daemon", "--output=short-unix", "--no-pager", since
    ).stdout.splitlines()
    read_s = next(float(line.split()[0]) for line in lines if "config_loaded" in line and f"started={count}" in line)
    return read_s - changed_s, ended_s - read_s


def wait_running(host: Host, count: int) -> None:
    """Until so many serve, by the daemon's own words."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        listed = json.loads(host.run("llmgw", "runtimes", "--json").stdout)["runtimes"]
        if sum(runtime["state"] == "running" for runtime in listed) == count:
            return
        time.sleep(0.5)
    raise SystemExit(f"never did {count} of them serve")


def start_by_systemctl(host: Host, count: int) -> float:
    names = [f"copy-r{number}.service" for number in range(count)]
    began = time.monotonic()
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", *names)
    wait_count(host, "copy-*", count)
    return time.monotonic() - began


def copy_units(host: Host) -> None:
    """The very same units under names that the daemon does not know."""
    host.run(
        "sh", "-c",
        "cd /run/systemd/system && for f in llmgw-engine-*.service; do cp $f copy-${f#llmgw-engine-}; done",
    )  # fmt: skip


def wait_count(host: Host, pattern: str, count: int) -> None:
    """Until so many units of that pattern are active."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        listed = host.run("systemctl", "list-units", "--state=active", "--no-legend", "--plain", pattern).stdout
        if len(listed.splitlines()) == count:
            return
        time.sleep(0.02)  # the manager is another process: it can only be asked
    raise SystemExit(f"never were {count} of {pattern} active")


def ports_of(host: Host) -> list[str]:
    return host.run("sh", "-c", "grep -h ^Ports= /run/systemd/system/llmgw-engine-*.service").stdout.splitlines()


def daemon_pid(host: Host) -> str:
    return host.run("systemctl", "show", "--value", "-p", "MainPID", "llmgw-daemon").stdout.strip()


def idle_percent(host: Host) -> float:
    """CPU of the daemon over a while in which nothing is asked of it."""

    def ticks() -> int:
        fields = host.path(f"/proc/{daemon_pid(host)}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(_IDLE_S)
    return (ticks() - before) / _TICKS_PER_S / _IDLE_S * 100


def resident_mib(host: Host) -> float:
    status = host.path(f"/proc/{daemon_pid(host)}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
