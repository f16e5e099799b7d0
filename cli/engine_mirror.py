"""`llmgw engine mirror`: bring what an engine's builds are made of into a tree, for machines without internet."""

import asyncio
from pathlib import Path

import click

from cli.completion import engines_to_install, variants, versions
from cli.machine_hardware import config_or_defaults
from cli.output import say, show_json
from cli.progress import ProgressView
from cli.session import Session, pass_session, shared_options
from core.engines import MirroredBuild, MirrorReport
from core.errors import UnavailableError
from engines.digests import recipe_for
from engines.filling import fill_mirror
from engines.machine import read_machine
from engines.mirror import packages_for
from engines.plan import select_builds


@click.command("mirror", short_help="Bring what builds are made of into a mirror.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_to_install)
@click.argument("directory", metavar="DIRECTORY", type=click.Path(file_okay=False, path_type=Path))
@click.option("--version", metavar="VERSION", default="", shell_complete=versions, help="Only builds of this version.")
@click.option("--variant", metavar="VARIANT", default="", shell_complete=variants, help="Only builds of this variant.")
@shared_options
@pass_session
@click.pass_context
def mirror(context: click.Context, session: Session, name: str, directory: Path, version: str, variant: str) -> None:
    """Fetch what the builds of ENGINE are made of into DIRECTORY, laid out as `offline.mirror` takes it.

    For machines of this one's kind (processor, Python) that have no internet. Nothing is installed, and no card and no
    daemon is needed. Exit code 9 when nothing could be brought.
    """
    config = config_or_defaults(session)
    recipe, tree = select_builds(recipe_for(name, config), version, variant), directory.absolute()
    with ProgressView() as view:
        packages, machine, tell = packages_for(name, config), read_machine(), view.begin(f"mirror {name}")
        filled = asyncio.run(fill_mirror(recipe, tree, packages=packages, machine=machine, progress=tell))
    builds = [MirroredBuild(name=one.name, files=list(one.files), problem=one.problem) for one in filled]
    report = MirrorReport(engine=name, mirror=str(tree), builds=builds)
    if session.json:
        show_json(report)
    else:
        _show(report)
    if all(build.problem for build in builds):
        context.exit(UnavailableError.exit_code)


def _show(report: MirrorReport) -> None:
    for build in report.builds:
        if build.problem:
            say(f"not {build.name}: {build.problem}")
        else:
            what = build.files[0] if len(build.files) == 1 else f"{len(build.files)} files"
            say(f"{build.name}: {what} in {report.mirror}")
