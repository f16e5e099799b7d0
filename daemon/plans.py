"""A plan as the local API tells it: the numbers, and one row for each runtime of the node."""

from core.admission import PlanReply, PlanRow, PoolReply
from daemon.node import Node
from daemon.runtimes.admission import Plan, PoolPlan
from daemon.runtimes.controller import RuntimeController


def plan_reply(node: Node, runtime_id: str) -> PlanReply:
    """What loading `runtime_id` now would take. Raises: RuntimeUnknown."""
    plan = node.plan(runtime_id)
    return PlanReply(
        runtime=runtime_id,
        allowed=plan.allowed,
        code=plan.verdict.value,
        message=plan.message,
        retryable=plan.verdict.is_retryable,
        pools=[_pool(one) for one in plan.pools],
        runtimes=[_row(node, plan, controller) for _, controller in sorted(node.controllers.items())],
    )


def _pool(one: PoolPlan) -> PoolReply:
    return PoolReply(
        name=one.pool.title,
        budget_mib=one.pool.budget_mib,
        used_mib=one.pool.used_mib,
        loaded_mib=one.loaded_mib,
        requested_mib=one.requested_mib,
        projected_mib=one.projected_mib,
        over_mib=one.over_mib,
    )


def _row(node: Node, plan: Plan, controller: RuntimeController) -> PlanRow:
    runtime_id = controller.runtime_id
    known = runtime_id in node.config_use.loaded.config.runtimes
    need = node.admitter.need_mib(runtime_id, node.preparer) if known else None
    if runtime_id == plan.runtime_id:
        return PlanRow(id=runtime_id, action="start" if plan.allowed else "none", reason="requested", memory_mib=need)
    if runtime_id in plan.evict:
        return PlanRow(id=runtime_id, action="stop", reason="idle; makes room", memory_mib=need)
    protected = plan.kept.get(runtime_id)
    reason = protected.value if protected else controller.state.value
    return PlanRow(id=runtime_id, action="keep", reason=reason, memory_mib=need)
