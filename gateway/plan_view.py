"""How an admission plan reads over HTTP: the daemon's words, beside names that the reference system's readers know.

Pure. `admission`, `actions` and `protected` say what `runtimes` says row by row: stops first, then the start.
"""

import msgspec

from core.admission import PlanReply, PlanRow

Json = dict[str, object]


def describe_plan(plan: PlanReply) -> Json:
    """`GET /gateway/runtimes/plan` and the answer to `admit`."""
    return {
        "ok": plan.allowed,
        "requestedRuntimeId": plan.runtime,
        "admission": {
            "allowed": plan.allowed,
            "code": plan.code,
            "message": plan.message,
            "retryable": plan.retryable,
            "pools": [msgspec.to_builtins(pool) for pool in plan.pools],
        },
        "runtimes": [msgspec.to_builtins(row) for row in plan.runtimes],
        "actions": [
            {"type": row.action, "runtimeId": row.id, "reason": row.reason}
            for action in ("stop", "start")
            for row in plan.runtimes
            if row.action == action
        ],
        "protected": [_protected(row) for row in plan.runtimes if row.action == "keep"],
    }


def _protected(row: PlanRow) -> Json:
    return {"runtimeId": row.id, "protectedReasons": [row.reason]}
