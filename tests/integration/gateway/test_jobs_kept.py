"""The jobs' file: whole or not at all, for many processes, within its bounds, and replaced when it is none."""

import multiprocessing
import sqlite3
import stat
from pathlib import Path

import pytest

from core.errors import LlmgwError, NotFoundError
from gateway.jobs.crew import Crew
from gateway.jobs.database import JobDatabase
from gateway.jobs.job import Job, JobError, JobState, Stage
from gateway.jobs.limits import JobLimits

LIMITS = JobLimits(keep_s=100.0, wait_s=1000.0, per_key=3, store_bytes=1000)


def new(number: int, *, owner: str = "", served: str = "m", created_s: float = 0.0, size: int = 10) -> Job:
    return Job(
        seq=0, id=f"job_{number}", owner=owner, path="/v1/chat/completions", model=served, served=served,
        state=JobState.QUEUED, created_s=created_s, request_bytes=size,
    )  # fmt: skip


def add(
    db: JobDatabase, number: int, *, owner: str = "", served: str = "m", created_s: float = 0.0, size: int = 10
) -> Job:
    job = new(number, owner=owner, served=served, created_s=created_s, size=size)
    return db.add(job, b"x" * size, LIMITS)


def done(db: JobDatabase, worker: str, size: int, now_s: float) -> Job:
    job = db.claim(worker, {"m": 100}, now_s)
    assert job is not None
    db.finish(job, b"r" * size, status=200, content_type="application/json", now_s=now_s, limits=LIMITS)
    return job


@pytest.fixture
def db(tmp_path: Path) -> JobDatabase:
    return JobDatabase(tmp_path / "jobs" / "jobs.db")


def test_a_models_jobs_begin_in_their_order_and_no_more_at_once_than_it_has_slots(db: JobDatabase) -> None:
    for number, served in enumerate(["m", "m", "m", "n"]):
        add(db, number, owner=str(number), served=served)
    claimed = [db.claim("w", {"m": 2, "n": 1}, 1.0) for _ in range(5)]
    assert [job.id if job else None for job in claimed] == ["job_0", "job_1", "job_3", None, None]
    assert claimed[0] is not None
    db.fail(claimed[0], JobError("c", "m"), 2.0)
    third = db.claim("w", {"m": 2, "n": 1}, 2.0)
    assert third is not None and third.id == "job_2"


def test_a_job_of_a_model_that_has_gone_is_let_in_to_be_told(db: JobDatabase) -> None:
    add(db, 1, served="gone")
    assert db.claim("w", {"m": 1}, 1.0) is not None


def test_a_model_that_is_not_ready_keeps_all_its_jobs_waiting_in_their_order(db: JobDatabase) -> None:
    for number in range(3):
        add(db, number, served="m")
    add(db, 3, owner="o", served="n")
    first = db.claim("w", {"m": 1, "n": 1}, 1.0)
    assert first is not None
    db.requeue(first, not_before_s=9.0, step="model_loading", whole_model=True)
    assert db.next_due_s() == 0.0
    other = db.claim("w", {"m": 1, "n": 1}, 2.0)
    assert other is not None and other.id == "job_3"
    assert db.claim("w", {"m": 1, "n": 1}, 2.0) is None
    again = db.claim("w", {"m": 1, "n": 1}, 9.0)
    assert again is not None and (again.id, again.tries) == ("job_0", 2)


def test_a_limit_of_one_key_keeps_nobody_else_waiting(db: JobDatabase) -> None:
    add(db, 0)
    add(db, 1)
    first = db.claim("w", {"m": 1}, 1.0)
    assert first is not None
    db.requeue(first, not_before_s=9.0, step="key", whole_model=False)
    second = db.claim("w", {"m": 1}, 2.0)
    assert second is not None and second.id == "job_1"


