"""One contract, both back ends: each scenario against systemd in a booted host, and against the embedded supervisor."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.scenarios import SCENARIOS
from tests.contract.scenarios.systemd_only import SYSTEMD_ONLY
from tests.hosts.harness import Host

ROOT = Path(__file__).resolve().parents[2]
RUNNER = (sys.executable, "-m", "tests.contract.runner")
HOST_TOOLS = ("mmdebstrap", "nsenter", "unshare", "ip")
CLEAN_ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


class Runner:
    """A runner process (see runner.py) that is asked for one scenario after the other."""

    def __init__(self, argv: list[str]) -> None:
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=CLEAN_ENVIRONMENT
        )
        try:
            self._read_answer()
        except BaseException:
            self.close()
            raise

    def check(self, scenario: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{scenario}\n")
        self._process.stdin.flush()
        if error := self._read_answer()["error"]:
            pytest.fail(str(error), pytrace=False)

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _read_answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the runner ended with {self._process.wait(timeout=60)}; its words are above", pytrace=False)
        found: dict[str, object] = json.loads(line)
        return found


@pytest.fixture(scope="module")
def systemd() -> Iterator[Runner]:
    if os.geteuid() != 0 or not all(map(shutil.which, HOST_TOOLS)):
        pytest.skip("boots a host: run `make test` as root, which installs what that needs")
    places = {str(ROOT), sys.prefix}
    with Host("contract", binds=[(place, place) for place in places]) as host:
        runner = Runner(host.command(["env", f"--chdir={ROOT}", f"PYTHONPATH={ROOT}", *RUNNER, "systemd"]))
        yield runner
        runner.close()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    state = tmp_path_factory.mktemp("embedded")
    runner = Runner([*RUNNER, "embedded", str(state)])
    yield runner
    runner.close()


@pytest.mark.host
@pytest.mark.parametrize("scenario", [*SCENARIOS, *SYSTEMD_ONLY])
def test_systemd(scenario: str, systemd: Runner) -> None:
    systemd.check(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_embedded(scenario: str, embedded: Runner) -> None:
    embedded.check(scenario)
