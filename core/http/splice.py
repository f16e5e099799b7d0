"""The relay: a client's request to an upstream, the upstream's answer to the client, byte by byte.

Until a response head is passed on nothing is settled: a target that cannot be reached, is full or fails is
followed by the next one that the plan names, with the same body. After it, bytes flow from one socket to the
other: one `data_received`, one `write`. Back-pressure works by pausing the upstream; a client that leaves closes it.

The state is in one object and not in a coroutine, because a stream may last for hours and there are thousands.
"""

import asyncio
from time import monotonic

from core.http.date import date_line
from core.http.excerpt import LONG_BYTES, SHORT_BYTES, Excerpt
from core.http.framing import ResponseFraming, strip_framing
from core.http.heads import (
    Delimiter,
    foreign_fields,
    foreign_lines,
    head_to_length,
    is_event_stream,
    request_head,
    response_head,
)
from core.http.patience import LAST_CHUNK, ends_between_events, frame
from core.http.plan import Attempt, Refusal, RelayOutcome, RelayPlan
from core.http.pool import Target
from core.http.relay_client import Client
from core.http.repeat import RememberedRequest, RememberedResponse
from core.http.trim import Trimmer
from core.http.upstream import UpstreamConnection
from core.http.verdict import Ended, Verdict, classify_status, read_retry_after

_REFUSAL_BYTES = 64 << 10


