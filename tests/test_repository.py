"""The rules of the repository, held by a test: arrows, owners of blocking libraries, sizes, words, secrets.

Each rule says why it exists; the table of arrows is the one of `docs/architecture.md`.
"""

import ast
import collections
import itertools
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.error_codes import find_codes

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "units", "engines", "firewall", "daemon", "gateway", "control", "cli")

ARROWS: dict[str, set[str]] = {
    "core": set(),
    "units": {"core"},
    "engines": {"core"},
    "firewall": {"core"},
    "daemon": {"core", "units", "engines", "firewall"},
    "gateway": {"core"},
    "control": {"core"},
    "cli": {"core", "daemon.hardware", "units", "engines", "firewall"},
}
"""Which packages of ours each may import. `cli` takes only what is pure of the mechanisms (`CLI_MAY` below)."""

CLI_MAY = re.compile(
    r"(firewall\.(guard|kernel|normalize|plan|policy|ruleset|state_file|text)|units\.names|units\.registry|units\.backend|units\.embedded\.\w+|engines\.(presets|policy|judge|sources|registry|recipe|digests|machine|mirror|origins|plan|weights|adapter|builds|check|trial|checked|card_trial|filling|weights_filling))$"
)

OWNERS: dict[str, set[str]] = {
    "gi": {"units/systemd/bus.py"},
    "pydbus": {"units/systemd/bus.py"},
    "nftables": {"firewall/apply.py"},
    "pyudev": {"daemon/hardware/udev.py"},
    "pyroute2": {"daemon/hardware/links.py"},
    "sqlite3": {"gateway/jobs/database.py"},
}
"""Blocking libraries: one file each, which gives them their thread."""

