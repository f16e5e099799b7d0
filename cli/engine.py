"""`llmgw engine`: which build of an engine this machine can run, and those that are here."""

import asyncio

import click

from cli.completion import builds_here, engines_here, engines_to_install, variants, versions
from cli.machine_hardware import config_or_defaults, read_hardware
from cli.output import say, show_json, show_table
from cli.progress import ProgressView
from cli.session import Session, pass_session, shared_options
from core.engines import BuildVerdict, EngineBuild, EngineList, EnginePlan, RemovedBuilds
from core.errors import NotFoundError, UnavailableError
from engines.digests import recipe_for
from engines.machine import Machine, add_hardware, read_machine
from engines.mirror import describe_mirrors
from engines.plan import plan_build

_COLUMNS = ("ENGINE", "BUILD", "VERSION", "VARIANT", "USE", "CHECK", "SIZE", "RUNTIMES")


@click.group(short_help="Choose, install and remove builds of engines.")
@shared_options
def engine() -> None:
    """Builds of the engines: what this machine can run, what is installed, and which one is used.

    `list` shows what is here, `plan` says which build this machine would take and why not the others, `install` brings
    it here, `rollback` goes back to the one before.
    """


@engine.command("plan", short_help="Say which build this machine takes, and why not the others.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_to_install)
@shared_options
@pass_session
@click.pass_context
def plan(context: click.Context, session: Session, name: str) -> None:
    """Judge every build of ENGINE for this machine. Nothing is changed. Exit code 9 when none can be had."""
    config = config_or_defaults(session)
    recipe = recipe_for(name, config)
    machine = add_hardware(read_machine(), asyncio.run(read_hardware(session)))
    judged = plan_build(recipe, machine)
    chosen = judged.chosen.name if judged.chosen else ""
    answer = EnginePlan(
        engine=name,
        machine=describe_machine(machine),
        mirrors=describe_mirrors(name, config),
        chosen=chosen,
        verdicts=[
            BuildVerdict(
                name=one.build.name,
                version=one.build.version,
                variant=one.build.variant,
                chosen=one.build.name == chosen,
                reasons=list(one.reasons),
            )
            for one in judged.verdicts
        ],
    )
    if session.json:
        show_json(answer)
    else:
        _show_plan(answer)
    if not chosen:
        context.exit(UnavailableError.exit_code)


@engine.command("list", short_help="Show the builds that are installed.")
@shared_options
@pass_session
def list_(session: Session) -> None:
    """Show every build on this machine, which one is used where a runtime names none, and what runs on it."""

    async def ask() -> EngineList:
        async with session.daemon() as daemon:
            return await daemon.engines()

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
    elif answer.builds:
        show_table(_COLUMNS, [_row(build) for build in answer.builds])
    else:
        say("No builds are installed.")


@engine.command("show", short_help="Show a build, and what its check found.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_here)
@click.argument("build", required=False, default="", shell_complete=builds_here)
@shared_options
@pass_session
def show(session: Session, name: str, build: str) -> None:
    """Show the BUILD of ENGINE (by default the active one): where it is and came from, and what engine-check found."""

    async def ask() -> EngineList:
        async with session.daemon() as daemon:
            return await daemon.engines()

    builds = [one for one in asyncio.run(ask()).builds if one.engine == name]
    found = next((one for one in builds if one.name == build or (not build and one.active)), None)
    if found is None:
        what = f"no build {build} of {name}" if build else f"no build of {name} that is used"
        raise NotFoundError(f"there is {what}", hint="llmgw engine list", code="engine_build_unknown")
    if session.json:
        show_json(found)
    else:
        show_build(found)


def show_build(build: EngineBuild) -> None:
    """A build, one fact a line."""
    use = "active" if build.active else "previous" if build.previous else "not used"
    say(f"{build.engine} {build.name}, {use}")
    say(f"  version  {build.version}, variant {build.variant or '-'}")
    say(f"  at       {build.path}, {build.size_bytes >> 20} MiB")
    say(f"  from     {build.source or 'unknown'}")
    say(f"  runtimes {', '.join(build.used_by) or '-'}")
    check = build.check
    if check is None:
        say(f"  check    never: llmgw engine-check {build.engine} --build {build.name}")
        return
    how = "started on a model" if check.tried else "its help alone"
    outdated = f", outdated: by llmgw {check.llmgw_version}" if build.check_stale else ""
    say(f"  check    {'ok' if check.ok else 'failed, so it is not used'} at {check.at} ({how}){outdated}")
    if check.takes_uuids is not None:
        say(f"  cards    by {'uuid' if check.takes_uuids else 'number'}")
    for finding in check.findings:
        say(f"    {finding.status:8} {finding.check}: {finding.found}")


@engine.command("install", short_help="Install the best build for this machine.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_to_install)
@click.option(
    "--version", metavar="VERSION", default="", shell_complete=versions, help="The best build of this version."
)
@click.option(
    "--variant", metavar="VARIANT", default="", shell_complete=variants, help="The best build of this variant."
)
@shared_options
@pass_session
def install(session: Session, name: str, version: str, variant: str) -> None:
    """Bring a build of ENGINE onto this machine, prove that it runs, and use it from now on.

    Versions and variants are those of `llmgw engine plan`; one of each names one build. Interrupt it at any time: the
    daemon goes on, and the same command shows how far it is.
    """

    async def work() -> str:
        async with session.daemon() as daemon:
            with ProgressView() as view:
                return await view.follow(
                    f"engine {name}", daemon.install_engine(name, version=version, variant=variant)
                )

    made = asyncio.run(work())
    if session.json:
        show_json({"engine": name, "build": made})


@engine.command("rollback", short_help="Use the build before this one again.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_here)
@shared_options
@pass_session
def rollback(session: Session, name: str) -> None:
    """Use the previous build of ENGINE. Runtimes take it with their next start."""

    async def ask() -> EngineBuild:
        async with session.daemon() as daemon:
            return await daemon.roll_back_engine(name)

    answer = asyncio.run(ask())
    if session.json:
        show_json(answer)
    else:
        say(f"{name} uses {answer.name} now; runtimes take it with their next start")


@engine.command("remove", short_help="Remove one build.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_here)
@click.argument("build", shell_complete=builds_here)
@shared_options
@pass_session
def remove(session: Session, name: str, build: str) -> None:
    """Take BUILD of ENGINE off this machine. One that a runtime runs on, or names, is refused."""

    async def ask() -> RemovedBuilds:
        async with session.daemon() as daemon:
            return await daemon.remove_engine(name, build)

    _show_removed(session, asyncio.run(ask()), "removed")


@engine.command("prune", short_help="Remove builds that nothing uses.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_here)
@click.option("--apply", is_flag=True, help="Do it; without, only say what would go.")
@shared_options
@pass_session
def prune(session: Session, name: str, apply: bool) -> None:
    """Take away every build of ENGINE but the one in use, the one before it, and those that runtimes use."""

    async def ask() -> RemovedBuilds:
        async with session.daemon() as daemon:
            return await daemon.prune_engine(name, apply=apply)

    _show_removed(session, asyncio.run(ask()), "removed" if apply else "would remove (--apply does it)")


def describe_machine(machine: Machine) -> str:
    """What the choice was made by, in one line."""
    glibc = f"glibc {machine.glibc[0]}.{machine.glibc[1]}" if machine.glibc != (0, 0) else "no glibc"
    parts = [machine.platform, glibc, f"Python {machine.python[0]}.{machine.python[1]}"]
    parts += [f"{gpu.name} ({gpu.capability[0]}.{gpu.capability[1]})" for gpu in machine.gpus]
    if machine.driver:
        parts.append(f"driver {'.'.join(str(number) for number in machine.driver)}")
    parts += [f"a card of {maker}" for maker in machine.other_gpus]
    return ", ".join(parts if machine.gpus or machine.other_gpus else [*parts, "no card"])


def _show_plan(answer: EnginePlan) -> None:
    say(f"{answer.engine} on {answer.machine}:")
    rows = [(*_use(verdict), verdict) for verdict in answer.verdicts]
    versions = max((len(verdict.version) for verdict in answer.verdicts), default=0)
    variants = max((len(verdict.variant) for verdict in answer.verdicts), default=0)
    for use, why, verdict in rows:
        say(f"  {use:4} {verdict.version:{versions}}  {verdict.variant:{variants}}  {why}".rstrip())
    for mirror in answer.mirrors:
        say(f"  from {mirror}")
    if not answer.chosen:
        say("No build can be had; set runtimes.<id>.build to an executable of your own.")


def _use(verdict: BuildVerdict) -> tuple[str, str]:
    """What becomes of the build, in four letters, and why."""
    if verdict.reasons:
        return "not", "; ".join(verdict.reasons)
    return ("take", "") if verdict.chosen else ("also", "when that fails")


def _row(build: EngineBuild) -> tuple[str, ...]:
    use = "active" if build.active else "previous" if build.previous else "-"
    runtimes = ", ".join(build.used_by) or "-"
    size = f"{build.size_bytes >> 20} MiB"
    return (build.engine, build.name, build.version, build.variant or "-", use, _check_word(build), size, runtimes)


def _check_word(build: EngineBuild) -> str:
    if build.check is None:
        return "-"
    return "outdated" if build.check_stale else "ok" if build.check.ok else "failed"


def _show_removed(session: Session, answer: RemovedBuilds, verb: str) -> None:
    if session.json:
        show_json(answer)
    else:
        say(f"{verb}: {', '.join(answer.builds) or 'nothing'}")
