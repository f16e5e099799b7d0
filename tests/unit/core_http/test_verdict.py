"""What an upstream's status means for the targets after it."""

import pytest

from core.http.verdict import Ended, Verdict, classify_status

STATUSES: list[tuple[int, Verdict, Ended]] = [
    (200, Verdict.PASS, Ended.COMPLETE),
    (201, Verdict.PASS, Ended.COMPLETE),
    (204, Verdict.PASS, Ended.COMPLETE),
    (307, Verdict.PASS, Ended.COMPLETE),
    (400, Verdict.PASS, Ended.COMPLETE),
    (401, Verdict.HIDE, Ended.UNAUTHORIZED),
    (403, Verdict.PASS, Ended.COMPLETE),
    (404, Verdict.PASS, Ended.COMPLETE),
    (407, Verdict.HIDE, Ended.UNAUTHORIZED),
    (413, Verdict.PASS, Ended.COMPLETE),
    (422, Verdict.PASS, Ended.COMPLETE),
    (429, Verdict.ELSEWHERE, Ended.BUSY),
    (500, Verdict.ELSEWHERE, Ended.SERVER_ERROR),
    (501, Verdict.PASS, Ended.COMPLETE),
    (502, Verdict.ELSEWHERE, Ended.SERVER_ERROR),
    (503, Verdict.ELSEWHERE, Ended.BUSY),
    (504, Verdict.ELSEWHERE, Ended.SERVER_ERROR),
    (505, Verdict.PASS, Ended.COMPLETE),
]


@pytest.mark.parametrize(("status", "verdict", "ended"), STATUSES)
def test_a_status_means(status: int, verdict: Verdict, ended: Ended) -> None:
    assert classify_status(status) == (verdict, ended)


FOREIGN: list[tuple[int, Verdict, Ended]] = [
    (200, Verdict.PASS, Ended.COMPLETE),
    (301, Verdict.HIDE, Ended.SERVER_ERROR),
    (307, Verdict.HIDE, Ended.SERVER_ERROR),
    (400, Verdict.PASS, Ended.COMPLETE),
    (401, Verdict.HIDE, Ended.UNAUTHORIZED),
    (402, Verdict.HIDE, Ended.UNAUTHORIZED),
    (403, Verdict.HIDE, Ended.UNAUTHORIZED),
    (404, Verdict.PASS, Ended.COMPLETE),
    (407, Verdict.HIDE, Ended.UNAUTHORIZED),
    (413, Verdict.PASS, Ended.COMPLETE),
    (422, Verdict.PASS, Ended.COMPLETE),
    (429, Verdict.HIDE, Ended.BUSY),
    (500, Verdict.HIDE, Ended.SERVER_ERROR),
    (502, Verdict.HIDE, Ended.SERVER_ERROR),
    (503, Verdict.HIDE, Ended.BUSY),
    (520, Verdict.HIDE, Ended.SERVER_ERROR),
    (529, Verdict.HIDE, Ended.BUSY),
]


@pytest.mark.parametrize(("status", "verdict", "ended"), FOREIGN)
def test_a_status_of_somebody_elses_service_means(status: int, verdict: Verdict, ended: Ended) -> None:
    assert classify_status(status, is_foreign=True) == (verdict, ended)
