"""`llmgw usage`: what requests have cost, in tokens."""

import asyncio

import click

from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from core.usage import DIMENSIONS, UsageList, UsageRow

_COUNTS = ("REQUESTS", "CUT SHORT", "PROMPT", "CACHED", "COMPLETION", "ESTIMATED", "WASTED")


@click.command(short_help="Show what requests have cost, in tokens.")
@click.option("--from", "first", metavar="DAY", help="The first day, as 2026-01-31, in UTC; 30 days back if not given.")
@click.option("--to", "last", metavar="DAY", help="The last day, inclusive; today if not given.")
@click.option("--key", metavar="NAME", help="Only requests with this key; `-` for those without one.")
@click.option("--model", metavar="ID", help="Only this model.")
@click.option("--by", metavar="WHAT", default="", help="Sum up by some of day,key,model; by all if not given.")
@shared_options
@pass_session
def usage(  # noqa: PLR0913 - its options
    session: Session, first: str | None, last: str | None, key: str | None, model: str | None, by: str
) -> None:
    """Show how many tokens requests have cost, by day, key and model.

    ESTIMATED are tokens that no engine has told: of requests that were cut short, and of engines that do not count.
    WASTED are those of requests whose client left, or whose engine broke. Both are part of the sums beside them.
    """
    asked = {"from": first, "to": last, "key": key, "model": model, "by": by}
    question = {name: value for name, value in asked.items() if value}

    async def ask() -> UsageList:
        async with session.daemon() as daemon:
            return await daemon.usage(question)

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
        return
    say(f"{answer.from_} to {answer.to}")
    if not answer.rows:
        say("No requests.")
        return
    shown = [name for name in DIMENSIONS if name in answer.by]
    rows = [(*(getattr(row, name) or "-" for name in shown), *_counts(row)) for row in answer.rows]
    if len(rows) > 1:
        rows.append((*("total" if place == 0 else "" for place in range(len(shown))), *_counts(answer.total)))
    show_table((*(name.upper() for name in shown), *_COUNTS), rows)


def _counts(row: UsageRow) -> tuple[str, ...]:
    numbers = (
        *(row.requests, row.cut_short, row.prompt_tokens, row.cached_tokens),
        *(row.completion_tokens, row.estimated_tokens, row.wasted_tokens),
    )
    return tuple(str(number) for number in numbers)
