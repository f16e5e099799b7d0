"""What is said twice, in code and in packaging, is said the same: versions, folders, ports, times, pins."""

import configparser
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from core import VERSION
from core.config.schema import Ports, Server
from core.paths import Layout

ROOT = Path(__file__).resolve().parents[3]
PACKAGING = ROOT / "packaging"
LOCKS = ("packaging/requirements.txt", "tests/requirements.txt")
LATER = {"control", "tests"}
"""Folders that are no part of the installed tree, or not yet."""

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def directive(unit: str, section: str, name: str) -> str:
    """The value of one directive of a static unit; the last one where it stands more than once."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign] # directives are spelt with capitals
    parser.read(PACKAGING / "systemd" / unit)
    return parser[section][name]


def pins(lock: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in _PIN.findall((ROOT / lock).read_text())}


def test_one_version_stands_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changelog = (ROOT / "debian/changelog").read_text()
    assert project["version"] == VERSION
    assert changelog.startswith(f"llmgw ({VERSION})")


def test_every_package_of_ours_is_installed() -> None:
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} - LATER
    installed = {line.split()[0] for line in (ROOT / "debian/llmgw.install").read_text().splitlines()}
    assert ours <= installed
    copied = re.search(r"^cp -a (.*) \"\$stage/\"$", (PACKAGING / "build-deb.sh").read_text(), re.MULTILINE)
    assert copied
    assert ours <= set(copied[1].split())


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    blocks = re.split(r"\n(?=[A-Za-z])", (ROOT / lock).read_text())[1:]
    assert len(blocks) > 15
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_pins_are_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = pins(LOCKS[0])
    for line in project["dependencies"]:
        requirement = Requirement(line)
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, f"make lock: {line}"


def test_tests_run_with_the_versions_that_are_shipped() -> None:
    tested = pins(LOCKS[1])
    assert {name: tested.get(name) for name in pins(LOCKS[0])} == pins(LOCKS[0])


def test_the_reserved_ports_are_those_that_engines_get() -> None:
    first, last = Ports().backends
    assert f"ip_local_reserved_ports = {first}-{last}\n" in (PACKAGING / "sysctl.d/50-llmgw.conf").read_text()


def test_systemd_listens_where_the_config_says_by_default() -> None:
    server = Server()
    assert directive("llmgw-gateway.socket", "Socket", "ListenStream") == f"{server.host}:{server.port}"


def test_a_stop_of_the_gateway_waits_longer_than_its_streams_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMGW_DRAIN_S", raising=False)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    settings = runpy.run_path(str(PACKAGING / "gunicorn.conf.py"))
    assert int(directive("llmgw-gateway.service", "Service", "TimeoutStopSec")) > settings["graceful_timeout"]


def test_the_directories_are_those_of_the_system_layout() -> None:
    rows = [line.split() for line in (PACKAGING / "tmpfiles.d/llmgw.conf").read_text().splitlines()]
    made = {Path(row[1]) for row in rows if row and row[0] == "d"}
    layout = Layout.system()
    wanted = {layout.config.parent, layout.state, layout.engines, layout.weights, layout.homes, layout.runtime}
    assert wanted | {layout.keys, layout.logs, layout.engines.parent} == made
    assert directive("llmgw-gateway.service", "Service", "StateDirectory") == str(
        layout.gateway_state.relative_to("/var/lib")
    )


@pytest.mark.parametrize("launcher", sorted((PACKAGING / "bin").iterdir()), ids=lambda path: path.name)
def test_an_installed_program_trusts_no_environment_and_sees_the_private_tree_first(launcher: Path) -> None:
    text = launcher.read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert 'sys.path[:0] = ["/usr/lib/llmgw", "/usr/lib/llmgw/vendor"]\n' in text
    assert launcher.stat().st_mode & 0o111
