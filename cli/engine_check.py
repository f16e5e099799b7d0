"""`llmgw engine-check`: whether a build of an engine is what llmgw takes it for."""

import asyncio
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack

import click

from cli.completion import builds_here, engines_here
from cli.machine_hardware import config_or_defaults, engines_directory, read_hardware
from cli.output import note, say, show_json
from cli.session import Session, pass_session, shared_options
from core import VERSION
from core.engines import BuildCheck, CheckReport
from core.errors import NotFoundError, UnavailableError, UsageError
from core.files import StorageError
from core.hardware import Finding
from core.process import run_process
from engines.adapter import Build, EngineAdapter, EngineSpec, NodeFacts
from engines.builds import find_build, how_to_install, own_build, read_named
from engines.card_trial import try_on_card
from engines.check import check_help, help_command
from engines.checked import judge, keep_check
from engines.registry import get_adapter
from engines.trial import try_engine

_HELP_S = 180.0
_CONTEXT = 512
_CHAT = "/v1/chat/completions"


class Given(TypedDict):
    """The options as click passes them; empty: not given."""

    executable: str
    build_name: str
    gpu: str
    model: str
    help_output: str


@click.command("engine-check", short_help="Check that an engine's build is what llmgw takes it for.")
@click.argument("name", metavar="ENGINE", shell_complete=engines_here)
@click.option(
    "--bin", "executable", metavar="PATH", default="", help="An executable of your own, not the build in use."
)
@click.option(
    "--build",
    "build_name",
    metavar="NAME",
    default="",
    shell_complete=builds_here,
    help="An installed build, not the one in use.",
)
@click.option("--gpu", metavar="UUID", default="", help="With --model: on this card, by uuid and by number.")
@click.option("--model", metavar="PATH", default="", help="A small model; with it the engine is started and asked.")
@click.option("--help-output", metavar="FILE", default="", help="A help that was saved; the engine is not run.")
@shared_options
@pass_session
@click.pass_context
def engine_check(context: click.Context, session: Session, name: str, **given: Unpack[Given]) -> None:
    """Hold every flag that llmgw may use against ENGINE's own help, and with --model try the engine itself.

    The trial starts it on this machine for a moment: whether it serves, demands its key, answers, counts what llmgw
    reads, and stops computing when a client leaves. What is found of an installed build is kept with it, and one that
    failed is not used. Exit code 9 when something blocks.
    """
    adapter = get_adapter(name)
    if given["gpu"] and not given["model"]:
        raise UsageError("--gpu needs --model: the engine is started on the card")
    if given["model"] and _CHAT not in adapter.routes:
        raise UsageError(
            f"{name} does not chat, and is tried on no model", hint=f"llmgw engine-check {name} looks at its flags"
        )
    looked = asyncio.run(_look(session, adapter, given))
    ok, kept = judge(looked.findings), _keep(session, given, looked)
    report = CheckReport(engine=name, build=looked.name, ok=ok, kept=kept, findings=looked.findings)
    if session.json:
        show_json(report)
    else:
        for finding in looked.findings:
            say(f"{finding.status:8} {finding.check}: {finding.found}")
            if finding.remedy:
                say(f"         {finding.remedy}")
        if kept and not ok:
            say(f"{looked.name} is not used any more, until a check finds it good")
    if not report.ok:
        context.exit(UnavailableError.exit_code)


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at, and what was found."""

    name: str
    findings: list[Finding]
    build: Build | None = None
    """None: only a saved help."""
    takes_uuids: bool | None = None


async def _look(session: Session, adapter: EngineAdapter, given: Given) -> Looked:
    if given["help_output"]:
        return Looked(given["help_output"], check_help(adapter, _read(given["help_output"])))
    build = _build(session, adapter.name, given)
    argv, environment = help_command(adapter, build)
    # A home of its own: vLLM writes caches there for its help alone. It may print that on either stream, and end with
    # any code.
    with tempfile.TemporaryDirectory(prefix="llmgw-check-") as home:
        environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home}
        done = await run_process(argv, timeout_s=_HELP_S, env=environment, check=False, limit_bytes=16 << 20)
    findings = check_help(adapter, (done.stdout + done.stderr).decode("utf-8", "replace"))
    if not given["model"]:
        return Looked(build.name, findings, build)
    tried, takes_uuids = await _try(session, adapter, build, given)
    return Looked(build.name, findings + tried, build, takes_uuids)


async def _try(
    session: Session, adapter: EngineAdapter, build: Build, given: Given
) -> tuple[list[Finding], bool | None]:
    model, gpu = Path(given["model"]).absolute(), given["gpu"]
    if not model.exists():
        raise NotFoundError(f"there is no model at {model}", code="weights_missing")
    spec = EngineSpec("check", adapter.name, ("check",), 1, weights=model, context_length=_CONTEXT, max_concurrency=2)
    facts = NodeFacts(cpu_count=2, memory_total_mib=4096)
    if not gpu:
        return await try_engine(adapter, spec, build, facts), None
    cards = tuple((await read_hardware(session)).cards)
    if not any(card.uuid == gpu for card in cards):
        raise NotFoundError(f"there is no card {gpu[:80]!r}", hint="llmgw hardware", code="card_unknown")
    return await try_on_card(adapter, replace(spec, devices=(gpu,)), build, replace(facts, cards=cards))


def _keep(session: Session, given: Given, looked: Looked) -> bool:
    """Write it down with the build, if that is one of ours. Whoever may not is told."""
    build = looked.build
    if build is None or given["executable"] or build.version in ("own", "system"):
        return False
    check = BuildCheck(
        ok=judge(looked.findings),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        llmgw_version=VERSION,
        engine_version=build.version,
        tried=bool(given["model"]),
        takes_uuids=looked.takes_uuids,
        findings=looked.findings,
    )
    try:
        keep_check(engines_directory(session) / build.engine / build.name, check)
    except StorageError as error:
        note(f"what was found is not kept: {error.message}")
        return False
    return True


def _build(session: Session, engine: str, given: Given) -> Build:
    folder, name, executable = engines_directory(session), given["build_name"], given["executable"]
    own = config_or_defaults(session).engines.own_build(engine)
    if name:
        build = read_named(engine, name, folder)
    elif own is not None and not executable:
        build = own_build(engine, own)
    else:
        build = find_build(engine, str(Path(executable).absolute()) if executable else "", folder)
    if build is None:
        raise NotFoundError(
            f"no build {name or 'that is used'} of {engine} is installed",
            hint=f"{how_to_install(engine)}, or name one of your own with --bin",
            code="engine_build_missing",
        )
    return build


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}", code="help_unreadable") from error
