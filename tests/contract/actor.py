"""A service for the contract suite: does what its first argument says. Standard library only; it is run by path.

dump FILE [ARG…]       write argv, environment, identity, credentials as JSON, then wait
say LINE…              print lines, then wait (a last argument `--partial TEXT` ends without a newline and exits 1)
exit CODE [LINE…]      print lines and exit
count FILE CODE        add a line to FILE, then exit with CODE (`wait`: wait instead)
deaf                   ignore SIGTERM
polite FILE            write `bye` to FILE on SIGTERM, then end
signals FILE N SIGNO   start N children; each process writes a line to FILE when SIGNO comes
brood FILE HOW         leave a descendant behind by HOW (setsid, double-fork, clean-env, deaf), write its pid to FILE
orphan FILE HOW        the same, then the main process exits 1
notify WHAT…           ready=TEXT, status=TEXT, never, exit, ping (feed the watchdog for ever), wait
flood N                print N lines as fast as possible, then exit 1
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

ODD_LINES = ("é日本", "\x1b[31mred\x1b[0m", "tab\there", "x" * 20_000, "  indented", "\u2028", "\x07bell", "end")


def write(path: str, text: str) -> None:
    """So that a reader sees nothing or all of it."""
    temporary = f"{path}.{os.getpid()}"
    Path(temporary).write_text(text)
    os.replace(temporary, path)


def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text)


def wait() -> None:
    while True:
        signal.pause()


def dump(path: str, *_: str) -> None:
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    entries = [Path(folder, name) for name in sorted(os.listdir(folder))] if folder else []
    seen = {
        "argv": [os.fsencode(word).hex() for word in sys.argv],
        "env": {os.fsencode(name).hex(): os.fsencode(value).hex() for name, value in os.environ.items()},
        "cwd": os.getcwd(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": sorted(os.getgroups()),
        "umask": os.umask(0),
        "fds": sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}")),
        "credentials": {
            entry.name: [entry.read_bytes().hex(), entry.stat().st_mode & 0o777, entry.stat().st_uid]
            for entry in entries
        },
        "pid": os.getpid(),
    }
    write(path, json.dumps(seen))
    wait()


def say(*lines: str) -> None:
    if "--partial" in lines:
        at = lines.index("--partial")
        print("\n".join((*lines[:at], lines[at + 1])), end="", flush=True)
        sys.exit(1)
    for number, line in enumerate(lines):
        print(line, file=sys.stderr if number % 2 else sys.stdout, flush=True)
    wait()


def exit_(code: str, *lines: str) -> None:
    for line in lines:
        print(line, flush=True)
    sys.exit(int(code))


def count(path: str, code: str) -> None:
    append(path, f"{os.getpid()}\n")
    if code == "wait":
        wait()
    sys.exit(int(code))


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait()


def polite(path: str) -> None:
    def leave(_number: int, _frame: object) -> None:
        write(path, "bye\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    write(f"{path}.up", "up\n")
    wait()


def signals(path: str, children: str, number: str) -> None:
    signal.signal(int(number), lambda _number, _frame: append(path, f"{os.getpid()}\n"))
    for _ in range(int(children)):
        if os.fork() == 0:
            append(f"{path}.up", f"{os.getpid()}\n")
            wait()
    append(f"{path}.up", f"{os.getpid()}\n")
    wait()


def leave_behind(path: str, how: str) -> None:
    """A process of ours that does not look like one of ours any more."""
    if os.fork():
        while not os.path.exists(path):
            time.sleep(0.005)
        return
    if how in ("setsid", "double-fork", "clean-env"):
        os.setsid()
    if how in ("double-fork", "clean-env") and os.fork():
        os._exit(0)
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(path, f"{os.getpid()}\n")
    if how == "clean-env":
        os.execve("/bin/sleep", ["innocent", "1000"], {})
    wait()


def brood(path: str, how: str) -> None:
    leave_behind(path, how)
    wait()


def orphan(path: str, how: str) -> None:
    leave_behind(path, how)
    sys.exit(1)


def tell(message: str) -> None:
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sender.send(message.encode())


def notify(*steps: str) -> None:
    for step in steps:
        what, _, text = step.partition("=")
        if what == "ready":
            tell(f"READY=1\nSTATUS={text}")
        elif what == "status":
            tell(f"STATUS={text}")
        elif what == "exit":
            sys.exit(0)
        elif what == "ping":
            while True:
                tell("WATCHDOG=1")
                time.sleep(0.2)
    wait()


def odd() -> None:
    for line in ODD_LINES:
        print(line, flush=True)
    sys.exit(1)


def flood(lines: str) -> None:
    for number in range(int(lines)):
        sys.stdout.write(f"line {number}\n")
    sys.stdout.flush()
    sys.exit(1)


ROLES: dict[str, Callable[..., None]] = {
    "dump": dump,
    "say": say,
    "exit": exit_,
    "count": count,
    "deaf": deaf,
    "polite": polite,
    "signals": signals,
    "brood": brood,
    "orphan": orphan,
    "notify": notify,
    "odd": odd,
    "flood": flood,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
