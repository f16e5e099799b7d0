"""`packaging/environment.sh`, which stands before every `make` target: what fails, fails in one message."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to take network and disk away: sudo make test")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as the script looks at."""
    (tmp_path / "packaging").mkdir()
    (tmp_path / "tests").mkdir()
    for name in ("packaging/environment.sh", "packaging/requirements.txt", "tests/requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_script(checkout: Path, purpose: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run it as on a machine that has fetched nothing yet and has no configuration of pip's."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment = {**keep, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    return subprocess.run(
        [*before, "sh", str(checkout / "packaging/environment.sh"), purpose],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one message: a line that says what, and one that says what to do."""
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert done.stderr.count("error: ") == 1
    assert done.stdout == ""
    return error


@needs_root
def test_without_a_network_it_says_so(checkout: Path) -> None:
    done = run_script(checkout, "up", "unshare", "--net")
    assert complaint(done) == "error: the package index cannot be reached"


@needs_root
@pytest.mark.parametrize("size", ["2m", "30m"])
def test_a_full_disk_is_called_by_its_name(checkout: Path, size: str) -> None:
    full = checkout / "full"
    mount = f"mount -t tmpfs -o size={size} tmpfs {full} && cp -a {checkout}/packaging {checkout}/tests {full}/ && "
    full.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", f"{mount} sh {full}/packaging/environment.sh up"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "the disk is full" in complaint(done)


def test_an_unknown_purpose_is_refused_with_those_there_are(checkout: Path) -> None:
    assert "'lunch' is none of: up, test, deb, bench" in complaint(run_script(checkout, "lunch"))


def test_what_is_installed_already_is_not_installed_again(checkout: Path) -> None:
    """The second `make up` must not wait for pip: a finished environment is told by the hash of its requirements."""
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to("/usr/bin/python3")
    digest = subprocess.run(
        ["sha256sum", str(checkout / "packaging/requirements.txt")], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    (venv / ".installed-packaging-requirements.txt").write_text(f"{digest}\n")
    done = run_script(checkout, "up")
    assert (done.returncode, done.stdout) == (0, "")
    assert "installing Python" not in done.stderr
