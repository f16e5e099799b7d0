"""One generation of the simulated engine: what was asked, how it is to go, and its bytes whole or in pieces."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from engines.sim import dialect
from engines.sim.dialect import Json, Length, Request, Writer
from engines.sim.engine import SimEngine
from engines.sim.settings import Behaviour


@dataclass(frozen=True, slots=True)
class Answer:
    """See the module."""

    engine: SimEngine
    request: Request
    behaviour: Behaviour
    prompt_tokens: int
    length: Length
    writer: Writer

    @property
    def counted(self) -> Json | None:
        if self.behaviour.fault == "no-usage":
            return None
        return dialect.usage(self.prompt_tokens, self.length.tokens)

    async def whole(self) -> bytes:
        """The buffered answer. Raises: QueueFull, InjectedFault."""
        async with self.engine.request(self.prompt_tokens):
            async for _ in self.engine.tokens(self.behaviour, self.length.tokens):
                pass
        if self.behaviour.fault == "garbage":
            return dialect.GARBAGE
        return self.writer.whole(self.counted)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The streamed answer's events. Raises: QueueFull (before the first), InjectedFault."""
        async with self.engine.request(self.prompt_tokens):
            opening = self.writer.opening()
            async for number in self.engine.tokens(self.behaviour, self.length.tokens):
                if opening:
                    yield opening
                    opening = b""
                if self.behaviour.fault == "garbage" and number == self.behaviour.after_tokens:
                    yield dialect.GARBAGE
                yield self.writer.token(number)
            yield opening + self.writer.closing()
            options, counted = self.request.stream_options, self.counted
            if options is not None and options.include_usage and counted is not None:
                yield self.writer.usage_chunk(counted)
            yield dialect.DONE
