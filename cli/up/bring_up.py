"""From running programs to a first answer: daemon there, model there, runtime running, gateway answering.

Nothing here starts or stops a program. Waiting is for events: the daemon's start call answers when the runtime
serves; what cannot tell is asked again with a short backoff.
"""

import asyncio
import time
from dataclasses import dataclass

import msgspec

from cli.adding import Place, install_for, start, together, write_addition
from cli.addition import Request, plan_addition
from cli.asking import needs_key
from cli.output import note
from cli.progress import CutOff
from cli.views import base_url
from core.api import NodeState, RuntimeStatus
from core.client import DaemonClient, DaemonUnavailable
from core.config.schema import Config, Model
from core.errors import DependencyError, LlmgwError, TimedOutError, UnavailableError
from core.http.client import HttpClient, Reply, Unreachable
from core.tasks import Backoff

_DAEMON_S = 30.0
_DAEMON_LIVES = 5
_FIRST_ANSWER_S = 120.0
_QUESTION = "What is the capital of France? Answer in one sentence."
_TRY_AGAIN = frozenset({429, 502, 503, 504})


class NoAnswer(DependencyError):
    """Everything runs, and still no answer came through the gateway."""

    code = "no_answer"


@dataclass(frozen=True, slots=True)
class Serving:
    """What a person wants to know once it serves."""

    url: str
    model_id: str
    models: tuple[str, ...]
    on: str
    answer: str


async def bring_up(place: Place, request: Request | None) -> Serving:
    """`request`: the model to add; None serves what the config has. Raises: the error that explains why not.

    A daemon that goes away in the middle is started again by its owner; then all is done again: every step may be.
    """
    for _ in range(_DAEMON_LIVES - 1):
        try:
            return await _bring_up_once(place, request)
        except (DaemonUnavailable, Unreachable, CutOff):
            note("the daemon went away in the middle; going on when it is back")
    return await _bring_up_once(place, request)


async def _bring_up_once(place: Place, request: Request | None) -> Serving:
    async with DaemonClient(place.layout.daemon_socket) as daemon:
        await wait_daemon(daemon)
        if request is not None and plan_addition(request, place.load().config).changes:
            note(f"adding {request.model_id}")
            await install_for(daemon, request)
            await write_addition(place, request)
            await daemon.reload()
        config = place.load().config
        running = await _start_wanted(daemon, config, request)
        url = base_url(config.server.host, config.server.port, tls=config.server.tls.is_on)
        model = _model_to_ask(config, request, running)
        answer = await _ask(url, model, config) if model is not None else ""
    return Serving(
        url=url,
        model_id=model.id if model else "",
        models=tuple(entry.id for entry in config.models if entry.advertise),
        on=next((status.on for status in running if model and status.id in model.runtimes()), ""),
        answer=answer,
    )


async def wait_daemon(daemon: DaemonClient) -> NodeState:
    """Until the daemon answers on its socket."""
    backoff = Backoff(0.02, 0.2)
    deadline = time.monotonic() + _DAEMON_S
    while True:
        try:
            return await daemon.state()
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise TimedOutError(f"the daemon did not answer within {_DAEMON_S:g} s", code="daemon_slow") from error
        await asyncio.sleep(backoff.next_s())


_KINDS_TO_ASK = ("chat", "embedding")


async def _start_wanted(daemon: DaemonClient, config: Config, request: Request | None) -> list[RuntimeStatus]:
    """Start what is to be kept warm, and what was asked for. Returns what runs.

    One that fails is told and does not stop the others; when none runs, or the one asked for does not, its error
    is raised.
    """
    served_by = next((model.runtimes() for model in config.models if request and model.id == request.model_id), [])
    asked = served_by[0] if served_by else ""
    state = await daemon.state()
    held = {runtime.id for runtime in state.runtimes if runtime.hold}
    wanted = [
        name
        for name, runtime in config.runtimes.items()
        if runtime.enabled and (name == asked or (runtime.keep_warm and name not in held))
    ]
    for name in sorted(held & config.runtimes.keys() - {asked}):
        note(f"{name} stays stopped, as an operator left it; llmgw runtime-start {name} brings it back")
    failures: dict[str, LlmgwError] = {}
    running: list[RuntimeStatus] = []

    async def one(name: str) -> str:
        try:
            running.append(await start(daemon, name))
        except (DaemonUnavailable, Unreachable):
            raise
        except LlmgwError as error:
            failures[name] = error
        return name

    if wanted:
        note(f"starting {', '.join(wanted)}")
    await together([one(name) for name in wanted])
    fatal = failures.get(asked) or (next(iter(failures.values()), None) if not running else None)
    if fatal is not None:
        raise fatal
    for error in failures.values():
        note(error.render())
    return running


def _model_to_ask(config: Config, request: Request | None, running: list[RuntimeStatus]) -> Model | None:
    """The model for the first question: the one asked for, else the first that runs. A painter is asked nothing."""
    ids = {status.id for status in running if status.engine != "comfyui"}
    ready = [model for model in config.models if ids.intersection(model.runtimes()) and model.kind in _KINDS_TO_ASK]
    return next((model for model in ready if request and model.id == request.model_id), ready[0] if ready else None)


async def _ask(url: str, model: Model, config: Config) -> str:
    """The first question, with a key of the config's where one is demanded. Raises: NoAnswer.

    Of keys that were made nobody knows more than the hash: then there is nothing to ask with.
    """
    key = next(iter((*config.security.api_keys, *config.security.admin_api_keys)), "") if needs_key(config) else ""
    if needs_key(config) and not key:
        note("no first question was asked: it takes a key, and the config has none")
        return ""
    return await first_answer(url, model, key)


async def first_answer(url: str, model: Model, key: str) -> str:
    """Ask the gateway one real question. Returns the model's words (empty for an embedding). Raises: NoAnswer."""
    path, body = _question(model)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    backoff = Backoff(0.02, 1.0)
    deadline = time.monotonic() + _FIRST_ANSWER_S
    async with HttpClient(base_url=url) as http:
        while True:
            try:
                # Our own gateway: its certificate may well name another host than the address that we ask.
                reply = await http.fetch(
                    "POST", path, headers=headers, body=body, timeout_s=_FIRST_ANSWER_S, verify=False
                )
            except UnavailableError as error:
                said = error.message
            else:
                if reply.status == 200:
                    return read_answer(reply.body)
                said = _complaint(reply)
                if reply.status not in _TRY_AGAIN:
                    raise NoAnswer(f"the gateway answered {reply.status} for {model.id}: {said}")
            if time.monotonic() > deadline:
                raise NoAnswer(f"no answer for {model.id} within {_FIRST_ANSWER_S:g} s: {said}")
            await asyncio.sleep(backoff.next_s())


def _question(model: Model) -> tuple[str, bytes]:
    if model.kind == "embedding":
        return "/v1/embeddings", msgspec.json.encode({"model": model.id, "input": "hello"})
    messages = [{"role": "user", "content": _QUESTION}]
    body = {"model": model.id, "messages": messages, "max_tokens": 24, "temperature": 0}
    return "/v1/chat/completions", msgspec.json.encode(body)


class _ChatMessage(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage = msgspec.field(default_factory=_ChatMessage)


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []


def read_answer(body: bytes) -> str:
    """The words of a chat completion; empty for anything else."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError:
        return ""
    return (answer.choices[0].message.content or "").strip() if answer.choices else ""


def _complaint(reply: Reply) -> str:
    return " ".join(reply.body[:300].decode("utf-8", "replace").split())
