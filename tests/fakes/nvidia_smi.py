"""A program that stands for nvidia-smi: answers from recorded samples, hangs, prints garbage, or loses a card.

    smi = FakeNvidiaSmi(directory, "h100-mig")     # smi.program goes into hardware.nvidiaSmi
    smi.mode("hang")

The samples are copied into the directory, so that a test can rewrite what the machine looks like. Modes: `ok`;
`hang` (SIGTERM does not end it); `frozen CGROUP` (joins a frozen version 1 freezer, where SIGKILL does not either);
`garbage`; `fail NAME` (one of the recorded failures); `lose PCI UUID` (that card has fallen off the bus: only
questions about other cards are answered). Every call is noted in `calls`, with its pid. Needs only Python itself.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

SAMPLES = Path(__file__).resolve().parents[1] / "data/nvidia-smi"


class FakeNvidiaSmi:
    """The test's end: what the program shall do next, and what it was asked."""

    def __init__(self, directory: Path, machine: str, *, python: str = sys.executable) -> None:
        self.directory = directory
        self.program = directory / "nvidia-smi"
        directory.mkdir(parents=True, exist_ok=True)
        self.machine(machine)
        shutil.copytree(SAMPLES / "failures", directory / "failures", dirs_exist_ok=True)
        shutil.copy(__file__, directory / "fake.py")
        self.mode("ok")
        self.program.write_text(f'#!/bin/sh\nexec {python} "$(dirname "$0")/fake.py" "$(dirname "$0")" "$@"\n')
        self.program.chmod(0o755)

    def machine(self, name: str) -> None:
        """Become another machine."""
        target = self.directory / "machine"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(SAMPLES / name, target)

    def mode(self, words: str) -> None:
        new = self.directory / "mode.new"
        new.write_text(words)
        new.replace(self.directory / "mode")

    def rewrite(self, before: str, after: str, file: str = "q-x.xml") -> None:
        """Change what a sample says."""
        path = self.directory / "machine" / file
        text = path.read_text()
        assert before in text, before
        new = path.with_suffix(".new")
        new.write_text(text.replace(before, after))
        new.replace(path)

    def calls(self) -> list[tuple[int, str]]:
        """Pid and arguments of every call so far."""
        try:
            lines = (self.directory / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(pid), arguments) for pid, _, arguments in (line.partition(" ") for line in lines)]

    def living(self) -> list[int]:
        """Pids of calls that have not ended."""
        return [pid for pid, _ in self.calls() if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(directory: Path, arguments: list[str]) -> int:
    """The program's end. Returns the exit status."""
    with (directory / "calls").open("a") as calls:
        calls.write(f"{os.getpid()} {' '.join(arguments)}\n")
    mode, *words = (directory / "mode").read_text().split()
    if mode == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    if mode == "frozen":
        Path(words[0], "cgroup.procs").write_text(str(os.getpid()))
        time.sleep(3600)
    if mode == "garbage":
        sys.stdout.buffer.write(b"\x00\xff\x1b[31m]]><nvidia" * 100)
        return 0
    if mode == "fail":
        return _fail(directory, words[0])
    if mode == "lose" and not _asks_for_others(arguments, words[1]):
        text = (directory / "failures/fallen-off-bus.txt").read_text().replace("0000:3B:00.0", words[0])
        sys.stdout.write(text)
        return 15
    sys.stdout.write(_answer(directory / "machine", arguments))
    return 0


def _fail(directory: Path, name: str) -> int:
    sys.stdout.write((directory / "failures" / f"{name}.txt").read_text())
    return int((directory / "failures" / f"{name}.rc").read_text())


def _asks_for_others(arguments: list[str], lost: str) -> bool:
    return "-i" in arguments and lost not in arguments[arguments.index("-i") + 1]


def _answer(machine: Path, arguments: list[str]) -> str:
    if arguments[:2] == ["-q", "-x"]:
        text = (machine / "q-x.xml").read_text()
        return text if "-i" not in arguments else _only(text, arguments[arguments.index("-i") + 1].split(","))
    if arguments[:1] == ["-L"]:
        return (machine / "L.txt").read_text()
    if arguments[:1] == ["nvlink"]:
        return (machine / "nvlink-e.txt").read_text()
    return (machine / "query-gpu.noheader.nounits.csv").read_text()


def _only(text: str, uuids: list[str]) -> str:
    root = ElementTree.fromstring(text)
    for gpu in root.findall("gpu"):
        if gpu.findtext("uuid") not in uuids:
            root.remove(gpu)
    return ElementTree.tostring(root, encoding="unicode")


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
