"""Composition of the supervisor: adopt, open the control socket, run until told to end."""

import asyncio
import contextlib
import os
import signal

from core.notify import Notifier
from core.tasks import supervise
from units.embedded.logs import LogTrimmer
from units.embedded.protocol import CONTROL_SOCKET
from units.embedded.server import ControlServer
from units.embedded.site import Site
from units.embedded.supervisor import Supervisor

_REAP_AGAIN_S = 0.05


async def serve(site: Site, notifier: Notifier) -> None:
    """Run until SIGTERM, SIGINT (services go on) or a carried-out `shutdown`."""
    supervisor = Supervisor(site)
    server = ControlServer(supervisor, site.state / CONTROL_SOCKET, site.log)
    trimmer = LogTrimmer(site.logs)
    _end_on_signals(server.is_finished)
    _reap_orphans_on_signal(supervisor)
    supervisor.adopt()
    running = asyncio.create_task(supervisor.run())
    trimming = asyncio.create_task(supervise("logs", trimmer.run, site.log))
    listener = await server.open()
    method = "cgroup" if site.cgroups is not None else "mark"
    site.log.info("supervisor_ready", pid=os.getpid(), units=len(supervisor.read_statuses()), processes_by=method)
    notifier.ready()
    ended = asyncio.create_task(server.is_finished.wait())
    try:
        await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        listener.close()
        for task in (running, trimming, ended):
            task.cancel()
        await asyncio.gather(running, trimming, ended, return_exceptions=True)
        _leave_no_trace(site)
        site.log.info("supervisor_ended")


def _leave_no_trace(site: Site) -> None:
    """Take away the cgroup below which all units were, unless services that go on running are in there."""
    if site.cgroups is not None:
        with contextlib.suppress(OSError):  # not empty: that is the answer
            site.cgroups.rmdir()


def _end_on_signals(end: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes is no order
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)


def _reap_orphans_on_signal(supervisor: Supervisor) -> None:
    """A subreaper's duty: what services leave behind becomes our child, and a zombie when it ends."""

    loop = asyncio.get_running_loop()

    def reap() -> None:
        mains = supervisor.read_main_pids()
        try:
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid in mains:
                    loop.call_later(_REAP_AGAIN_S, reap)  # its pidfd tells its unit; others may stand behind it
                    return
                os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            return

    loop.add_signal_handler(signal.SIGCHLD, reap)