def test_a_cancelled_job_is_no_longer_its_workers_and_nothing_it_writes_counts(db: JobDatabase) -> None:
    add(db, 1)
    job = db.claim("w", {"m": 1}, 1.0)
    assert job is not None
    cancelled = db.cancel(job, 2.0)
    assert cancelled is not None and cancelled.state is JobState.CANCELLED
    db.note(job, Stage("n", "t"))
    db.finish(job, b"late", status=200, content_type="", now_s=3.0, limits=LIMITS)
    db.requeue(job, not_before_s=0, step="", whole_model=False)
    found = db.find("job_1", "")
    assert found is not None and found.state is JobState.CANCELLED
    assert db.list_mine("w") == set()
    assert db.cancel(job, 4.0) is None, "one that is over is forgotten"
    assert db.find("job_1", "") is None


def test_what_was_sent_is_forgotten_with_the_end_of_the_job(db: JobDatabase) -> None:
    for number in range(3):
        add(db, number)
    done(db, "w", 5, 1.0)
    failing = db.claim("w", {"m": 9}, 1.0)
    leaving = db.claim("w", {"m": 9}, 1.0)
    assert failing is not None and leaving is not None
    db.fail(failing, JobError("c", "m"), 2.0)
    db.cancel(leaving, 2.0)
    db.close()
    with sqlite3.connect(db.path) as plain:
        assert [row[0] for row in plain.execute("SELECT request FROM payloads")] == [None, None, None]
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    plain.close()
    assert b"xxxxxxxxxx" not in db.path.read_bytes()


@pytest.mark.parametrize(
    ("stage", "stopping", "state"),
    [
        (Stage(), False, JobState.QUEUED),
        (Stage("n", "t"), False, JobState.FAILED),
        (Stage("n", "t"), True, JobState.QUEUED),
    ],
)
def test_the_jobs_of_a_dead_worker_fail_if_they_ran_and_wait_again_if_they_did_not(
    db: JobDatabase, stage: Stage, stopping: bool, state: JobState
) -> None:
    add(db, 1)
    job = db.claim("dead", {"m": 1}, 1.0)
    assert job is not None
    db.note(job, stage)
    if stopping:
        db.mark_stopping("dead")
    db.bury("dead", 2.0)
    found = db.find("job_1", "")
    assert found is not None and found.state is state
    assert (found.error.code if found.error else "") == ("job_interrupted" if state is JobState.FAILED else "")
    assert (db.claim("w", {"m": 1}, 3.0) is not None) is (state is JobState.QUEUED)


def test_jobs_are_their_owners_alone(db: JobDatabase) -> None:
    add(db, 1, owner="a")
    add(db, 2, owner="b")
    assert db.find("job_1", "b") is None and db.find("job_1", "") is None
    assert [job.id for job in db.list_of("a", 10)] == ["job_1"]


def test_a_key_has_so_many_unfinished_jobs_and_others_are_not_concerned(db: JobDatabase) -> None:
    for number in range(3):
        add(db, number, owner="a")
    with pytest.raises(LlmgwError) as caught:
        add(db, 3, owner="a")
    assert (caught.value.code, caught.value.http_status) == ("too_many_jobs", 429)
    add(db, 4, owner="b")
    done(db, "w", 1, 1.0)
    add(db, 5, owner="a")


def test_old_results_make_room_and_what_waits_does_not(db: JobDatabase) -> None:
    for number in range(3):
        add(db, number)
    for number in range(2):
        done(db, "w", 400, 1.0 + number)
    add(db, 3, owner="b", size=300)
    assert db.find("job_0", "") is None, "the oldest result went"
    assert db.find("job_1", "") is not None
    with pytest.raises(LlmgwError) as caught:
        add(db, 4, owner="c", size=900)
    assert (caught.value.code, caught.value.http_status) == ("job_store_full", 503)
    assert db.find("job_1", "") is not None, "nothing was removed for what does not fit anyway"


def test_a_result_that_has_no_room_is_refused_and_the_job_can_still_fail(db: JobDatabase) -> None:
    add(db, 1, size=500)
    add(db, 2, owner="b", size=400)
    job = db.claim("w", {"m": 1}, 1.0)
    assert job is not None
    with pytest.raises(LlmgwError) as caught:
        db.finish(job, b"r" * 700, status=200, content_type="", now_s=2.0, limits=LIMITS)
    assert caught.value.code == "job_store_full"
    db.fail(job, JobError("job_result_not_kept", "m"), 2.0)
    found = db.find("job_1", "")
    assert found is not None and found.state is JobState.FAILED


