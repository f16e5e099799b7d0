"""What the route table is made of, as it stands now: one view for each runtime of the config."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from core.config.schema import Config
from daemon.adapters import AdapterDesk
from daemon.routes import RuntimeView
from daemon.runtimes.controller import RuntimeController
from daemon.runtimes.prepare import Preparer
from engines.keys import is_given_key
from engines.registry import get_adapter


def view_runtimes(
    config: Config,
    controllers: Mapping[str, RuntimeController],
    preparer: Preparer,
    held: Collection[str],
    adapters: AdapterDesk,
) -> Mapping[str, RuntimeView]:
    """`held` are those that an operator stopped."""
    return {
        runtime_id: replace(
            _view(config, controller, preparer, hold=runtime_id in held), adapters=adapters.usable(controller)
        )
        for runtime_id, controller in controllers.items()
        if runtime_id in config.runtimes
    }


def _view(config: Config, controller: RuntimeController, preparer: Preparer, *, hold: bool) -> RuntimeView:
    runtime_id = controller.runtime_id
    runtime = config.runtimes[runtime_id]
    adapter = get_adapter(runtime.engine)
    return RuntimeView(
        state=controller.state,
        reason=controller.reason,
        port=controller.port,
        key_file=str(preparer.key_path(runtime_id)) if is_given_key(adapter, runtime) else "",
        adapter=adapter,
        hold=hold,
        ejected=controller.ejected,
    )
