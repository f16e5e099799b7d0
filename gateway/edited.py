"""Answers that pass through Python, because something in them is said in other words, or the server has no relay.

The slow way round: the engine's answer is read here and sent on by Falcon. It keeps every rule of the fast one:
targets in order before the first byte, the same headers dropped, the engine's request closed when the client leaves,
a broken stream that ends with an error event and uncleanly. What is said in which words is an `Edit`'s affair.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Protocol

from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.asgi import ClientDisconnectedError, Headers
from core.http.exchange import ExchangeError, exchange
from core.http.heads import downstream_fields, foreign_fields, is_event_stream
from core.http.plan import Attempt, RelayOutcome
from core.http.pool import Target
from core.http.verdict import Ended, Verdict, classify_status, read_retry_after
from gateway.relay import InferencePlan, explain_failure
from gateway.translate.failures import BadAnswer, EngineError

_LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is edited as a whole."""
_BEGIN_BYTES = 1024
_TAIL_BYTES = 8192


class StreamEdit(Protocol):
    """One stream. Raises: BadAnswer, EngineError."""

    def feed(self, data: bytes) -> bytes:
        """What can be sent on now."""

    def finish(self) -> bytes:
        """What is left at the end of the engine's stream."""


class Edit(Protocol):
    """One request's two languages. Pure."""

    media_type: str
    """Of every whole answer; empty: what the engine says."""

    def request(self, target: RouteTarget) -> tuple[bytes, bytes]:
        """Path and body for this target."""

    def whole(self, target: RouteTarget, status: int, body: bytes) -> bytes:
        """Its answer, or its refusal. Raises: BadAnswer."""

    def stream(self, target: RouteTarget) -> StreamEdit: ...

    def error_event(self, error: Exception) -> bytes:
        """How a stream ends that broke."""


class BrokenOff(ClientDisconnectedError):
    """The rest of this answer will never come: the server closes the connection, and it is no error of ours."""


class EventStream:
    """An async generator as Falcon wants a stream: iterated, then closed, whatever happened."""

    def __init__(self, events: AsyncGenerator[bytes, None], release: Callable[[], Awaitable[None]]) -> None:
        self._events = events
        self._release = release

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    async def __anext__(self) -> bytes:
        return await anext(self._events)

    async def close(self) -> None:
        await self._events.aclose()
        # A generator that was never begun has no `finally` to run.
        await self._release()


