"""Applications that are asked for a plan before there is a task."""

from core.http.plan import RelayPlan
from core.http.stream import ClientStream
from tests.integration.http.harness import GET, RelayingApp, connected, post, relaying, replying, upstream, whole


class Choosy(RelayingApp):
    """Plans only what is posted, and fails to plan what asks for it."""

    def plan_directly(self, stream: ClientStream) -> RelayPlan | None:
        if stream.path == b"/bug":
            raise LookupError("as it was told")
        return self.make_plan() if stream.method == b"POST" else None


async def test_what_is_not_planned_is_the_application_s() -> None:
    async with (
        upstream(replying(whole(200, b"x"))) as up, relaying(up.port, app_type=Choosy) as relay,
        connected(relay.port) as client,
    ):  # fmt: skip
        for request in (GET, post("/v1/x", b"{}"), GET, GET, post("/v1/x", b"{}")):
            await client.send(request)
            assert (await client.answer()).body == b"x"
        assert relay.errors == []


async def test_a_bug_in_planning_is_reported_and_the_application_asked() -> None:
    async with (
        upstream(replying(whole(200, b"x"))) as up, relaying(up.port, app_type=Choosy) as relay,
        connected(relay.port) as client,
    ):  # fmt: skip
        await client.send(post("/bug", b"{}"))
        assert (await client.answer()).body == b"x"
        assert [str(error) for error in relay.errors] == ["as it was told"]


async def test_directly_pipelined_requests_are_answered_in_their_order() -> None:
    async with (
        upstream(replying(whole(200, b"x"))) as up, relaying(up.port, app_type=Choosy) as relay,
        connected(relay.port) as client,
    ):  # fmt: skip
        await client.send((post("/v1/x", b"{}") + GET) * 20)
        assert [(await client.answer()).status for _ in range(40)] == [200] * 40
        assert len(up.conversations) == 1
