"""A service that misbehaves on request. Standard library only; it is run by path, and its options combine.

Every process that it makes adds a line `PID START-TICKS ROLE` to `--pids`, so that a test finds them all, even when
environment, session, parent and title were changed. Once it has said READY there is a file of that name with `.ready`.
"""

import argparse
import ctypes
import os
import signal
import socket
import time
from pathlib import Path


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--pids", required=True)
    add("--child", action="append", default=[], choices=("setsid", "double-fork", "clean-env", "plain"))
    add("--title", action="store_true", help="overwrite the command line and the name")
    add("--ignore-term", action="store_true")
    add("--term-takes-s", type=float, default=0.0)
    add("--exit", type=int)
    add("--after-s", type=float, default=0.0)
    add("--lines-mb", type=int, default=0, help="numbered lines of 100 bytes, as fast as possible")
    add("--lines-per-s", type=float, default=0.0, help="numbered lines, for ever")
    add("--ready-after-s", type=float)
    add("--ready-from-child", action="store_true")
    add("--ping-s", type=float)
    add("--port", type=int, help="listen; exit with 98 when that fails")
    return parser.parse_args()


def record(path: str, role: str) -> None:
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {ticks} {role}\n")


def notify(text: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
        except OSError:
            pass  # nobody listens now


def leave_child(path: str, how: str) -> None:
    """A descendant that ignores polite signals and looks like nobody's."""
    pid = os.fork()
    if pid:
        if how == "double-fork":
            os.waitpid(pid, 0)
        return
    if how != "plain":
        os.setsid()
    if how == "double-fork" and os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    record(path, how)
    if how == "clean-env":
        os.execve("/bin/sleep", ["innocent", "1000"], {})
    while True:
        signal.pause()


def overwrite_title() -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
    ctypes.memset(begin, ord("x"), end - begin)
    ctypes.CDLL(None).prctl(15, b"innocent", 0, 0, 0)


def write_lines(megabytes: int) -> None:
    total = megabytes * 10_000
    for first in range(0, total, 1000):
        data = b"".join(b"%012d %s\n" % (number, b"x" * 86) for number in range(first, min(first + 1000, total)))
        while data:
            data = data[os.write(1, data) :]


def main() -> None:
    options = parse_options()

    def on_term(_number: int, _frame: object) -> None:
        if not options.ignore_term:
            time.sleep(options.term_takes_s)
            os._exit(0)

    signal.signal(signal.SIGTERM, on_term)
    record(options.pids, "main")
    if options.title:
        overwrite_title()
    for how in options.child:
        leave_child(options.pids, how)
    if options.port:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", options.port))
        except OSError:
            os._exit(98)
        listener.listen()
    write_lines(options.lines_mb)
    if options.ready_from_child and os.fork() == 0:
        notify("READY=1")
        while True:
            signal.pause()
    live(options)


def live(options: argparse.Namespace) -> None:
    began = time.monotonic()
    is_ready = options.ready_after_s is None
    number = 0
    while True:
        age_s = time.monotonic() - began
        if not is_ready and age_s >= options.ready_after_s:
            notify("READY=1\nSTATUS=up")
            Path(options.pids).with_suffix(".ready").touch()
            is_ready = True
        if options.ping_s:
            notify("WATCHDOG=1")
        if options.exit is not None and age_s >= options.after_s:
            os._exit(options.exit)
        if options.lines_per_s:
            os.write(1, b"line %09d\n" % number)
            number += 1
            time.sleep(1 / options.lines_per_s)
        else:
            time.sleep(options.ping_s or 0.02)


if __name__ == "__main__":
    main()
