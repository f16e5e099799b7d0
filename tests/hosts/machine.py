"""An installed host whose daemon, in its own sandbox, sees devices that a test makes and takes away."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from core.hardware import DoctorReport, HardwareState
from tests.fakes.nvidia_smi import FakeNvidiaSmi
from tests.hosts.harness import Host
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

FAKES = Path(__file__).resolve().parents[1] / "fakes"
_PATIENCE_S = 60.0

_HOLDER = """[Service]
Type=notify
ExecStart=umockdev-wrapper /usr/bin/python3 /opt/devices.py /run/devices
NotifyAccess=all
"""

_DROP_IN = """[Unit]
Requires=devices.service
After=devices.service
[Service]
EnvironmentFile=/run/devices/environment
ReadWritePaths=/run/devices
"""

CONFIG = """hardware:
  nvidiaSmi: /opt/smi/nvidia-smi
  sampleIntervalMs: 1000
  kernelLog: /opt/kernel.log
  fabrics: {fast: [mlx5_0]}
"""


class Machine:
    """A host, its fake devices and its fake nvidia-smi."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.smi = FakeNvidiaSmi(host.path("/opt/smi"), "rtx4090", python="/usr/bin/python3")

    def order(self, *words: str) -> None:
        """Change the devices."""
        self.host.run("tee", "/run/devices/commands", stdin="\t".join(words) + "\n")

    def say(self, line: str) -> None:
        """The kernel says something."""
        with self.host.path("/opt/kernel.log").open("a") as log:
            log.write(line + "\n")

    def hardware(self) -> HardwareState:
        return msgspec.json.decode(self._ask("/v1/hardware"), type=HardwareState)

    def gateway_node(self) -> dict[str, object]:
        answer = self.host.run("curl", "-sS", "--fail", "--max-time", "30", "http://127.0.0.1:8100/gateway/node")
        node: dict[str, object] = json.loads(answer.stdout)["node"]
        return node

    def doctor(self) -> tuple[int, DoctorReport]:
        return doctor(self.host)

    def until(self, holds: Callable[[HardwareState], bool]) -> float:
        """Ask until it holds; how many seconds that took."""
        began = time.monotonic()
        while not holds(state := self.hardware()):
            if time.monotonic() - began > _PATIENCE_S:
                raise AssertionError(f"never happened: {state}\n{self.host.journal('-u', 'llmgw-daemon')[-4000:]}")
        return time.monotonic() - began

    def _ask(self, path: str) -> str:
        line = ("curl", "-sS", "--fail", "--max-time", "30", "--unix-socket", "/run/llmgw/daemon.sock")
        return self.host.run(*line, f"http://daemon{path}").stdout


def doctor(host: Host) -> tuple[int, DoctorReport]:
    """`llmgw doctor`: exit code and report."""
    done = host.run("llmgw", "doctor", "--json", check=False)
    return done.code, msgspec.json.decode(done.stdout, type=DoctorReport)


@contextlib.contextmanager
def machine(name: str) -> Iterator[Machine]:
    """A running node that sees an InfiniBand adapter and no card yet."""
    with installed_host(name) as host:
        shutil.copy(FAKES / "devices.py", host.path("/opt/devices.py"))
        host.path("/opt/kernel.log").touch()
        host.path("/etc/systemd/system/devices.service").write_text(_HOLDER)
        drop_ins = host.path("/etc/systemd/system/llmgw-daemon.service.d")
        drop_ins.mkdir()
        (drop_ins / "devices.conf").write_text(_DROP_IN)
        rewrite(host.path("/etc/llmgw/config.yaml"), CONFIG)
        node = Machine(host)
        node.smi.mode("fail no-devices")
        host.run("systemctl", "daemon-reload")
        host.run("systemctl", "start", "devices.service")
        node.order("add-adapter", "mlx5_0")
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, "llmgw-daemon.service", "llmgw-gateway.service")
        node.until(lambda state: bool(state.infiniband))
        yield node
