"""What an answer means for the job that asked, and what may be asked at all."""

import json

import pytest

from gateway.errors import ApiError
from gateway.jobs.asked import JOB_PATHS, read_job_request
from gateway.jobs.job import Job, JobError, JobState, describe_job
from gateway.jobs.outcome import Again, Answer, Done, Failed, judge


def answer(status: int, code: str = "", retry_after: str = "", body: bytes | None = None) -> Answer:
    said = json.dumps({"error": {"message": "m", "type": "t", "code": code, "model": "x"}}).encode()
    headers = [(b"retry-after", retry_after.encode())] if retry_after else []
    return Answer(status, headers, said if body is None else body)


ROWS = [
    (answer(200, body=b"{}"), Done()),
    (answer(201, body=b""), Done()),
    (answer(429, "RUNTIME_QUEUE_FULL", "2"), Again(2.0, "RUNTIME_QUEUE_FULL", True)),
    (answer(503, "model_loading", "5"), Again(5.0, "model_loading", True)),
    (answer(429, "key_limited", "30"), Again(30.0, "key_limited", False)),
    (answer(503, "system_stopped"), Again(5.0, "system_stopped", False)),
    (answer(502, "upstream_unreachable", "2"), Again(2.0, "upstream_unreachable", True)),
    (answer(429, "x", "99999999"), Again(3600.0, "x", False)),
    (answer(429, "x", "0"), Again(1.0, "x", False)),
    (answer(429, "x", "Wed, 21 Oct 2026 07:28:00 GMT"), Again(5.0, "x", False)),
    (answer(429, "x", "9" * 400), Again(5.0, "x", False)),
    (answer(429, "insufficient_quota"), Failed(JobError("insufficient_quota", "m", "t", "x", 429))),
    (answer(503, "runtime_failed"), Failed(JobError("runtime_failed", "m", "t", "x", 503))),
    (answer(502, "upstream_failed", "2"), Failed(JobError("upstream_failed", "m", "t", "x", 502))),
    (answer(401, "unauthorized"), Failed(JobError("unauthorized", "m", "t", "x", 401))),
]
NONSENSE = [b"", b"{", b"[]", b"null", b'{"error": "no"}', b'{"error": null}', b"\xff", b"[" * 100_000]


@pytest.mark.parametrize(("said", "follows"), ROWS)
def test_an_answer_ends_a_job_or_sends_it_back(said: Answer, follows: object) -> None:
    assert judge(said) == follows


@pytest.mark.parametrize("body", NONSENSE)
def test_an_engines_nonsense_is_a_failure_with_words_of_our_own(body: bytes) -> None:
    outcome = judge(answer(500, body=body))
    assert outcome == Failed(JobError("upstream_refused", "The engine answered 500.", "server_error", "", 500))


def test_the_body_is_kept_byte_for_byte() -> None:
    inside = b'{ "model":"m",  "x": 1.0000000000000000001, "model" : "n" }'
    path, body, asked = read_job_request(b'{"path": "/v1/chat/completions", "other": 1, "body": ' + inside + b"}")
    assert (path, body, asked.model) == ("/v1/chat/completions", inside, "n")


WRONG = [
    (b"", "invalid_json"),
    (b"{", "invalid_json"),
    (b"[]", "invalid_request"),
    (b"\xff", "invalid_json"),
    (b'{"path": "/v1/chat/completions", "body": ' + b"[" * 200_000, "invalid_json"),
    (b"{}", "invalid_request"),
    (b'{"path": "/v1/chat/completions"}', "invalid_request"),
    (b'{"path": 7, "body": {}}', "invalid_request"),
    (b'{"path": "/v1/jobs", "body": {"model": "m"}}', "job_path_unknown"),
    (b'{"path": "/gateway/runtimes/stop-all", "body": {"model": "m"}}', "job_path_unknown"),
    (b'{"path": "http://elsewhere/v1/chat/completions", "body": {"model": "m"}}', "job_path_unknown"),
    (b'{"path": "/v1/chat/completions?x", "body": {"model": "m"}}', "job_path_unknown"),
    (b'{"path": "/v1/chat/completions", "body": {}}', "missing_model"),
    (b'{"path": "/v1/chat/completions", "body": null}', "invalid_request"),
    (b'{"path": "/v1/chat/completions", "body": "text"}', "invalid_request"),
    (b'{"path": "/v1/chat/completions", "body": {"model": "m", "stream": true}}', "invalid_request"),
]


@pytest.mark.parametrize(("data", "code"), WRONG)
def test_what_would_be_wrong_for_ever_is_refused_at_once(data: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_job_request(data)
    assert (caught.value.http_status, caught.value.code) == (400, code)


def test_every_inference_path_can_be_asked_by_a_job() -> None:
    assert {"/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/v1/responses"} <= JOB_PATHS


@pytest.mark.parametrize("state", JobState)
def test_a_client_reads_what_its_jobs_state_allows(state: JobState) -> None:
    error = JobError("c", "m", model="x") if state is JobState.FAILED else None
    job = Job(
        seq=1, id="job_1", owner="secret", path="/p", model="m", served="m", state=state, created_s=10.9,
        finished_s=20.0 if state not in ("queued", "running") else None, error=error, worker="w",
    )  # fmt: skip
    seen = describe_job(job, ahead=3, keep_s=60)
    assert seen["ahead"] == (3 if state is JobState.QUEUED else None)
    assert seen["expires_at"] == (80 if job.is_finished else None)
    assert seen["result_url"] == ("/v1/jobs/job_1/result" if state is JobState.DONE else None)
    assert (seen["error"] is not None) is (state is JobState.FAILED)
    assert "secret" not in str(seen)