def test_time_removes_results_and_ends_waiting(db: JobDatabase) -> None:
    add(db, 1)
    kept = done(db, "w", 5, 10.0)
    add(db, 2, created_s=50.0)
    db.expire(109.0, LIMITS)
    assert db.find("job_1", "") is not None
    db.expire(110.0, LIMITS)
    assert db.find("job_1", "") is None
    with pytest.raises(NotFoundError):
        db.read_result(kept)
    db.expire(1050.0, LIMITS)
    found = db.find("job_2", "")
    assert found is not None and found.error is not None and found.error.code == "job_expired"


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_set_aside(db: JobDatabase, content: bytes) -> None:
    db.path.parent.mkdir(parents=True)
    db.path.write_bytes(content)
    add(db, 1)
    assert db.find("job_1", "") is not None
    assert db.path.with_name("jobs.db.broken").read_bytes() == content


def test_another_versions_file_is_set_aside(db: JobDatabase) -> None:
    add(db, 1)
    db.close()
    with sqlite3.connect(db.path) as plain:
        plain.execute("PRAGMA user_version = 99")
    plain.close()
    assert db.find("job_1", "") is None
    add(db, 2)
    assert db.path.with_name("jobs.db.broken").exists()


def test_a_file_that_is_damaged_under_way_is_replaced_for_all_who_use_it(tmp_path: Path) -> None:
    one, other = JobDatabase(tmp_path / "jobs.db"), JobDatabase(tmp_path / "jobs.db")
    add(one, 1)
    assert other.find("job_1", "") is not None
    one.close()
    other.close()
    size = one.path.stat().st_size
    with one.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    for _ in range(2):
        try:
            one.find("job_1", "")
            add(one, 2)
        except LlmgwError as error:
            assert error.code == "job_store_failed"
    assert one.find("job_2", "") is not None
    assert other.find("job_2", "") is not None


def test_everything_is_private(db: JobDatabase) -> None:
    add(db, 1)
    assert stat.S_IMODE(db.path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in db.path.parent.iterdir()} == {0o600}


def claim_all(path: Path, worker: str, found: "multiprocessing.Queue[list[str]]") -> None:
    db = JobDatabase(path)
    mine = []
    while (job := db.claim(worker, {"m": 1000}, 1.0)) is not None:
        mine.append(job.id)
    found.put(mine)


def test_processes_that_claim_at_once_never_get_the_same_job(tmp_path: Path) -> None:
    db = JobDatabase(tmp_path / "jobs.db")
    limits = JobLimits(keep_s=1, wait_s=1, per_key=1000, store_bytes=1 << 20)
    for number in range(200):
        db.add(new(number), b"x", limits)
    context = multiprocessing.get_context("spawn")
    found: multiprocessing.Queue[list[str]] = context.Queue()
    processes = [context.Process(target=claim_all, args=(db.path, f"w{n}", found)) for n in range(3)]
    for process in processes:
        process.start()
    claimed = [job_id for _ in processes for job_id in found.get(timeout=60)]
    for process in processes:
        process.join()
    assert sorted(claimed) == sorted(f"job_{number}" for number in range(200))


def test_a_worker_is_dead_when_nobody_holds_its_lock(tmp_path: Path) -> None:
    one, other = Crew(tmp_path), Crew(tmp_path)
    one.join()
    other.join()
    assert not one.is_dead(other.name) and not one.is_dead(one.name)
    one.sweep()
    assert not one.is_dead(other.name)
    other.leave()
    assert one.is_dead(other.name)
    assert one.is_dead("1-never")
    (tmp_path / "worker-9-left.lock").write_bytes(b"")
    one.sweep()
    assert [path.name for path in tmp_path.iterdir()] == [f"worker-{one.name}.lock"]
    one.leave()
