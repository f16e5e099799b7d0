"""Which targets owe a stream and send nothing."""

import pytest

from gateway.silence import SILENT_S, Silence
from tests.unit.gateway.test_activity import Desk, Stream


class Listener:
    """A desk whose loads are listened to."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.silence = Silence()

    def hear(self, after_s: float = 0.0) -> list[str]:
        """Runtimes that are silent."""
        self.desk.clock.now_s += after_s
        return [load.runtime_id for load in self.silence.find(self.desk.loads, self.desk.clock.now_s)]


def test_a_target_that_owes_a_stream_and_sends_nothing_is_silent_after_a_while() -> None:
    listener = Listener()
    listener.desk.begin(Stream())
    assert listener.hear() == []
    assert listener.hear(SILENT_S - 0.1) == []
    assert listener.hear(0.2) == ["r"]


def test_a_byte_of_any_request_ends_the_silence() -> None:
    listener = Listener()
    listener.desk.begin(Stream())
    other = listener.desk.begin(Stream())
    listener.hear()
    assert listener.hear(SILENT_S) == ["r"]
    other.size_bytes += 1
    assert listener.hear() == []
    assert listener.hear(SILENT_S) == ["r"]
    listener.desk.end(other)
    assert listener.hear(SILENT_S) == ["r"]


@pytest.mark.parametrize("stream", [Stream(is_streamed=False), Stream(is_held_back=True)], ids=["whole", "held back"])
def test_a_request_that_may_be_without_bytes_says_nothing(stream: Stream) -> None:
    listener = Listener()
    listener.desk.begin(stream)
    listener.hear()
    assert listener.hear(10 * SILENT_S) == []


def test_silence_counts_from_when_there_was_something_to_say() -> None:
    listener = Listener()
    request = listener.desk.begin(Stream())
    listener.hear()
    listener.hear(SILENT_S / 2)
    listener.desk.end(request)
    listener.hear()
    listener.desk.begin(Stream())
    assert listener.hear(SILENT_S * 0.6) == []
    assert listener.hear(SILENT_S) == ["r"]
