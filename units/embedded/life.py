"""One life of a unit: from the fork of its main process until nothing of it is left.

A `Life` does things (spawn, listen, signal, clean up) and keeps the facts that the unit's task waits for; what the
facts mean is decided in `unit.py` and `restart.py`. An adopted life begins with a process that runs already.
"""

import asyncio
import math
import os
import shutil
import signal
import time
import uuid

from core.errors import LlmgwError
from units.embedded.cgroup import ProcessGroup
from units.embedded.credentials import CredentialUnreadable, remove_credentials, write_credentials
from units.embedded.environment import build_environment
from units.embedded.identity import Identity, IdentityUnknown, read_identity
from units.embedded.main_process import MainProcess
from units.embedded.mark import choose_mark, send_signal
from units.embedded.memory import Birth
from units.embedded.news import News
from units.embedded.notify import Notification, NotifySocket
from units.embedded.parse import CREDENTIALS_SPECIFIER, EmbeddedUnit, split_command
from units.embedded.site import Site
from units.embedded.spawn import Command, ExecFailure, Spawned, read_answer, spawn
from units.model import KillMode, ServiceType

_KILL_GRACE_S = 10.0
"""How long after SIGKILL we believe that a process will go. One stuck in a driver does not."""

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.05

_NOBODY = MainProcess(0, None, is_child=False)