class _AsItIs:
    """Sound or a picture: there is no name in it, and it need not be known to its end before it is passed on."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class EditedAnswer:
    """One request answered this way."""

    def __init__(self, plan: InferencePlan, edit: Edit) -> None:
        self._plan = plan
        self._edit = edit
        self._attempts: list[Attempt] = []
        self._status: int | None = None
        self._is_over = False
        self._size = 0
        self._begin = b""
        self._tail = b""
        self._is_held_back = False
        self._begun_s = monotonic()
        self._first_byte_s: float | None = None
        self._first_data_s: float | None = None

    @property
    def status(self) -> int | None:
        return self._status

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def is_held_back(self) -> bool:
        return self._is_held_back

    async def respond(self, req: Request, resp: Response) -> RelayOutcome | None:
        """Find a target that answers, and write the response; an outcome says why none does. Raises: ApiError."""
        self._plan.begun(self)
        says = self._plan.says
        opened = await self._open([field for field in req.scope["headers"] if field[0] not in says])
        if isinstance(opened, RelayOutcome):
            return opened
        answer, target, route = opened
        self._status = answer.status
        self._first_byte_s = monotonic() - self._begun_s
        resp.status = answer.status
        for name, value in self._fields(answer.headers, target):
            resp.set_header(name, value)
        edit = self._stream_edit(answer, route)
        if edit is not None:
            resp.stream = EventStream(
                self._pass_on(answer, target, edit), lambda: self._let_go(answer, target, Ended.CLIENT_GONE)
            )
        else:
            resp.content_type = self._edit.media_type or resp.content_type
            resp.data = await self._read_whole(answer, target, route)
        return None

    def _stream_edit(self, answer: exchange, route: RouteTarget) -> StreamEdit | None:
        """How the answer is passed on while it comes; None: it is edited as a whole."""
        if answer.status >= 400:
            return None
        if is_event_stream(answer.headers):
            return self._edit.stream(route)
        return None if self._edit.media_type or _is_json(answer.headers) else _AsItIs()

    def _fields(self, headers: Headers, target: Target) -> list[tuple[str, str]]:
        kept = foreign_fields(headers) if target.is_foreign else headers
        fields = [field for field in downstream_fields(kept) if field[0] != b"content-length"]
        for line in self._plan.response_headers(target).split(b"\r\n")[:-1]:
            name, _, value = line.partition(b": ")
            fields.append((name, value))
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]

    async def _open(self, headers: Headers) -> tuple[exchange, Target, RouteTarget] | RelayOutcome:
        target = self._plan.next_target(None)
        while target is not None:
            route = self._plan.current
            try:
                answer = self._ask(target, route, headers)
                await answer.__aenter__()
            except ExchangeError as error:
                target = self._plan.next_target(self._over(target, error.ended, detail=error.detail))
                continue
            except asyncio.CancelledError:
                self._finish(target, Ended.CLIENT_GONE)
                raise
            except BaseException:
                # The rest of the request was refused while the engine had begun to hear it, or it could not be made:
                # the slot that it has is given back in any case.
                self._finish(target, Ended.CLOSED_EARLY)
                raise
            following, passes = self._judge(target, answer)
            if passes:
                return answer, target, route
            await answer.__aexit__(None, None, None)
            target = following
        outcome = self._outcome(self._attempts[-1].ended if self._attempts else Ended.NO_TARGET)
        self._plan.ended(outcome)
        return outcome

    def _ask(self, target: Target, route: RouteTarget, headers: Headers) -> exchange:
        path, body = self._edit.request(route)
        return exchange(
            target, method=b"POST", path=path, headers=headers, body=body, added=self._plan.request_lines(),
            first_byte_timeout_s=self._plan.first_byte_timeout_s,
            between_bytes_timeout_s=self._plan.between_bytes_timeout_s,
        )  # fmt: skip

    def _judge(self, target: Target, answer: exchange) -> tuple[Target | None, bool]:
        """The next target, and whether this one's answer is the client's."""
        status = answer.status
        verdict, ended = classify_status(status, is_foreign=target.is_foreign)
        if verdict is Verdict.PASS:
            return None, True
        attempt = Attempt(target, ended, status, retry_after_s=read_retry_after(answer.headers))
        following = self._plan.next_target(attempt)
        if following is None and verdict is not Verdict.HIDE:
            return None, True
        self._note_attempt(attempt)
        return following, False

    async def _read_whole(self, answer: exchange, target: Target, route: RouteTarget) -> bytes:
        ended = Ended.CLIENT_GONE
        try:
            body = await answer.read(_LARGEST_ANSWER)
            self._note(body)
            edited = self._edit.whole(route, answer.status, body)
            ended = Ended.COMPLETE
            return edited
        except (ExchangeError, BadAnswer) as error:
            ended = error.ended if isinstance(error, ExchangeError) else Ended.MALFORMED
            self._status = None
            raise explain_failure(self._outcome(ended), self._plan.record.model) from None
        finally:
            await self._let_go(answer, target, ended)

    async def _pass_on(self, answer: exchange, target: Target, stream: StreamEdit) -> AsyncGenerator[bytes, None]:
        ended = Ended.CLIENT_GONE
        try:
            async for data in answer:
                self._first_data_s = self._first_data_s or monotonic() - self._begun_s
                self._note(data)
                ready = stream.feed(data)
                if ready:
                    self._is_held_back = True
                    yield ready
                    self._is_held_back = False
            rest = stream.finish()
            if rest:
                yield rest
            ended = Ended.COMPLETE
        except (ExchangeError, BadAnswer, EngineError) as error:
            ended = error.ended if isinstance(error, ExchangeError) else Ended.UPSTREAM_BROKEN
            if not isinstance(stream, _AsItIs):
                yield self._edit.error_event(error)
            raise BrokenOff("the engine ended before its answer's end") from error
        finally:
            await self._let_go(answer, target, ended)

    def _note(self, data: bytes) -> None:
        """Remember of the engine's bytes what accounting needs."""
        self._size += len(data)
        self._begin += data[: _BEGIN_BYTES - len(self._begin)]
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    async def _let_go(self, answer: exchange, target: Target, ended: Ended) -> None:
        """Close what is still open of the engine's answer, and account for the request: once."""
        if not self._is_over:
            self._is_over = True
            await answer.__aexit__(None, None, None)
            self._finish(target, ended)

    def _over(self, target: Target, ended: Ended, status: int | None = None, detail: str = "") -> Attempt:
        attempt = Attempt(target, ended, status, detail)
        self._note_attempt(attempt)
        return attempt

    def _note_attempt(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)
        self._plan.attempt_ended(attempt)

    def _finish(self, target: Target, ended: Ended) -> None:
        self._over(target, ended, self._status)
        self._plan.ended(self._outcome(ended))

    def _outcome(self, ended: Ended) -> RelayOutcome:
        return RelayOutcome(
            ended=ended,
            status=self._status,
            size_bytes=self._size,
            first_byte_s=self._first_byte_s,
            total_s=monotonic() - self._begun_s,
            tail=self._tail,
            target=self._attempts[-1].target if self._attempts else None,
            attempts=tuple(self._attempts),
            begin=self._begin,
            first_data_s=self._first_data_s,
        )


def _is_json(headers: Headers) -> bool:
    """Whether there may be a name in the answer; one that says nothing of its type is taken for JSON."""
    kind = next((value for name, value in headers if name == b"content-type"), b"application/json")
    return b"json" in kind.lower()
