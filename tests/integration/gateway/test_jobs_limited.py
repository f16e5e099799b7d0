"""Jobs of a key that has had all that it may have: they wait for it to have something again, and go on."""

from pathlib import Path

import msgspec
import pytest

from core.clock import SystemClock
from gateway import app
from gateway.jobs import outcome
from tests.fakes.upstream import Behaviour, FakeUpstream
from tests.integration.gateway.harness import CHAT, chat, gateway, raw_request, target_of
from tests.integration.gateway.jobs import get, post, until, wait_job
from tests.unit.gateway.tables import key, model, table

JOBS = 3
LONG_S = 120.0
MINUTE_S = 61.0


class Calendar(SystemClock):
    """The gateway's clock, on which a minute passes when a test wants it to."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + Calendar.passed_s


@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
async def test_a_job_of_a_key_that_is_over_its_limit_waits_and_goes_on(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SystemClock", Calendar)
    monkeypatch.setattr(Calendar, "passed_s", 0.0)
    # It is told to come back in a minute, and comes a little earlier.
    monkeypatch.setattr(outcome, "_LONGEST_WAIT_S", 0.2)
    limited = msgspec.structs.replace(key("k", name="alice"), **{limit: 1})
    code = f"key_{limit.removesuffix('_per_minute')}_exceeded"
    async with FakeUpstream() as engine:
        # One after the other: what a request used in tokens is known at its end.
        routes = table(model("m", target_of(engine, max_concurrency=1)), keys=(limited,), allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            address = (gw.host, gw.port)
            made = [(await post(address, x_api_key="k"))["id"] for _ in range(JOBS)]

            async def read(field: str) -> list[object]:
                all_ = ("queued", "running", "done", "failed")
                return [(await wait_job(address, id_, *all_, x_api_key="k")).get(field) for id_ in made]

            for done in range(1, JOBS + 1):

                async def are_done(count: int = done) -> bool:
                    return (await read("state")).count("done") == count

                await until(are_done, LONG_S)
                if done < JOBS:

                    async def one_waits() -> bool:
                        return code in await read("step")

                    await until(one_waits, LONG_S)
                    assert (await read("state")).count("queued") == JOBS - done
                Calendar.passed_s += MINUTE_S
            results = [(await get(address, id_, "/result", x_api_key="k")).status for id_ in made]
    assert results == [200] * JOBS and len(engine.seen) == JOBS


async def test_jobs_of_a_key_that_may_have_one_at_once_follow_one_another(tmp_path: Path) -> None:
    limited = msgspec.structs.replace(key("k", name="alice"), concurrency=1)
    async with FakeUpstream(Behaviour(head_pause_s=LONG_S)) as engine:
        routes = table(model("m", target_of(engine)), keys=(limited,), allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            address = (gw.host, gw.port)
            made = [(await post(address, x_api_key="k"))["id"] for _ in range(JOBS)]

            async def others_wait() -> bool:
                seen = [await wait_job(address, id_, "queued", "running", x_api_key="k") for id_ in made]
                return sum(each.get("step") == "key_concurrency_exceeded" for each in seen) == JOBS - 1

            await until(others_wait, LONG_S)
            engine.release()
            done = [await wait_job(address, id_, "done", "failed", timeout_s=LONG_S, x_api_key="k") for id_ in made]
    assert [each["state"] for each in done] == ["done"] * JOBS


async def test_a_jobs_request_counts_as_any_of_its_key(tmp_path: Path) -> None:
    limited = msgspec.structs.replace(key("k", name="alice"), requests_per_minute=2)
    async with FakeUpstream() as engine:
        routes = table(model("m", target_of(engine)), keys=(limited,), allow_missing_auth=False)
        async with gateway(tmp_path, routes) as gw:
            address, credential = (gw.host, gw.port), {"x-api-key": "k"}
            first = await post(address, x_api_key="k")
            await wait_job(address, first["id"], "done", x_api_key="k")
            statuses = [(await raw_request(address, CHAT, chat(), credential)).status for _ in range(2)]
    assert statuses == [200, 429]