class Relay:
    """One request's way through the targets."""

    __slots__ = (
        "_attempts", "_begun", "_body", "_client", "_connecting", "_connection", "_delimiter", "_events", "_excerpt",
        "_first_byte", "_first_data", "_frames", "_next", "_path", "_pending", "_plan", "_refusal",
        "_rejected", "_retried_stale", "_seen", "_status", "_target", "_transport", "_trimmer", "_was_sent",
        "_whole", "_write", "decodes",
    )  # fmt: skip

    def __init__(self, client: Client, plan: RelayPlan, path: bytes, body: bytes) -> None:
        self.decodes = client.version == "1.0"
        self._client = client
        self._plan = plan
        self._path = path
        self._body = body
        self._attempts: tuple[Attempt, ...] = ()
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._target: Target | None = None
        self._next: Target | None = None
        self._rejected: Attempt | None = None
        self._refusal: Refusal | None = None
        self._retried_stale = False
        self._status: int | None = None
        self._begun = monotonic()
        self._first_byte: float | None = None
        self._first_data: float | None = None
        self._seen = (0, 0.0)
        self._whole = b""
        """The body, where it came at once."""
        self._excerpt: Excerpt | None = None
        """Of the body, where it comes bit by bit."""
        self._pending = b""
        self._delimiter = Delimiter.LENGTH
        self._events = False
        self._frames = False
        """Whether the chunks that the client gets are made here, and not by the upstream."""
        self._transport: asyncio.Transport | None = None
        self._trimmer: Trimmer | None = None
        self._was_sent = False
        self._write = _nowhere

    def start(self) -> None:
        self._plan.begun(self)
        target = self._plan.next_target(None)
        if target is None:
            self._end(Ended.NO_TARGET)
        else:
            self._ask(target)

    def client_gone(self) -> None:
        """The client left: the upstream is closed now; the plan hears of it when it is."""
        self._write = _nowhere
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
            self._attempt_over(Ended.CLIENT_GONE, "")
            self._end(Ended.CLIENT_GONE)
        elif self._connection is not None:
            self._connection.abort(Ended.CLIENT_GONE)

    def pause(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        if self._connection is not None:
            self._connection.resume()

    def check_deadline(self, now: float) -> None:
        """Called by the pool's sweep. That bytes came is seen by their number, which costs nothing when they come."""
        size, since = self._seen
        is_answered = self._status is not None
        size_now = self.size_bytes
        if is_answered and size_now != size:
            self._seen = (size_now, now)
            return
        limit_s = self._plan.between_bytes_timeout_s if is_answered else self._plan.first_byte_timeout_s
        if limit_s is None or now - since < limit_s or self._connection is None:
            return
        if self._client.connection.is_paused:
            # It is the client who is not reading; that has a limit of its own.
            self._seen = (size, now)
            return
        self._connection.abort(Ended.BETWEEN_BYTES_TIMEOUT if is_answered else Ended.FIRST_BYTE_TIMEOUT)

    def comment(self, comment: bytes) -> None:
        """Called by the client's side when it has heard nothing for long; dropped where it would disturb."""
        if self._events and self._transport is not None and self._is_between_events():
            chunked = self._delimiter is Delimiter.CHUNKS
            self._transport.write(self._pending + frame(comment, chunked=chunked))
            self._pending = b""

    @property
    def has_head(self) -> bool:
        """Whether the head of an upstream's response was passed on."""
        return self._status is not None

    # core.http.plan.Progress

    @property
    def status(self) -> int | None:
        return self._status

    @property
    def size_bytes(self) -> int:
        return self._excerpt.size_bytes if self._excerpt is not None else len(self._whole)

    @property
    def is_held_back(self) -> bool:
        return self._client.connection.is_paused

    # towards the upstream

    def _ask(self, target: Target) -> None:
        self._target = target
        connection = target.take_idle()
        if connection is None:
            self._connecting = target.connect(self._connected)
        else:
            self._send(target, connection)

    def _connected(self, connection: UpstreamConnection | None, why: str) -> None:
        self._connecting = None
        if connection is None:
            self._try_next(Ended.CONNECT_FAILED, why)
        elif self._target is not None:
            self._send(self._target, connection)

    def _send(self, target: Target, connection: UpstreamConnection) -> None:
        client, plan, body = self._client, self._plan, self._body
        self._connection = connection
        self._was_sent = True
        if plan.edits_body:
            body = plan.request_body(target, body)
        lines, remembered = plan.request_lines(), client.remembered
        if remembered is None or lines or plan.says or not body:
            lines = client.upstream_lines(plan.says) + lines
            if target.is_foreign:
                lines = foreign_lines(lines)
            head = request_head(client.method, target.path_of(self._path), lines, fixed=target.fixed, length=len(body))
        else:
            head = self._head_again(remembered, target) + b"%d\r\n\r\n" % len(body)
        if plan.first_byte_timeout_s is not None or plan.between_bytes_timeout_s is not None:
            self._seen = (0, monotonic())
            target.pool.watch(self)
        connection.begin(self, head, body, client.method == b"HEAD")

    def _head_again(self, remembered: RememberedRequest, target: Target) -> bytes:
        """The head for a request like the one before it, up to the length's digits."""
        asked_of, path, head = remembered.asked
        if asked_of is not target or path != self._path:
            client = self._client
            lines = client.upstream_lines(self._plan.says)
            lines = foreign_lines(lines) if target.is_foreign else lines
            head = head_to_length(client.method, target.path_of(self._path), lines, fixed=target.fixed)
            remembered.asked = (target, self._path, head)
        return head

    def _try_next(self, ended: Ended, detail: str) -> None:
        attempt = self._attempt_over(ended, detail)
        following = self._plan.next_target(attempt)
        if following is None:
            self._end(ended)
        else:
            self._ask(following)

    # core.http.upstream.Sink

    def head(self, connection: UpstreamConnection, framing: ResponseFraming) -> bool:
        target, status = self._target, framing.status
        if target is None:
            return False
        self._excerpt = Excerpt()
        if status >= 400 or (target.is_foreign and status >= 300):
            verdict, ended = classify_status(status, is_foreign=target.is_foreign)
            if verdict is not Verdict.PASS:
                attempt = Attempt(target, ended, status, retry_after_s=read_retry_after(framing.headers))
                self._next = self._plan.next_target(attempt)
                if self._next is not None or verdict is Verdict.HIDE:
                    self._rejected = attempt
                    return False
            if self._plan.reads_refusals or self._client.has_begun:
                self._refusal = Refusal(status, framing.headers, b"")
                self._write = self._collect
                return True
        elif self._client.has_begun and not is_event_stream(framing.headers):
            # The client is reading events: this answer cannot be told any more.
            self._rejected = Attempt(target, Ended.MALFORMED, status)
            self._next = self._plan.next_target(self._rejected)
            return False
        self._pass_on(framing, target)
        return True

    def whole(self, remembered: RememberedResponse, digits: bytes, body: bytes) -> None:
        client, target = self._client, self._target
        connection = client.connection
        transport = connection.transport
        if transport is None or target is None or client.has_begun:
            return
        self._status = remembered.status
        self._first_byte = self._first_data = monotonic() - self._begun
        end = b"\r\n"
        if connection.is_draining or not client.keep_alive:
            client.keep_alive = False
            end = b"connection: close\r\n\r\n"
        added = self._plan.response_headers(target)
        self._whole, self._excerpt = body, None
        transport.write(
            b"".join((remembered.before, digits, remembered.after, date_line(), client.added, added, end, body))
        )
        client.relay_settled(None)

    def data(self, data: bytes) -> None:
        # Noted first: whoever writes may leave the rest to `core.http.flow`.
        if self._excerpt is not None:
            self._excerpt.keep(data)
        self._write(data)

    def complete(self) -> None:
        self._connection = None
        target, refusal = self._target, self._refusal
        if target is not None:
            self._note(Attempt(target, Ended.COMPLETE, self._status if refusal is None else refusal.status))
        self._end(Ended.COMPLETE)

    def failed(self, ended: Ended, detail: str, reused: bool) -> None:
        self._connection = None
        if ended is Ended.CLIENT_GONE:
            self._attempt_over(ended, detail)
            self._end(ended)
        elif self._status is not None:
            self._attempt_over(ended, detail)
            self._break(ended)
        elif self._refusal is not None:
            self._refusal = None
            self._write = _nowhere
            self._excerpt = None
            self._try_next(ended, detail)
        elif self._rejected is not None:
            self._go_elsewhere(self._rejected)
        elif reused and not self._retried_stale and self._target is not None:
            # The upstream closed its idle connection while our request was on its way. Not a failure of the
            # target: ask it again, and not over another connection that may be as old.
            self._retried_stale = True
            self._connecting = self._target.connect(self._connected)
        else:
            self._try_next(ended, detail)

    def _go_elsewhere(self, rejected: Attempt) -> None:
        following, self._next, self._rejected = self._next, None, None
        self._note(rejected)
        if following is None:
            self._end(rejected.ended)
        else:
            self._ask(following)

    # towards the client

    def _pass_on(self, framing: ResponseFraming, target: Target) -> None:
        client = self._client
        transport = client.connection.transport
        if transport is None:
            return
        self._status = framing.status
        now = monotonic()
        self._first_byte = now - self._begun
        if self._seen[1]:
            self._seen = (0, now)
        self._transport = transport
        if client.has_begun:
            self._join(framing)
        else:
            self._head_on(framing, target)
        if self._delimiter is not Delimiter.LENGTH and self._plan.edits_body:
            self._trim(framing, target)
        self._body = b""
        self._write = self._write_first
        if client.connection.is_paused:
            self.pause()
        client.relay_settled(None)

    def _head_on(self, framing: ResponseFraming, target: Target) -> None:
        """The head as the upstream gave it, to go out with the body's first bytes."""
        client = self._client
        closes = not client.keep_alive or client.connection.is_draining
        added = date_line() + client.added + self._plan.response_headers(target)
        headers = foreign_fields(framing.headers) if target.is_foreign else framing.headers
        self._pending, self._delimiter = response_head(
            framing.status, headers, added=added, decoded=self.decodes,
            bodiless=framing.complete, close=closes,
        )  # fmt: skip
        if closes or self._delimiter is Delimiter.CLOSE:
            client.keep_alive = False
        self._events = bool(self._plan.error_event) and is_event_stream(framing.headers)

    def _join(self, framing: ResponseFraming) -> None:
        """Pass the upstream's events on in a stream that has begun without it."""
        is_chunked = any(name == b"transfer-encoding" for name, _ in framing.headers)
        self._delimiter = Delimiter.CLOSE if self.decodes else Delimiter.CHUNKS
        self._frames = not self.decodes and not is_chunked
        self._events = True

    def _write_first(self, data: bytes) -> None:
        # Joined: the event loop makes one system call, and often one packet, for each write.
        pending, transport = self._pending, self._transport
        if transport is not None:
            self._pending = b""
            if data:
                self._first_data = self._first_byte
                self._flow_on(transport)
            else:
                self._write = self._write_second
            trimmer = self._trimmer
            data = data if trimmer is None else trimmer.feed(data)
            transport.write(pending + (data if not data or not self._frames else frame(data, chunked=True)))

    def _write_second(self, data: bytes) -> None:
        """The first bytes of a body whose head came alone."""
        if self._transport is not None:
            self._first_data = monotonic() - self._begun
            self._flow_on(self._transport)
            self._write_edited(data)

    def _flow_on(self, transport: asyncio.Transport) -> None:
        """Nothing of the rest is looked at: it goes the shortest way."""
        if self._trimmer is not None or self._frames:
            self._write = self._write_edited
            return
        self._write = transport.write
        if self._connection is not None and self._excerpt is not None and not self.decodes:
            self._connection.flow(transport.write, self._excerpt)

    def _write_edited(self, data: bytes) -> None:
        if self._trimmer is not None:
            data = self._trimmer.feed(data)
        if data and self._transport is not None:
            self._transport.write(frame(data, chunked=self._frames))

    def _trim(self, framing: ResponseFraming, target: Target) -> None:
        """Have events left out of this answer, if the plan wants it and it has any."""
        unwanted = self._plan.unwanted(target) if framing.status < 400 and is_event_stream(framing.headers) else None
        if unwanted is not None:
            self._trimmer = Trimmer(unwanted, is_chunked=self._delimiter is Delimiter.CHUNKS and not self._frames)

    def _collect(self, data: bytes) -> None:
        """Of a refusal's body; it is short, or not worth more."""
        refusal = self._refusal
        if refusal is not None and len(refusal.body) < _REFUSAL_BYTES:
            self._refusal = Refusal(refusal.status, refusal.headers, refusal.body + data)

    def _break(self, ended: Ended) -> None:
        """The upstream broke after its head: the client must see that the answer is not whole."""
        transport = self._transport
        is_told = self._events and self._delimiter is Delimiter.CHUNKS and self._is_between_events()
        if is_told and transport is not None:
            pending, self._pending = self._pending, b""
            transport.write(pending + frame(self._plan.error_event, chunked=True))
        self._end(ended, clean=False)

    def _is_between_events(self) -> bool:
        if self._trimmer is not None and self._trimmer.is_edited:
            return True
        chunked = self._delimiter is Delimiter.CHUNKS and not self._frames
        excerpt = self._excerpt if self._excerpt is not None else Excerpt()
        return ends_between_events(excerpt.end, chunked=chunked, is_cut=excerpt.gone_bytes > 0)

    def _attempt_over(self, ended: Ended, detail: str) -> Attempt:
        if self._target is None:
            raise RuntimeError("an attempt without a target")
        attempt = Attempt(self._target, ended, self._status, detail)
        self._note(attempt)
        return attempt

    def _note(self, attempt: Attempt) -> None:
        """An attempt is over."""
        if self._seen[1]:
            attempt.target.pool.unwatch(self)
        self._attempts += (attempt,)
        self._plan.attempt_ended(attempt)

    def _end(self, ended: Ended, *, clean: bool = True) -> None:
        if self._pending and ended is not Ended.CLIENT_GONE:
            self._write_first(b"")
        if self._transport is not None and ended is Ended.COMPLETE:
            rest = self._trimmer.finish() if self._trimmer is not None else b""
            if rest or self._frames:
                self._transport.write(frame(rest, chunked=self._frames and bool(rest)))
            if self._frames:
                self._transport.write(LAST_CHUNK)
        outcome = self._outcome(ended)
        self._write = _nowhere
        self._transport = None
        if self._status is not None:
            # Without chunks or a length only a reset tells the client that the answer is not whole.
            self._client.finish(clean=clean, reset=not clean and self._delimiter is Delimiter.CLOSE)
            self._plan.ended(outcome)
        else:
            self._plan.ended(outcome)
            self._client.relay_settled(None if ended is Ended.CLIENT_GONE else outcome)

    def _outcome(self, ended: Ended) -> RelayOutcome:
        excerpt = self._excerpt
        if excerpt is None:
            size, begin, end = len(self._whole), b"", self._whole
            if size > LONG_BYTES:
                begin, end = end[:SHORT_BYTES], end[-LONG_BYTES:]
        else:
            size, begin, end = excerpt.size_bytes, excerpt.begin, excerpt.end
        return RelayOutcome(
            ended,
            self._status,
            size,
            self._first_byte,
            monotonic() - self._begun,
            end,
            self._target,
            self._attempts,
            self._told_refusal() if self._refusal is not None else None,
            begin,
            self._was_sent,
            self._first_data,
        )

    def _told_refusal(self) -> Refusal | None:
        refusal = self._refusal
        if refusal is None or self.decodes:
            return refusal
        return Refusal(refusal.status, refusal.headers, strip_framing(refusal.headers, refusal.body))


def _nowhere(data: bytes) -> None:
    """The client left; what still arrives is dropped."""
