"""`llmgw up` as a real process, and `llmgw` beside it: what the tests of the command share.

    with Up(state, "--port", str(port)) as up:
        up.serving["url"]               # what --json printed once it served
        run_cli("status", "--json", state=state).json
        up.stop()                       # SIGTERM; returns the exit code

Leaving the block ends everything that carries the state directory's mark, and engines below it, whatever happened.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[3]
COMMAND_S = 120.0
UP_S = 180.0
STOP_S = 60.0


def free_port() -> int:
    """A port that the kernel says is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would point the command at another llmgw."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
    return {**kept, **more}


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.out))

    @property
    def error(self) -> dict[str, str]:
        return cast(dict[str, str], self.json["error"])


def run_cli(*arguments: str, state: Path, timeout_s: float = COMMAND_S, prefix: Sequence[str] = ()) -> Done:
    """Run `llmgw` to its end; `prefix` is a command that runs it (`unshare`, `setpriv`)."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "cli", "--state", str(state), *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def processes_of(state: Path) -> dict[int, str]:
    """Living processes that belong to a state directory: by the mark of `up`, or by a path in it that they know."""
    mark, path = os.fsencode(f"LLMGW_UP={state}"), os.fsencode(f"{state}/")
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            environ = (entry / "environ").read_bytes()
            if words and (mark in environ.split(b"\0") or path in words or path in environ):
                found[int(entry.name)] = words.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return found


def pids_like(state: Path, word: str) -> list[int]:
    """Pids of the state's processes whose command line has `word` in it."""
    return sorted(pid for pid, command in processes_of(state).items() if word in command)


def engine_pids(state: Path) -> list[int]:
    """Pids of the state's engines; there is at least one."""
    found = pids_like(state, "engines.sim") + pids_like(state, "llama-server")
    assert found, f"no engine runs: {processes_of(state)}"
    return found


def wait_until(what: str, true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Until a thing outside of our process is so; there is no event for it that we could wait for."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)


class Up:
    """One `llmgw up --json`, from its start to its end."""

    def __init__(
        self, state: Path, *arguments: str, wait: bool = True, prefix: Sequence[str] = (), **environ: str
    ) -> None:
        self.state = state
        self._wait = wait
        self._prefix = prefix
        self.serving: dict[str, Any] = {}
        self._arguments: Sequence[str] = arguments
        self._environ = environ
        self._process: subprocess.Popen[str] | None = None
        self._err: list[str] = []

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def err(self) -> str:
        return "".join(self._err)

    def __enter__(self) -> "Up":
        self._process = subprocess.Popen(
            [*self._prefix, sys.executable, "-m", "cli", "up", "--json", "--state", str(self.state), *self._arguments],
            cwd=ROOT,
            env=environment(**self._environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        threading.Thread(target=self._err.extend, args=(self._process.stderr,), daemon=True).start()
        try:
            if self._wait:
                self.wait_serving()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, and wait."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL `up` alone; its children go on."""
        self.process.kill()
        self.process.wait(STOP_S)

    def wait_serving(self) -> None:
        """Until it serves (then `serving` is filled) or ended, which is an error."""
        process = self.process
        assert process.stdout is not None
        watchdog = threading.Timer(UP_S, process.kill)
        watchdog.start()
        try:
            text = ""
            for line in process.stdout:
                text += line
                if line == "}\n":
                    break
        finally:
            watchdog.cancel()
        self.serving = json.loads(text) if text else {}
        assert "url" in self.serving, f"llmgw up did not come to serve: {text}\n{self.err}"

    def _clean_up(self) -> None:
        process = self.process
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
        for _ in range(3):  # what dies may have been starting something
            for pid in [*processes_of(self.state), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait(STOP_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