LIBRARIES: dict[str, set[str]] = {
    "aiohttp": {"core"},
    "httptools": {"core"},
    "wsproto": {"core"},
    "gunicorn": {"core"},
    "ruamel": {"core", "cli"},
    "falcon": {"daemon", "gateway", "engines"},
    "prometheus_client": {"gateway"},
    "opentelemetry": {"gateway"},
    "google": {"gateway"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""Libraries that only these packages may import."""

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MEDIAN_FILE_LINES = 180
DYNAMIC_IMPORT_ALLOWED = {"units/registry.py", "firewall/kernel.py", "gateway/tracing/tracing.py"}
"""What binds to libraries that only Debian has is loaded by name: a machine without them serves, too. So is what takes
megabytes and only some need."""


@cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return tuple(ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())


def python_files(*tops: str) -> list[Path]:
    return [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in tops]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, whether it stands at the top of the file; `if TYPE_CHECKING:` there counts as the top)."""
    tree = parsed(path)
    top = {id(node) for outer in tree.body for node in (outer.body if isinstance(outer, ast.If) else [outer])}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            yield name, id(node) in top


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_down(package: str) -> None:
    allowed = ARROWS[package]
    wrong = [
        f"{relative(path)} imports {name}"
        for path in python_files(package)
        for name, _ in imports(path)
        if (top := name.split(".")[0]) in PACKAGES
        and top != package
        and top not in allowed
        and not any(name == a or name.startswith(a + ".") for a in allowed if "." in a)
    ]
    assert not wrong


def test_the_cli_takes_only_what_is_pure_of_the_mechanisms() -> None:
    wrong = [
        f"{relative(path)} imports {name}"
        for path in python_files("cli")
        for name, _ in imports(path)
        if name.split(".")[0] in ("units", "engines", "firewall") and not CLI_MAY.fullmatch(name)
    ]
    assert not wrong


def test_no_import_hides_in_a_function() -> None:
    wrong = [
        f"{relative(path)}: {name}" for path in python_files(*PACKAGES) for name, at_top in imports(path) if not at_top
    ]
    assert not wrong
    dynamic = [
        relative(path)
        for path in python_files(*PACKAGES)
        if "import_module" in path.read_text() or "__import__" in path.read_text()
    ]
    assert set(dynamic) <= DYNAMIC_IMPORT_ALLOWED


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_a_blocking_library_has_one_file(library: str) -> None:
    users = {
        relative(path) for path in python_files(*PACKAGES) for name, _ in imports(path) if name.split(".")[0] == library
    }
    assert users <= OWNERS[library]


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_a_library_stays_in_its_packages(library: str) -> None:
    users = {
        path.relative_to(ROOT).parts[0]
        for path in python_files(*PACKAGES)
        for name, _ in imports(path)
        if name.split(".")[0] == library
    }
    assert users <= LIBRARIES[library]


def test_modules_do_not_import_in_circles() -> None:
    modules = {
        relative(p).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): p for p in python_files(*PACKAGES)
    }
    graph = {name: {n for n, _ in imports(path) if n in modules and n != name} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, stack: tuple[str, ...]) -> None:
        assert name not in stack, " -> ".join((*stack[stack.index(name) :], name))
        if name in done:
            return
        for needed in graph[name]:
            visit(needed, (*stack, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_files_are_small() -> None:
    sizes = {relative(p): p.read_text().count("\n") for p in python_files(*PACKAGES, "tests")}
    assert not {name: size for name, size in sizes.items() if size > MAX_FILE_LINES}
    ours = [size for name, size in sizes.items() if not name.startswith("tests/")]
    assert statistics.median(ours) <= MEDIAN_FILE_LINES


def test_functions_are_small() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in python_files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not wrong


def test_every_module_opens_with_a_docstring() -> None:
    wrong = [
        relative(p) for p in python_files(*PACKAGES, "tests") if p.stat().st_size and not ast.get_docstring(parsed(p))
    ]
    assert not wrong


def test_there_is_no_bag_of_leftovers() -> None:
    bags = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    assert not [relative(p) for p in tracked() if p.name in bags]


def test_packaging_is_never_a_package() -> None:
    """It would hide the library of that name."""
    assert not [relative(p) for p in tracked() if p.parts[len(ROOT.parts)] == "packaging" and p.name == "__init__.py"]


def test_the_top_level_is_fixed() -> None:
    allowed = {*PACKAGES, "packaging", "tests", "debian", "docs", "typings", ".ci"}
    folders = {p.relative_to(ROOT).parts[0] for p in tracked() if len(p.relative_to(ROOT).parts) > 1}
    assert folders <= allowed


def test_nothing_is_left_for_later_in_the_code() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")
    assert not [relative(p) for p in python_files(*PACKAGES) if marks.search(p.read_text())]


def test_the_project_stands_alone() -> None:
    """No path of a developer's machine, no folder outside the repository."""
    foreign = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm)/|\.\./shared")
    texts = [p for p in tracked() if p.suffix in {".py", ".md", ".toml", ".sh", ".service", ""} and p != Path(__file__)]
    assert not [relative(p) for p in texts if foreign.search(p.read_text(errors="ignore"))]


def test_only_the_cli_prints() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files(*(p for p in PACKAGES if p != "cli"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not wrong


def test_every_stable_code_is_in_the_manual_and_the_manual_names_no_other() -> None:
    """A program reads the code, a person looks it up: `llmgw-errors`(7) holds each, and none that nothing says."""
    codes = find_codes({path.relative_to(ROOT): parsed(path) for path in python_files(*PACKAGES)})
    del codes["error"]  # of the base of all errors, which nobody raises
    lines = (ROOT / "docs/man/llmgw-errors.7.md").read_text().split("\n")
    terms = [term for term, meaning in itertools.pairwise(lines) if meaning.startswith(": ")]
    documented = [code for term in terms for code in re.findall(r"\*\*([^*]+)\*\*", term)]
    assert {code: places for code, places in codes.items() if code not in documented} == {}
    assert sorted(set(documented) - codes.keys()) == []
    assert [code for code, count in collections.Counter(documented).items() if count > 1] == []
