"""The end of a request: told to everybody who listens, once, and with its time."""

import pytest

from gateway.ending import Endings, RequestRecord


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def request_ended(self, record: RequestRecord) -> None:
        self.records.append(record)


def test_every_listener_hears_of_each_end_once() -> None:
    first, second = Heard(), Heard()
    record = RequestRecord("id", "/v1/x", 1.0)
    endings = Endings(first, second)
    endings.tell(record)
    endings.tell(record)
    assert first.records == second.records == [record]
    assert record.ended_s > 0


@pytest.mark.parametrize(
    ("target", "status", "ended", "cut_short"),
    [
        ("t1", 200, "complete", False),
        ("t1", 400, "complete", False),
        ("t1", 0, "client_gone", True),
        ("t1", 200, "upstream_broken", True),
        ("t1", 200, "between_bytes_timeout", True),
        ("t1", 502, "connect_failed", False),
        ("", 0, "client_gone", False),
        ("", 429, "refused", False),
    ],
)
def test_a_request_is_cut_short_when_an_engine_worked_for_nothing(
    target: str, status: int, ended: str, cut_short: bool
) -> None:
    record = RequestRecord("id", "/v1/x", 1.0, target=target, status=status, ended=ended)
    assert record.is_cut_short is cut_short
