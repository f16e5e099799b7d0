"""Jobs as a client sees them, for tests."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from tests.integration.gateway.harness import CHAT, Answer, chat, raw_request

JOBS = "/v1/jobs"
Address = tuple[str, int]
Seen = dict[str, object]


def job(body: bytes | None = None, path: str = CHAT) -> bytes:
    """A job's request."""
    return b'{"path": "%b", "body": %b}' % (path.encode(), chat() if body is None else body)


async def post(address: Address, body: bytes | None = None, path: str = CHAT, **headers: str) -> Seen:
    """Make one that is taken."""
    answer = await raw_request(address, JOBS, job(body, path), _names(headers))
    assert answer.status == 202, answer
    seen = json.loads(answer.body)
    assert isinstance(seen, dict)
    assert answer.headers["location"] == f"{JOBS}/{seen['id']}"
    return seen


async def get(address: Address, job_id: object, tail: str = "", **headers: str) -> Answer:
    return await raw_request(address, f"{JOBS}/{job_id}{tail}", headers=_names(headers), method="GET")


async def delete(address: Address, job_id: object, **headers: str) -> Answer:
    return await raw_request(address, f"{JOBS}/{job_id}", headers=_names(headers), method="DELETE")


async def wait_job(address: Address, job_id: object, *states: str, timeout_s: float = 60.0, **headers: str) -> Seen:
    """The job once it is in one of these states; a job tells nobody by itself."""
    seen: Seen = {}
    try:
        async with asyncio.timeout(timeout_s):
            while seen.get("state") not in states:
                answer = await get(address, job_id, **headers)
                assert answer.status == 200, answer
                seen = json.loads(answer.body)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never {states}: {seen}") from None
    return seen


async def until(holds: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Return once `holds` does; what it looks at tells nobody when it changes."""
    async with asyncio.timeout(timeout_s):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