class Life:
    """Made by `begin` or `adopt`; `launch` (unless adopted), …, `wind_down`, `close`."""

    def __init__(self, spec: EmbeddedUnit, site: Site, news: News, invocation_id: str, mark: int) -> None:
        self.spec = spec
        self.invocation_id = invocation_id
        self.mark = mark
        self.main = _NOBODY
        self.has_executed = False
        self.failure: ExecFailure | None = None
        self.is_ready = False
        self.status_text = ""
        self.has_new_words = False
        """Whether its status text changed since somebody cleared this."""
        self.was_killed = False
        """Whether it took SIGKILL to end it."""
        self.limits_memory = True
        self.start_deadline_s = time.monotonic() + spec.timeout_start_s
        self._site = site
        self._news = news
        self._group: ProcessGroup = site.make_group(spec.name, mark)
        self._socket: NotifySocket | None = None
        self._answer: int | None = None
        self._last_ping_s = time.monotonic()
        self._watchdog_s = spec.watchdog_s

    @classmethod
    def begin(cls, spec: EmbeddedUnit, site: Site, news: News) -> "Life":
        """A life that has not begun: `launch` is next."""
        return cls(spec, site, news, uuid.uuid4().hex, choose_mark() if site.cgroups is None else 0)

    @classmethod
    def adopt(cls, spec: EmbeddedUnit, site: Site, news: News, birth: Birth) -> "Life":
        """A life that an earlier supervisor began."""
        life = cls(spec, site, news, birth.invocation_id, birth.mark)
        life.has_executed = True
        life.main = MainProcess.adopt(birth.pid, birth.start_ticks)
        life.main.watch(news.poke)
        if not life.main.is_over:
            life._listen()
        return life

    def launch(self) -> ExecFailure | None:
        """Fork. None: the child is on its way to exec (`has_executed`, `failure`); else why there is no child."""
        try:
            identity = read_identity(self.spec)
            command = self._build_command(identity, self._prepare(identity))
            self.limits_memory = self._group.prepare(self.spec.memory_max_bytes)
            self._begin_watching(spawn(command, self._group))
        except IdentityUnknown as error:
            return ExecFailure(217, error.message)
        except CredentialUnreadable as error:
            return ExecFailure(243, error.message)
        except LlmgwError as error:
            return ExecFailure(203, error.message)
        except OSError as error:
            return ExecFailure(203, f"{error.filename or 'fork'}: {error.strerror}")
        return None

    def _prepare(self, identity: Identity | None) -> dict[str, str]:
        """Credentials and socket; returns the variables that tell the service of them."""
        own = {"INVOCATION_ID": self.invocation_id}
        if self.spec.credentials:
            directory = self._site.credentials(self.spec.name)
            write_credentials(self.spec, directory, identity)
            own["CREDENTIALS_DIRECTORY"] = os.fspath(directory)
        if self._listen() is not None:
            own["NOTIFY_SOCKET"] = os.fspath(self._site.notify_socket(self.invocation_id))
        if self.spec.watchdog_s:
            own["WATCHDOG_USEC"] = str(int(self.spec.watchdog_s * 1e6))
        return own

    def _build_command(self, identity: Identity | None, own: dict[str, str]) -> Command:
        spec = self.spec
        env = build_environment(spec, identity, own)
        argv = split_command(spec, env, {CREDENTIALS_SPECIFIER: own.get("CREDENTIALS_DIRECTORY", "")})
        if "/" not in argv[0]:
            argv[0] = shutil.which(argv[0], path=env["PATH"]) or argv[0]
        return Command(
            argv=argv,
            env=env,
            working_directory=spec.working_directory,
            log=self._site.unit_log(spec.name),
            birth=self._site.birth(spec.name),
            boot_id=self._site.boot_id,
            invocation_id=self.invocation_id,
            mark=self.mark,
            identity=identity,
            umask=spec.umask,
            no_new_privileges=spec.no_new_privileges,
            nofile=spec.limit_nofile or self._site.nofile,
            memlock=spec.limit_memlock,
        )

    def _begin_watching(self, spawned: Spawned) -> None:
        self.main = MainProcess(spawned.pid, spawned.pidfd, is_child=True)
        self.main.watch(self._news.poke)
        self._answer = spawned.answer
        asyncio.get_running_loop().add_reader(spawned.answer, self._read_answer)

    def _read_answer(self) -> None:
        """The child executed, or says why not."""
        if self._answer is None:
            return
        self.failure = read_answer(self._answer)
        self.has_executed = self.failure is None
        self._last_ping_s = time.monotonic()
        self._drop_answer()
        self._news.poke()

    def _drop_answer(self) -> None:
        if self._answer is not None:
            asyncio.get_running_loop().remove_reader(self._answer)
            os.close(self._answer)
            self._answer = None

    def _listen(self) -> NotifySocket | None:
        if self.spec.type is not ServiceType.NOTIFY and not self.spec.watchdog_s:
            return None
        self._socket = NotifySocket(self._site.notify_socket(self.invocation_id))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self.hear)
        return self._socket

    def hear(self) -> None:
        """Take in what the service has sent."""
        for message in self._socket.read() if self._socket is not None else ():
            if self.spec.notify_access_all or message.pid == self.main.pid:
                self._take(message)
        self._news.poke()

    def _take(self, message: Notification) -> None:
        fields = message.fields
        now_s = time.monotonic()
        if "STATUS" in fields:
            self.status_text = fields["STATUS"][:1000]
            self.has_new_words = True
        if fields.get("READY") == "1":
            self.is_ready = True
            self._last_ping_s = now_s
        if fields.get("WATCHDOG") == "1":
            self._last_ping_s = now_s
        if fields.get("WATCHDOG") == "trigger":
            self._last_ping_s = -math.inf
        if fields.get("WATCHDOG_USEC", "").isdecimal():
            self._watchdog_s = int(fields["WATCHDOG_USEC"][:18]) / 1e6
        if fields.get("EXTEND_TIMEOUT_USEC", "").isdecimal():
            self.start_deadline_s = max(self.start_deadline_s, now_s + int(fields["EXTEND_TIMEOUT_USEC"][:18]) / 1e6)

    def watchdog_deadline(self) -> float:
        """When the service must have pinged again."""
        return self._last_ping_s + self._watchdog_s if self._watchdog_s else math.inf

    def read_pids(self) -> set[int]:
        """All its living processes."""
        return self._group.read_pids(0 if self.main.is_over else self.main.pid)

    def has_leftovers(self) -> bool:
        """Before `launch`: whether processes of an earlier life are still there. A fresh mark can have none."""
        return self._site.cgroups is not None and bool(self.read_pids())

    def send_signal(self, number: int) -> None:
        """Signal all its processes."""
        for pid in self.read_pids():
            send_signal(pid, number)

    def was_out_of_memory(self) -> bool:
        return self._group.was_out_of_memory()

    async def wind_down(self) -> bool:
        """Until nothing is left: SIGTERM to all, SIGKILL past the unit's timeout. False: some will not go.

        In mixed mode SIGTERM is for the main process alone, and SIGKILL for what is left once that has ended.
        """
        deadline_s = time.monotonic() + self.spec.timeout_stop_s
        asked: set[int] = set()
        pause_s = _FIRST_PAUSE_S
        confirmed = False
        while True:
            pids = self.read_pids()
            if not pids and (confirmed or self._group.confirm_s == 0) and self._group.remove():
                return True
            confirmed = not pids
            late_s = time.monotonic() - deadline_s
            if pids and late_s > _KILL_GRACE_S:
                return False
            if late_s > 0:
                self.was_killed = self.was_killed or bool(pids)
                self._kill(pids)
            elif self.spec.kill_mode is KillMode.MIXED:
                self._end_mixed(pids, asked)
                asked |= pids
            else:
                self._ask_to_end(pids - asked)
                asked |= pids
            await self._news.pause(max(pause_s, self._group.confirm_s))
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _end_mixed(self, pids: set[int], asked: set[int]) -> None:
        if self.main.is_over:
            self._kill(pids)
        elif self.main.pid not in asked:
            self._ask_to_end({self.main.pid})

    def _ask_to_end(self, pids: set[int]) -> None:
        """SIGTERM; and SIGCONT, since a stopped process cannot act on it."""
        for pid in pids:
            send_signal(pid, signal.SIGTERM)
            send_signal(pid, signal.SIGCONT)

    def _kill(self, pids: set[int]) -> None:
        self._group.kill_now()
        for pid in pids:
            send_signal(pid, signal.SIGKILL)

    def close(self) -> None:
        """Nothing of it runs any more: take away its socket, secrets and record."""
        self.release()
        remove_credentials(self._site.credentials(self.spec.name))
        self._site.notify_socket(self.invocation_id).unlink(missing_ok=True)
        self._site.birth(self.spec.name).unlink(missing_ok=True)

    def release(self) -> None:
        """Let go of it as it is; it runs on, and a later supervisor can adopt it."""
        self._drop_answer()
        self.main.release()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
