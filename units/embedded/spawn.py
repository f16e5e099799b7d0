"""Fork and exec of a main process.

Between fork and exec the child joins its process group, writes its own birth record, takes its limits, becomes its
user and gives up everything of ours. Three orders matter and were learnt from failures:

* All signals are blocked around the fork. A SIGTERM meant for the new child would else be written to the wakeup
  descriptor that it shares with us, and end *our* loop.
* The child asks to be killed with us (PDEATHSIG) until its birth record is written, and no longer: so a supervisor
  that is killed leaves either a recorded process or none, and a service never dies with its supervisor.
* Membership and record come before the change of user, which clears PDEATHSIG and takes the right to write.

What goes wrong in the child comes back through a pipe that exec closes: an empty answer means that exec worked.
Single-threaded processes only (a fork copies one thread, and PDEATHSIG is tied to it).
"""

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from units.embedded.cgroup import ProcessGroup
from units.embedded.identity import Identity
from units.embedded.memory import Birth, write_record
from units.embedded.procfs import read_start_ticks
from units.embedded.quantities import Limit

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_MAX_ANSWER_BYTES = 2048

_libc = ctypes.CDLL(None, use_errno=True)


class ExecFailure(msgspec.Struct, frozen=True):
    """What the child says when it could not become the service; `status` is systemd's exit status for the step."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """Everything that a start needs, decided before the fork."""

    argv: list[str]
    env: Mapping[str, str]
    working_directory: str
    """Empty: the root. A leading `-`: the root where it does not exist."""
    log: Path
    birth: Path
    boot_id: str
    invocation_id: str
    mark: int
    identity: Identity | None
    umask: int
    no_new_privileges: bool
    nofile: Limit
    memlock: Limit | None


@dataclass(frozen=True, slots=True)
class Spawned:
    """A child between fork and exec."""

    pid: int
    start_ticks: int
    pidfd: int
    answer: int
    """Read end of the pipe: nothing and end of file when exec worked, else an `ExecFailure`."""


def become_subreaper() -> None:
    """What our services leave behind becomes our child, not init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spawn(command: Command, group: ProcessGroup) -> Spawned:
    """Fork. Returns in the parent only. Raises: OSError (no memory, too many processes, log not writable)."""
    log = _open_log(command.log)
    answer, telling = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _become(command, group, parent, log, telling)
    except BaseException:
        os.close(answer)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        os.close(telling)
        os.close(log)
    # Not reaped yet, so both name exactly this child, even when it is a zombie already.
    return Spawned(pid, read_start_ticks(pid) or 0, os.pidfd_open(pid), answer)


def read_answer(descriptor: int) -> ExecFailure | None:
    """What the child said; None: exec worked."""
    data = os.read(descriptor, _MAX_ANSWER_BYTES)
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=ExecFailure)
    except msgspec.DecodeError:
        return ExecFailure(203, data.decode(errors="replace"))


def _open_log(path: Path) -> int:
    """The log, for appending. A last line that an earlier life left open is ended first: lives do not run together."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) not in (b"\n", b"\0"):
        os.write(descriptor, b"\n")
    return descriptor


def _become(command: Command, group: ProcessGroup, parent: int, log: int, telling: int) -> NoReturn:
    """The child: never returns, never raises."""
    step = "start"
    status = 203
    try:
        for step, status, act in _steps(command, group, parent, log):  # noqa: B007 - the failed step is told below
            act()
        step, status = "exec", 203
        os.execve(command.argv[0], command.argv, command.env)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must end here and say why
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        what = command.argv[0] if step == "exec" else step
        text = f"{what[:1000]}: {reason[:500]}"
        os.write(telling, msgspec.json.encode(ExecFailure(status, text)))
    finally:
        os._exit(status)


_Step = tuple[str, int, Callable[[], None]]


def _steps(command: Command, group: ProcessGroup, parent: int, log: int) -> list[_Step]:
    """In this order: name, systemd's exit status for its failure, what to do."""
    return [
        ("parent", 203, lambda: _die_with(parent)),
        ("cgroup", 219, group.join),
        ("signals", 203, _reset_signals),
        ("birth record", 203, lambda: _record_birth(command)),
        ("output", 209, lambda: _redirect(log)),
        ("limits", 205, lambda: _set_limits(command)),
        ("user", 217, lambda: _change_user(command.identity)),
        ("no new privileges", 227, lambda: _forbid_privileges(command.no_new_privileges)),
        ("working directory", 200, lambda: _change_directory(command.working_directory)),
    ]


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(203)


def _reset_signals() -> None:
    """A session of its own, and signals as a fresh program expects them."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _record_birth(command: Command) -> None:
    pid = os.getpid()
    birth = Birth(
        boot_id=command.boot_id,
        pid=pid,
        start_ticks=read_start_ticks(pid) or 0,
        invocation_id=command.invocation_id,
        mark=command.mark,
    )
    write_record(command.birth, birth)
    _prctl(_PR_SET_PDEATHSIG, 0)


def _redirect(log: int) -> None:
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _set_limits(command: Command) -> None:
    os.umask(command.umask)
    resource.setrlimit(resource.RLIMIT_NOFILE, _clamp(resource.RLIMIT_NOFILE, command.nofile))
    if command.memlock is not None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, _clamp(resource.RLIMIT_MEMLOCK, command.memlock))


def _clamp(kind: int, wanted: Limit) -> tuple[int, int]:
    """As much of `wanted` as we may give. Only root can raise a hard limit, and not even root beyond fs.nr_open."""
    _, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (wanted.soft, wanted.hard))
    except (ValueError, OSError):
        return _lower(wanted.soft, hard), _lower(wanted.hard, hard)
    return wanted.soft, wanted.hard


def _lower(one: int, other: int) -> int:
    """The lower of two limits, of which -1 is the highest."""
    if resource.RLIM_INFINITY in (one, other):
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)


def _change_user(identity: Identity | None) -> None:
    if identity is None:
        return
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)


def _forbid_privileges(forbidden: bool) -> None:
    if forbidden:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _change_directory(path: str) -> None:
    optional = path.startswith("-")
    try:
        os.chdir(path.removeprefix("-") or "/")
    except OSError:
        if not optional:
            raise
        os.chdir("/")
