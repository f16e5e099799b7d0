"""When a wait for a runtime is over, and how: every order ends, with what was asked for or with the reason why not.

Asked after every change of the runtime and after every pass, since what is wanted can change while the runtime does
not. Pure; `daemon/node.py` does the waiting.
"""

from core.config.schema import Config
from core.errors import LlmgwError
from core.runtime import AT_REST, ENDING, RuntimeState
from daemon.admitter import AdmissionRefused
from daemon.intents import Intents, wanted_runtime
from daemon.refusals import RuntimeDisabled, RuntimeStartFailed, ServingStopped, StartOverruled
from daemon.runtimes.controller import RuntimeController


def hindrance(runtime_id: str, config: Config, intents: Intents) -> LlmgwError | None:
    """Why a wish for it changes nothing; None: it does."""
    runtime = config.runtimes.get(runtime_id)
    if runtime is not None and not runtime.enabled:
        return RuntimeDisabled(f"runtime {runtime_id} is disabled", hint=f"set runtimes.{runtime_id}.enabled")
    if not intents.serving:
        return ServingStopped("this node does not serve now", hint="llmgw start")
    return None


def start_ended(controller: RuntimeController, config: Config, intents: Intents) -> tuple[bool, LlmgwError | None]:
    """Whether a wait for `running` is over, and the error that it ends with; without one it runs."""
    error = _overruled(controller, config, intents)
    if error is not None:
        return True, error
    if controller.restart_requested or controller.runtime_id in intents.evicted:
        return False, None  # what is seen of it is still of the life before
    match controller.state:
        case RuntimeState.RUNNING:
            return True, None
        case RuntimeState.FAILED:
            return True, start_failed(controller)
        case RuntimeState.STOPPED if isinstance(controller.error, AdmissionRefused):
            return True, controller.error
        case _:
            return False, None


def stop_ended(controller: RuntimeController, intents: Intents) -> bool:
    """Whether a wait for `stopped` is over: it has stopped, or it goes on because somebody started it again."""
    if controller.state in AT_REST:
        return True
    return controller.runtime_id not in intents.held and controller.state not in ENDING


def start_failed(controller: RuntimeController) -> RuntimeStartFailed:
    """What is said of a start that failed."""
    cause = controller.error
    return RuntimeStartFailed(
        controller.reason or f"runtime {controller.runtime_id} failed",
        hint=cause.hint if cause else f"llmgw logs {controller.runtime_id}",
        code=cause.code if cause else None,
    )


def _overruled(controller: RuntimeController, config: Config, intents: Intents) -> LlmgwError | None:
    """Why it will not come up, whatever it does at present; None: it may."""
    runtime_id = controller.runtime_id
    if runtime_id in intents.held:
        return StartOverruled(f"runtime {runtime_id} was stopped while it was starting")
    if runtime_id not in config.runtimes:
        return StartOverruled(f"runtime {runtime_id} was taken out of the config while it was starting")
    if error := hindrance(runtime_id, config, intents):
        return error
    if runtime_id in intents.requested or wanted_runtime(config, intents, runtime_id).run:
        return None
    if runtime_id in intents.evicted:
        return StartOverruled(f"runtime {runtime_id} was stopped while it was starting: {intents.evicted[runtime_id]}")
    is_refused = controller.state is RuntimeState.STOPPED and isinstance(controller.error, AdmissionRefused)
    if controller.state in (RuntimeState.RUNNING, RuntimeState.FAILED) or is_refused:
        return None  # that is told in better words
    return StartOverruled(f"runtime {runtime_id} was stopped while it was starting")
