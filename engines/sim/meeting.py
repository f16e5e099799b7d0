"""Where the simulated engine's processes meet when they serve one model together: rank 0 waits, the others come.

It stands in for what torch's store does for vLLM and SGLang: the head binds the rendezvous port and serves only once
every rank has joined; a rank that leaves ends all the others, since none of them can compute without it. Like torch's
store it believes whoever reaches the port, so the port belongs on the group's own fabric.

One JSON object in a line each way: `{"rank": 1, "size": 4}` from a worker, then, as soon as all are here,
`{"refused": ""}` from the head; or at once the reason for which it may not join. After that nothing is said, and the
end of a connection is the end of the group.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from core.errors import TimedOutError, UnavailableError
from core.tasks import Backoff
from engines.sim.settings import Meeting

_HELLO_S = 5.0
_LINE_MAX_BYTES = 4096
_STRANGERS_MAX = 64
"""Connections that have not said who they are; more are closed at once."""


class RanksMissing(TimedOutError):
    """Not everybody came to the rendezvous in time."""

    code = "sim_ranks_missing"


class RankRefused(UnavailableError):
    """The head does not want this rank."""

    code = "sim_rank_refused"


class RankTaken(RankRefused):
    """Another process has this rank; perhaps one that just died, so it is worth another try."""


class RankLeft(UnavailableError):
    """A member of the group is gone, so the rest cannot go on."""

    code = "sim_rank_left"


class Hello(msgspec.Struct, frozen=True):
    """What a worker says."""

    rank: int
    size: int


class Welcome(msgspec.Struct, frozen=True):
    """What the head answers."""

    refused: str = ""
    taken: bool = False


Message = TypeVar("Message", Hello, Welcome)


@dataclass(slots=True)
class Member:
    """A peer that this process is connected to."""

    name: str
    writer: asyncio.StreamWriter
    gone: asyncio.Task[None]
    """Done when it is gone."""


@dataclass(slots=True)
class Group:
    """All ranks of the model, from when the last one has joined."""

    members: list[Member]

    async def wait_broken(self) -> None:
        """Never returns. Raises: RankLeft as soon as a peer is gone."""
        if not self.members:
            await asyncio.Event().wait()
        await asyncio.wait([member.gone for member in self.members], return_when=asyncio.FIRST_COMPLETED)
        raise RankLeft(f"{', '.join(one.name for one in self.members if one.gone.done())} left the group")

    def close(self) -> None:
        """Leave; the others hear of it at once."""
        for member in self.members:
            member.gone.cancel()
            member.writer.close()


async def meet(meeting: Meeting) -> Group:
    """Wait for the others, whichever rank this is.

    Raises: RanksMissing, RankRefused; OSError when the head cannot listen where it should.
    """
    if meeting.join_delay_s:
        await asyncio.sleep(meeting.join_delay_s)
    return await (_Head(meeting).gather() if meeting.rank == 0 else _join(meeting))


class _Head:
    """Rank 0, until all are here."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._here: dict[int, Member] = {}
        self._complete = asyncio.Event()
        self._strangers = 0

    async def gather(self) -> Group:
        """Raises: RanksMissing, OSError."""
        meeting = self._meeting
        if meeting.size == 1:
            return Group([])
        server = await asyncio.start_server(self._meet_one, meeting.address, meeting.port, limit=_LINE_MAX_BYTES)
        try:
            async with asyncio.timeout(meeting.timeout_s):
                await self._complete.wait()
        except TimeoutError:
            raise RanksMissing(self._who_is_missing()) from None
        finally:
            server.close()
        members = [member for _, member in sorted(self._here.items())]
        for member in members:
            _say(member.writer, Welcome())
        return Group(members)

    def _who_is_missing(self) -> str:
        meeting = self._meeting
        missing = [rank for rank in range(1, meeting.size) if rank not in self._here]
        return (
            f"{_ranks(missing)} of {meeting.size} did not come to {meeting.address} port {meeting.port}"
            f" within {meeting.timeout_s:g} s; here: {_ranks([0, *sorted(self._here)])}"
        )

    async def _meet_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection until it has said who it is."""
        if self._strangers >= _STRANGERS_MAX:
            writer.close()
            return
        self._strangers += 1
        try:
            hello = await _read(reader, Hello, _HELLO_S)
        finally:
            self._strangers -= 1
        refusal = self._refuse(hello)
        if hello is None or refusal is not None:
            _say(writer, refusal or Welcome())
            writer.close()
            return
        _keep_alive(writer)
        member = Member(f"rank {hello.rank}", writer, asyncio.create_task(_wait_gone(reader)))
        self._here[hello.rank] = member
        member.gone.add_done_callback(lambda _: self._forget(hello.rank, member))
        if len(self._here) == self._meeting.size - 1:
            self._complete.set()

    def _forget(self, rank: int, member: Member) -> None:
        """It died while the others were still on their way: its place is free again."""
        if not self._complete.is_set():
            self._here.pop(rank, None)
            member.writer.close()

    def _refuse(self, hello: Hello | None) -> Welcome | None:
        size = self._meeting.size
        if hello is None:
            return Welcome("that is no hello")
        if hello.size != size:
            return Welcome(f"this group has {size} ranks, not {hello.size}")
        if not 0 < hello.rank < size:
            return Welcome(f"rank {hello.rank} is not one of 1 to {size - 1}")
        if self._complete.is_set() or hello.rank in self._here:
            return Welcome(f"rank {hello.rank} has joined already", taken=True)
        return None


async def _join(meeting: Meeting) -> Group:
    """A worker's way to the head; it may be there before the head is. Raises: RanksMissing, RankRefused."""
    backoff, last = Backoff(0.05, 1.0), "nobody listens there"
    deadline_s = asyncio.get_running_loop().time() + meeting.timeout_s
    try:
        while True:
            try:
                return await _join_once(meeting, deadline_s)
            except RankTaken as refusal:
                last = refusal.message
            except OSError as error:  # our own deadline, too, which the next line meets again
                last = error.strerror or str(error) or last
            async with asyncio.timeout_at(deadline_s):
                await asyncio.sleep(backoff.next_s())
    except TimeoutError:
        raise RanksMissing(
            f"rank {meeting.rank} could not join at {meeting.address} port {meeting.port}"
            f" within {meeting.timeout_s:g} s: {last}"
        ) from None


