"""The jobs of all workers of this node, in one SQLite file of the gateway's state directory.

SQLite, because it is what a directory of files with a lock would become: every change is whole or not at all, whoever
dies in the middle; "the next one of this model" is a query; a full disk is an error and not half a file. Requests and
results stand in a table of their own, so that looking at jobs reads none of them.

Everything here blocks and belongs to one thread (`store.py`). Times are given by the caller.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from core.errors import LlmgwError, NotFoundError
from core.files import ensure_directory, storage_error
from gateway.jobs.errors import JobsUnavailable, too_many_jobs
from gateway.jobs.job import Job, JobError, JobState, Stage
from gateway.jobs.limits import JobLimits

_VERSION = 1
_BUSY_S = 10.0
_SCHEMA = """
CREATE TABLE jobs(
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, path TEXT NOT NULL,
  model TEXT NOT NULL, served TEXT NOT NULL, state TEXT NOT NULL, worker TEXT NOT NULL DEFAULT '',
  node TEXT NOT NULL DEFAULT '', target TEXT NOT NULL DEFAULT '', step TEXT NOT NULL DEFAULT '', percent REAL,
  created_s REAL NOT NULL, not_before_s REAL NOT NULL DEFAULT 0, started_s REAL, finished_s REAL,
  tries INTEGER NOT NULL DEFAULT 0, status INTEGER NOT NULL DEFAULT 0, content_type TEXT NOT NULL DEFAULT '',
  request_bytes INTEGER NOT NULL DEFAULT 0, result_bytes INTEGER NOT NULL DEFAULT 0, error TEXT,
  stopping INTEGER NOT NULL DEFAULT 0);
