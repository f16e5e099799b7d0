"""`llmgw engine-check`: whether a build of an engine is what llmgw takes it for."""

import asyncio
from pathlib import Path

import click

from cli.output import say, show_json
from cli.session import Session, pass_session, shared_options
from core.config.load import ConfigMissing, load_config
from core.config.problem import ConfigErrors
from core.config.schema import Config
from core.engines import CheckReport
from core.errors import NotFoundError, UnavailableError
from core.hardware import Finding
from core.process import run_process
from engines.adapter import Build, EngineAdapter, EngineSpec, NodeFacts
from engines.builds import find_build
from engines.check import FAILED, check_help, help_command
from engines.registry import get_adapter
from engines.trial import try_engine

_HELP_S = 180.0
_CONTEXT = 512


@click.command("engine-check", short_help="Check that an engine's build is what llmgw takes it for.")
@click.argument("name", metavar="ENGINE")
@click.option(
    "--bin", "executable", metavar="PATH", default="", help="An executable of your own, not the build in use."
)
@click.option("--model", metavar="PATH", default="", help="A small model; with it the engine is started and asked.")
@click.option("--help-output", metavar="FILE", default="", help="A help that was saved; the engine is not run.")
@shared_options
@pass_session
@click.pass_context
def engine_check(
    context: click.Context, session: Session, name: str, executable: str, model: str, help_output: str
) -> None:
    """Hold every flag that llmgw may use against ENGINE's own help, and with --model try the engine itself.

    The trial starts it on this machine for a moment: whether it serves, demands its key, answers, counts what llmgw
    reads, and stops computing when a client leaves. Exit code 9 when something blocks.
    """
    adapter = get_adapter(name)
    build, findings = asyncio.run(_check(session, adapter, executable, model, help_output))
    report = CheckReport(engine=name, build=build, ok=all(one.status != FAILED for one in findings), findings=findings)
    if session.json:
        show_json(report)
    else:
        for finding in findings:
            say(f"{finding.status:8} {finding.check}: {finding.found}")
            if finding.remedy:
                say(f"         {finding.remedy}")
    if not report.ok:
        context.exit(UnavailableError.exit_code)


async def _check(
    session: Session, adapter: EngineAdapter, executable: str, model: str, help_output: str
) -> tuple[str, list[Finding]]:
    if help_output:
        return help_output, check_help(adapter, _read(help_output))
    build = _build(session, adapter.name, executable)
    argv, environment = help_command(adapter, build)
    # PATH and HOME as an engine has them; it may print its help on either stream, and end with any code.
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
    done = await run_process(argv, timeout_s=_HELP_S, env=environment, check=False, limit_bytes=16 << 20)
    findings = check_help(adapter, (done.stdout + done.stderr).decode("utf-8", "replace"))
    if model:
        findings += await _try(adapter, build, Path(model).absolute())
    return build.name, findings


async def _try(adapter: EngineAdapter, build: Build, model: Path) -> list[Finding]:
    if not model.exists():
        raise NotFoundError(f"there is no model at {model}", code="weights_missing")
    spec = EngineSpec("check", adapter.name, ("check",), 1, weights=model, context_length=_CONTEXT, max_concurrency=2)
    return await try_engine(adapter, spec, build, NodeFacts(cpu_count=2, memory_total_mib=4096))


def _build(session: Session, engine: str, executable: str) -> Build:
    if executable:
        executable = str(Path(executable).absolute())
    try:
        config = load_config(session.layout, session.environment()).config
    except (ConfigErrors, ConfigMissing):
        config = Config()
    folder = Path(config.paths.engines) if config.paths.engines else session.layout.engines
    build = find_build(engine, executable, folder)
    if build is None:
        raise NotFoundError(
            f"no build of {engine} is installed",
            hint=f"llmgw engine install {engine}, or name one of your own with --bin",
            code="engine_build_missing",
        )
    return build


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}", code="help_unreadable") from error