async def _join_once(meeting: Meeting, deadline_s: float) -> Group:
    """Who has reached the head waits for its word, however long: a worker that gave up a moment before the head would
    be missing in the head's account of who is here.

    Raises: OSError when the head is not there, is not reached in time, or goes before all are; RankTaken, RankRefused.
    """
    local = (meeting.own_address, 0) if meeting.own_address else None
    async with asyncio.timeout_at(deadline_s):
        reader, writer = await asyncio.open_connection(
            meeting.address, meeting.port, local_addr=local, limit=_LINE_MAX_BYTES
        )
    try:
        _keep_alive(writer)
        _say(writer, Hello(meeting.rank, meeting.size))
        welcome = await _read(reader, Welcome, None)
        if welcome is None:
            raise ConnectionResetError("the head left before all ranks were here")
        if welcome.refused:
            raise (RankTaken if welcome.taken else RankRefused)(welcome.refused)
    except BaseException:
        writer.close()
        raise
    return Group([Member("rank 0", writer, asyncio.create_task(_wait_gone(reader)))])


def _say(writer: asyncio.StreamWriter, message: Hello | Welcome) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")


async def _read(reader: asyncio.StreamReader, kind: type[Message], timeout_s: float | None) -> Message | None:
    """One message; None for whatever is none, or does not come in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return msgspec.json.decode(await reader.readline(), type=kind)
    except (TimeoutError, OSError, ValueError):
        return None


async def _wait_gone(reader: asyncio.StreamReader) -> None:
    """Until the peer is gone. What it says meanwhile is thrown away."""
    with contextlib.suppress(OSError):
        while await reader.read(_LINE_MAX_BYTES):
            pass


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """A peer whose cable was pulled says no goodbye: ask after it when it is silent for 5 s, and 3 times more."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks))}"
