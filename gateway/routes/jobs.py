"""`/v1/jobs`: a request that is answered with an id, done in its turn, and whose result waits to be fetched.

A job belongs to the key that made it; everybody else hears that there is none. Any worker answers for any job.
"""

import secrets
import time

import falcon
import msgspec
from falcon.asgi import Request, Response

from gateway.auth import Access, digest_of, find_credential
from gateway.decode import check_content
from gateway.errors import ApiError, cut
from gateway.grant import OPEN, Grant
from gateway.guard import Guard
from gateway.incoming import read_browser_facts, read_headers
from gateway.jobs.asked import read_job_request
from gateway.jobs.errors import jobs_disabled, unknown_job
from gateway.jobs.job import Job, JobState, describe_job
from gateway.jobs.limits import limits_of
from gateway.jobs.runner import Runner
from gateway.jobs.store import JobStore
from gateway.lookup import find_model
from gateway.origin import check_origin
from gateway.routes.inference import find_client, read_body
from gateway.state import Routes

MAX_LISTED = 1000
_DEFAULT_LISTED = 100


class _Resource:
    """What all of them need."""

    def __init__(self, guard: Guard, store: JobStore, runner: Runner) -> None:
        self._guard = guard
        self._store = store
        self._runner = runner

    def _admit(self, req: Request) -> tuple[Routes, Grant, str]:
        """The routes, what the key grants, and whose jobs these are: its digest, or nothing. Raises: ApiError."""
        headers = req.scope["headers"]
        fields = read_headers(headers)
        routes, grant = self._guard.admit(
            Access.INFERENCE, fields, self._guard.address_of(req.scope.get("client"), headers)
        )
        # Results are kept, so a page of another site must not be able to fetch them where no key is asked for.
        check_origin(read_browser_facts(headers), loopback=routes.lookup.access.loopback)
        credential = find_credential(fields.get(b"authorization", b""), fields.get(b"x-api-key", b""))
        return routes, grant, "" if grant is OPEN else digest_of(credential).hex()

    async def _find(self, req: Request, job_id: str) -> tuple[Routes, Job]:
        routes, _, owner = self._admit(req)
        job = await self._store.run(lambda db: db.find(job_id, owner)) if self._store.exists else None
        if job is None:
            raise unknown_job()
        return routes, job

    async def _describe(self, routes: Routes, job: Job) -> dict[str, object]:
        waits = job.state is JobState.QUEUED
        ahead = await self._store.run(lambda db: db.count_ahead(job)) if waits else None
        return describe_job(job, ahead=ahead, keep_s=limits_of(routes.lookup.table.jobs).keep_s)


class Jobs(_Resource):
    """Make one, or list one's own."""

    async def on_post(self, req: Request, resp: Response) -> None:
        routes, grant, owner = self._admit(req)
        limits = limits_of(routes.lookup.table.jobs)
        if not limits.per_key:
            raise jobs_disabled()
        check_content(req.get_header("content-type", default="").encode("latin-1"), _encoding(req))
        client = find_client(req.scope)
        path, body, asked = read_job_request(client.body if client is not None else await read_body(req))
        model = asked.model or ""
        entry = find_model(routes.lookup, grant, model)
        job = Job(
            seq=0, id=f"job_{secrets.token_hex(12)}", owner=owner, path=path, model=cut(model), served=entry.model.id,
            state=JobState.QUEUED, created_s=time.time(), request_bytes=len(body),
        )  # fmt: skip
        job = await self._store.run(lambda db: db.add(job, body, limits))
        self._runner.wake()
        resp.status = falcon.HTTP_202
        resp.set_header("location", f"/v1/jobs/{job.id}")
        resp.media = await self._describe(routes, job)

    async def on_get(self, req: Request, resp: Response) -> None:
        routes, _, owner = self._admit(req)
        limit = _read_limit(req)
        found = await self._store.run(lambda db: db.list_of(owner, limit)) if self._store.exists else []
        resp.media = {"object": "list", "data": [await self._describe(routes, job) for job in found]}


class OneJob(_Resource):
    """How it stands; and its end, if one wants it."""

    async def on_get(self, req: Request, resp: Response, job_id: str) -> None:
        routes, job = await self._find(req, job_id)
        described = await self._describe(routes, job)
        if job.state is JobState.DONE and job.content_type.startswith(falcon.MEDIA_JSON):
            described["result"] = _json(await self._store.run(lambda db: db.read_result(job)))
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(described)

    async def on_delete(self, req: Request, resp: Response, job_id: str) -> None:
        """Cancel it, and answer how it is then; one that was over is forgotten with its result: 204."""
        routes, job = await self._find(req, job_id)
        left = await self._store.run(lambda db: db.cancel(job, time.time()))
        self._runner.wake()
        if left is None:
            resp.status = falcon.HTTP_204
        else:
            resp.media = await self._describe(routes, left)


class JobResult(_Resource):
    """What the request's own route would have answered."""

    async def on_get(self, req: Request, resp: Response, job_id: str) -> None:
        _, job = await self._find(req, job_id)
        if job.error is not None:
            raise ApiError(job.error.status, job.error.code, job.error.message, model=job.error.model)
        if job.state is not JobState.DONE:
            raise ApiError(409, "job_not_done", f"The job is {job.state}.")
        resp.data = await self._store.run(lambda db: db.read_result(job))
        resp.status = job.status
        resp.content_type = job.content_type or falcon.MEDIA_JSON


def _json(result: bytes) -> msgspec.Raw | None:
    """The result as it is; null where it only calls itself JSON."""
    try:
        return msgspec.json.decode(result, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _encoding(req: Request) -> bytes:
    return str(req.get_header("content-encoding", default="")).encode("latin-1")


def _read_limit(req: Request) -> int:
    given = req.get_param("limit", default="")
    if not given:
        return _DEFAULT_LISTED
    if given.isascii() and given.isdigit() and len(given) < 5 and 1 <= int(given) <= MAX_LISTED:
        return int(given)
    raise ApiError(400, "invalid_request", f"`limit` is a number from 1 to {MAX_LISTED}.")
