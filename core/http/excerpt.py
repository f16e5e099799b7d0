"""Of an answer that is being passed on: its first bytes, its last, and how many there were in all."""

SHORT_BYTES = 1024
"""So much of either end is always known, where there was so much: a stream's usage stands at one of them."""
LONG_BYTES = 8192
"""So much is kept of a read that is longer."""
MOST_READS = 16
"""That are short, before all but their last bytes are let go."""


class Excerpt:
    """See the module. Short reads may be added to `reads` by who counts them itself (`core.http.flow`)."""

    __slots__ = ("begin", "gone_bytes", "reads")

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        """The last ones."""
        self.gone_bytes = 0
        """What came before them."""
        self.begin = b""
        """The first bytes, where `reads` may not have them."""

    @property
    def end(self) -> bytes:
        """The last bytes, or all."""
        return b"".join(self.reads)

    @property
    def size_bytes(self) -> int:
        """Of all that came."""
        return self.gone_bytes + sum(map(len, self.reads))

    def keep(self, data: bytes) -> None:
        """Take note of a read."""
        if len(data) > SHORT_BYTES:
            self._keep_end_of(data)
        else:
            self.reads.append(data)
            if len(self.reads) > MOST_READS:
                self.shorten()

    def shorten(self) -> None:
        """Let go of what is not needed of short reads."""
        whole = self.end
        if self.gone_bytes == 0:
            self.begin = whole[:SHORT_BYTES]
        self._keep_only(whole[-SHORT_BYTES:], len(whole))

    def _keep_end_of(self, data: bytes) -> None:
        """Of a long read and all before it; megabytes are not joined to be cut."""
        if self.gone_bytes == 0:
            self.begin = (self.end + data[:SHORT_BYTES])[:SHORT_BYTES]
        self._keep_only(data[-LONG_BYTES:], sum(map(len, self.reads)) + len(data))

    def _keep_only(self, kept: bytes, whole_bytes: int) -> None:
        self.gone_bytes += whole_bytes - len(kept)
        self.reads[:] = [kept]