CREATE INDEX jobs_by_state ON jobs(state, seq);
CREATE INDEX jobs_by_owner ON jobs(owner, seq);
CREATE TABLE payloads(seq INTEGER PRIMARY KEY, request BLOB, result BLOB);
"""
_FIELDS = tuple(field for field in Job.__struct_fields__ if field != "error")
_COLUMNS = ", ".join((*_FIELDS, "error"))
_UNFINISHED = "state IN ('queued', 'running')"
_INTERRUPTED = JobError("job_interrupted", "The gateway's process that worked on this job died.", status=500)
_EXPIRED = JobError("job_expired", "The job waited for its turn for too long.", status=504)


class JobDatabase:
    """See the module. Every method raises LlmgwError when the file or the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._is_suspect = False
        """Whether the file was found damaged, and is to be looked through before it is used again."""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # one job

    def add(self, job: Job, request: bytes, limits: JobLimits) -> Job:
        """Keep a new job; its place is given here. Raises: ApiError (429, 503) when there are too many."""
        with self._change() as db:
            unfinished = _number(db, f"SELECT count(*) FROM jobs WHERE owner = ? AND {_UNFINISHED}", job.owner)
            if unfinished >= limits.per_key:
                raise too_many_jobs(limits.per_key)
            self._make_room(db, len(request), limits.store_bytes)
            names = ("id", "owner", "path", "model", "served", "state", "created_s", "request_bytes")
            values = [getattr(job, name) for name in names]
            marks = ", ".join("?" * len(names))
            cursor = db.execute(f"INSERT INTO jobs({', '.join(names)}) VALUES ({marks})", values)
            db.execute("INSERT INTO payloads(seq, request) VALUES (?, ?)", (cursor.lastrowid, request))
            return msgspec.structs.replace(job, seq=int(cursor.lastrowid or 0))

    def find(self, job_id: str, owner: str) -> Job | None:
        """The job, if it is this owner's."""
        with self._read() as db:
            return _first(db, "WHERE id = ? AND owner = ?", job_id, owner)

    def count_ahead(self, job: Job) -> int:
        """Jobs for the same model that came before and wait, too."""
        with self._read() as db:
            where = "served = ? AND state = 'queued' AND seq < ?"
            return _number(db, f"SELECT count(*) FROM jobs WHERE {where}", job.served, job.seq)

    def list_of(self, owner: str, limit: int) -> list[Job]:
        """This owner's, the newest first."""
        with self._read() as db:
            return _all(db, "WHERE owner = ? ORDER BY seq DESC LIMIT ?", owner, limit)

    def read_result(self, job: Job) -> bytes:
        """What came of a job that is done. Raises: NotFoundError when it has gone meanwhile."""
        with self._read() as db:
            row = db.execute("SELECT result FROM payloads WHERE seq = ?", (job.seq,)).fetchone()
        if row is None or row[0] is None:
            raise NotFoundError("The job's result is not kept any more.", code="job_unknown")
        return bytes(row[0])

    def read_request(self, job: Job) -> bytes:
        with self._read() as db:
            row = db.execute("SELECT request FROM payloads WHERE seq = ?", (job.seq,)).fetchone()
        return bytes(row[0]) if row is not None and row[0] is not None else b""

    def cancel(self, job: Job, now_s: float) -> Job | None:
        """End a job that is not finished, and tell how it is now; one that was finished is removed: None."""
        with self._change() as db:
            change = "UPDATE jobs SET state = 'cancelled', finished_s = ?, worker = '', step = '', request_bytes = 0"
            if db.execute(f"{change} WHERE seq = ? AND {_UNFINISHED}", (now_s, job.seq)).rowcount:
                db.execute("UPDATE payloads SET request = NULL WHERE seq = ?", (job.seq,))
                return _first(db, "WHERE seq = ?", job.seq)
            _remove(db, "seq = ?", job.seq)
            return None

    # work

    def claim(self, worker: str, slots: Mapping[str, int], now_s: float) -> Job | None:
        """The next job that may begin: the first of a model of which fewer are under way than it has slots."""
        with self._read() as db:
            waiting = "SELECT count(*) FROM jobs WHERE state = 'queued' AND worker = '' AND not_before_s <= ?"
            if not _number(db, waiting, now_s):
                return None
        with self._change() as db:
            busy = dict(
                db.execute(f"SELECT served, count(*) FROM jobs WHERE worker != '' AND {_UNFINISHED} GROUP BY served")
            )
            free = [served for served, count in slots.items() if busy.get(served, 0) < count]
            known = f"served IN ({', '.join('?' * len(free))})"
            # One whose model has gone is let in, to be told so.
            gone = f"served NOT IN ({', '.join('?' * len(slots))})"
            job = _first(
                db,
                f"WHERE state = 'queued' AND worker = '' AND not_before_s <= ? AND ({known} OR {gone})"
                " ORDER BY seq LIMIT 1",
                now_s, *free, *slots,
            )  # fmt: skip
            if job is None:
                return None
            db.execute("UPDATE jobs SET worker = ?, tries = tries + 1 WHERE seq = ?", (worker, job.seq))
            return msgspec.structs.replace(job, worker=worker, tries=job.tries + 1)

    def note(self, job: Job, stage: Stage) -> None:
        """Who works on it, and how far it is. With a target it runs; without, it waits."""
        state = JobState.RUNNING if stage.target else JobState.QUEUED
        with self._change() as db:
            db.execute(
                "UPDATE jobs SET state = ?, node = ?, target = ?, step = ?, percent = ?,"
                f" started_s = ? WHERE seq = ? AND worker = ? AND {_UNFINISHED}",
                (state.value, *stage, job.seq, job.worker),
            )

    def requeue(self, job: Job, *, not_before_s: float, step: str, whole_model: bool) -> None:
        """Back into the queue, at its old place. Where it is the model that keeps it waiting, others wait behind it."""
        with self._change() as db:
            _requeue(db, not_before_s, step, "seq = ? AND worker = ?", job.seq, job.worker)
            if whole_model:
                db.execute(
                    "UPDATE jobs SET not_before_s = max(not_before_s, ?)"
                    " WHERE served = ? AND state = 'queued' AND worker = ''",
                    (not_before_s, job.served),
                )

    def requeue_all(self, worker: str) -> None:
        """What this worker has not ended begins again elsewhere."""
        with self._change() as db:
            _requeue(db, 0.0, "", "worker = ?", worker)

    def finish(
        self, job: Job, result: bytes, *, status: int, content_type: str, now_s: float, limits: JobLimits
    ) -> None:
        """The job is done. Raises: ApiError (503) when there is no room for its result."""
        with self._change() as db:
            self._make_room(db, len(result) - job.request_bytes, limits.store_bytes)
            changed = db.execute(
                "UPDATE jobs SET state = 'done', worker = '', step = '', percent = 100, status = ?, content_type = ?,"
                f" result_bytes = ?, request_bytes = 0, finished_s = ? WHERE seq = ? AND worker = ? AND {_UNFINISHED}",
                (status, content_type, len(result), now_s, job.seq, job.worker),
            ).rowcount
            if changed:
                db.execute("UPDATE payloads SET request = NULL, result = ? WHERE seq = ?", (result, job.seq))

    def fail(self, job: Job, error: JobError, now_s: float) -> None:
        with self._change() as db:
            _fail(db, error, now_s, "seq = ? AND worker = ?", job.seq, job.worker)

    # all of them

    def list_mine(self, worker: str) -> set[int]:
        """Places of the jobs that this worker may go on with."""
        with self._read() as db:
            return {row[0] for row in db.execute(f"SELECT seq FROM jobs WHERE worker = ? AND {_UNFINISHED}", (worker,))}

    def list_workers(self) -> set[str]:
        """Who works on something, as far as is written."""
        with self._read() as db:
            return {
                row[0] for row in db.execute(f"SELECT DISTINCT worker FROM jobs WHERE worker != '' AND {_UNFINISHED}")
            }

    def mark_stopping(self, worker: str) -> None:
        """This worker is being stopped in good order: what it does not end may begin again elsewhere."""
        with self._change() as db:
            db.execute(f"UPDATE jobs SET stopping = 1 WHERE worker = ? AND {_UNFINISHED}", (worker,))

    def bury(self, worker: str, now_s: float) -> int:
        """The worker is dead: what it had begun has failed, what had not is queued again. Returns how many failed."""
        with self._change() as db:
            _requeue(db, 0.0, "", "worker = ? AND (state = 'queued' OR stopping)", worker)
            return _fail(db, _INTERRUPTED, now_s, "worker = ? AND state = 'running'", worker)

    def expire(self, now_s: float, limits: JobLimits) -> None:
        """Remove what was kept for long enough, and end what has waited for too long."""
        with self._change() as db:
            _remove(db, "finished_s IS NOT NULL AND finished_s <= ?", now_s - limits.keep_s)
            _fail(db, _EXPIRED, now_s, "state = 'queued' AND worker = '' AND created_s <= ?", now_s - limits.wait_s)

    def next_due_s(self) -> float | None:
        """When the first of the jobs that wait for a time may begin."""
        with self._read() as db:
            row = db.execute("SELECT min(not_before_s) FROM jobs WHERE state = 'queued' AND worker = ''").fetchone()
            return None if row is None or row[0] is None else float(row[0])

    # the file

    def _make_room(self, db: sqlite3.Connection, size: int, limit: int) -> None:
        """Let the oldest results go until so many more bytes fit. Raises: ApiError (503)."""
        excess = _number(db, "SELECT coalesce(sum(request_bytes + result_bytes), 0) FROM jobs") + size - limit
        if excess <= 0:
            return
        oldest: list[int] = []
        for seq, held in db.execute(
            "SELECT seq, request_bytes + result_bytes FROM jobs WHERE finished_s IS NOT NULL ORDER BY finished_s"
        ):
            oldest.append(seq)
            excess -= held
            if excess <= 0:
                break
        else:
            raise JobsUnavailable("The jobs that are kept leave no room for another.", code="job_store_full")
        for seq in oldest:
            _remove(db, "seq = ?", seq)

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            yield self._opened()

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            self._is_suspect = not isinstance(error, sqlite3.OperationalError)
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error) -> LlmgwError:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            return JobsUnavailable("The disk has no room for jobs.", code="job_store_full")
        return JobsUnavailable("Jobs cannot be kept now.", code="job_store_failed")

    def _opened(self) -> sqlite3.Connection:
        # Another worker may have set the file aside.
        if self._connection is not None and self._inode != _inode(self.path):
            self.close()
        if self._connection is None:
            ensure_directory(self.path.parent, mode=0o700)
            self._connection = _open_or_replace(self.path, self._is_suspect)
            self._inode, self._is_suspect = _inode(self.path), False
        return self._connection


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _open_or_replace(path: Path, is_suspect: bool) -> sqlite3.Connection:
    """The database; a file that is none, or of another version, is set aside: jobs are not worth a gateway's life."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.lockf(lock, os.F_LOCK, 0)
        try:
            return _open(path, is_suspect)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{path}{suffix}.broken")
            return _open(path, False)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        os.close(lock)


def _open(path: Path, is_suspect: bool) -> sqlite3.Connection:
    # Made with this mode; SQLite gives its other files the same.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        if version == 0:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise sqlite3.DatabaseError(f"version {version}")
        if is_suspect and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("damaged")
        return db
    except BaseException:
        db.close()
        raise


def _first(db: sqlite3.Connection, where: str, *values: object) -> Job | None:
    found = _all(db, where, *values)
    return found[0] if found else None


def _all(db: sqlite3.Connection, where: str, *values: object) -> list[Job]:
    return [_job(row) for row in db.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values)]


def _job(row: tuple[object, ...]) -> Job:
    fields = dict(zip(_FIELDS, row, strict=False))
    error = row[-1]
    known = msgspec.json.decode(str(error), type=JobError) if error is not None else None
    return Job(**(fields | {"state": JobState(str(fields["state"])), "error": known}))  # type: ignore[arg-type]


def _number(db: sqlite3.Connection, query: str, *values: object) -> int:
    return int(db.execute(query, values).fetchone()[0])


def _requeue(db: sqlite3.Connection, not_before_s: float, step: str, where: str, *values: object) -> None:
    db.execute(
        "UPDATE jobs SET state = 'queued', worker = '', node = '', target = '', started_s = NULL, percent = NULL,"
        f" stopping = 0, not_before_s = ?, step = ? WHERE {where} AND {_UNFINISHED}",
        (not_before_s, step, *values),
    )


def _fail(db: sqlite3.Connection, error: JobError, now_s: float, where: str, *values: object) -> int:
    db.execute(
        f"UPDATE payloads SET request = NULL WHERE seq IN (SELECT seq FROM jobs WHERE {where} AND {_UNFINISHED})",
        values,
    )
    return db.execute(
        "UPDATE jobs SET state = 'failed', worker = '', step = '', request_bytes = 0, finished_s = ?, error = ?"
        f" WHERE {where} AND {_UNFINISHED}",
        (now_s, msgspec.json.encode(error).decode(), *values),
    ).rowcount


def _remove(db: sqlite3.Connection, where: str, *values: object) -> None:
    db.execute(f"DELETE FROM payloads WHERE seq IN (SELECT seq FROM jobs WHERE {where})", values)
    db.execute(f"DELETE FROM jobs WHERE {where}", values)
