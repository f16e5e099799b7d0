"""`llmgw hardware`: what this machine is made of and how it is doing; `hardware clear` brings a card back."""

import asyncio

import click

from cli.hardware_views import (
    CARD_COLUMNS,
    PORT_COLUMNS,
    card_lines,
    card_row,
    machine_lines,
    port_rows,
    problem_lines,
)
from cli.output import say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from core.hardware import ClearResult, HardwareState


@click.group(invoke_without_command=True, short_help="Show cards, memory, disks, links; bring a card back.")
@click.option("--fresh", is_flag=True, help="Read everything now, instead of showing the last sample.")
@shared_options
@click.pass_context
def hardware(context: click.Context, fresh: bool) -> None:
    """Show cards with their memory and what is wrong with them, processors, disks, InfiniBand and network links.

    What could not be read is shown as `-`. AGE says how old a card's values are.
    """
    if context.invoked_subcommand is not None:
        return
    session = context.ensure_object(Session)
    state = asyncio.run(_read(session, fresh))
    if session.json:
        show_json(state)
    else:
        _show(state)


async def _read(session: Session, fresh: bool) -> HardwareState:
    async with session.daemon() as daemon:
        return await daemon.hardware(fresh=fresh)


def _show(state: HardwareState) -> None:
    for line in machine_lines(state):
        say(line)
    say()
    if state.cards:
        show_table(CARD_COLUMNS, [card_row(card) for card in state.cards])
        for card in state.cards:
            for line in card_lines(card):
                say(line)
    else:
        say("No NVIDIA cards.")
    if state.infiniband:
        say()
        show_table(PORT_COLUMNS, port_rows(state.infiniband))
    for line in problem_lines(state.problems):
        say(line)


@hardware.command("clear", short_help="Forget past errors of a card, so that models are placed on it again.")
@click.argument("card")
@shared_options
@pass_session
def clear(session: Session, card: str) -> None:
    """Forget the XIDs and memory errors of CARD (its index, UUID, PCI address, or `all`).

    Do it after the card was reset or replaced. What is still wrong with it keeps it out, and is named.
    """

    async def forget() -> ClearResult:
        async with session.daemon() as daemon:
            return await daemon.clear_hardware(card)

    result = asyncio.run(forget())
    if session.json:
        show_json(result)
        return
    say(f"cleared: {', '.join(result.cleared) or 'nothing was left to clear'}")
    for remaining in result.remaining:
        say(f"{remaining.uuid or remaining.pci} stays out of placement:")
        for line in problem_lines([problem for problem in remaining.problems if problem.blocks]):
            say(line)
