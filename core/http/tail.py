"""The end of an answer that is being passed on: its last bytes, and how many there were in all."""

SHORT_BYTES = 1024
"""So much of an answer is always known, where there was so much: a stream's usage stands in it."""
LONG_BYTES = 8192
"""So much is kept of a read that is longer."""
MOST_BYTES = 4096
"""Of short reads, before all but the last are let go."""


class Tail:
    """See the module. `recent` may be added to by who sees to the rest itself (`core.http.flow`)."""

    __slots__ = ("gone_bytes", "recent")

    def __init__(self) -> None:
        self.recent = bytearray()
        self.gone_bytes = 0
        """What came before `recent`."""

    def keep(self, data: bytes) -> None:
        """Take note of a read."""
        if len(data) > SHORT_BYTES:
            self.keep_end_of(data)
        else:
            self.recent += data
            if len(self.recent) > MOST_BYTES:
                self.cut()

    def keep_end_of(self, data: bytes) -> None:
        """The same of a long one."""
        kept = data[-LONG_BYTES:]
        self.gone_bytes += len(self.recent) + len(data) - len(kept)
        self.recent[:] = kept

    def cut(self) -> None:
        """Let go of what is not needed."""
        surplus = len(self.recent) - SHORT_BYTES
        self.gone_bytes += surplus
        del self.recent[:surplus]

    def size_bytes(self) -> int:
        """Of all that came."""
        return self.gone_bytes + len(self.recent)
