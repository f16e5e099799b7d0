"""`/v1/weights/verify`: reads what was fetched again, as a job; when asked, fetches again what is broken."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import falcon
import falcon.asgi

from core.api import Progress
from core.config.folders import weights_directory
from core.config.schema import Config
from core.errors import NotFoundError
from core.runtime import RuntimeState
from core.weights import SOUND, FileState, VerifiedFile, VerifiedWeights, VerifyWeightsRequest
from daemon.jobs import Jobs, Report
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.local_api.jobs import job_lines, read_origins
from daemon.local_api.weights import used_paths, users_of
from daemon.node import Node
from engines.integrity import KeptFile, list_files, verify_files
from engines.mending import mend_file
from engines.sources import PathSource, SourceInvalid, parse_source
from engines.stored import StoredUnit, list_units, units_of


class WeightsNotFetched(NotFoundError):
    """Nothing was fetched that is called so."""

    code = "weights_not_fetched"


class WeightsVerify:
    """Hold fetched files against their digests."""

    role = Role.ADMIN

    def __init__(self, node: Node, jobs: Jobs) -> None:
        self._node = node
        self._jobs = jobs

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, VerifyWeightsRequest)
        chosen, own = self._choose(request.model)
        resp.content_type = "application/x-ndjson"
        key = f"verify{' and mend' if request.apply else ''} {request.model}"
        resp.stream = job_lines(self._jobs.run(key, lambda r: self._verify(chosen, own, request.apply, r)))

    @property
    def _config(self) -> Config:
        return self._node.config_use.loaded.config

    @property
    def _folder(self) -> Path:
        return weights_directory(self._config, self._node.preparer.layout)

    def _choose(self, name: str) -> tuple[list[StoredUnit], list[VerifiedFile]]:
        units = list_units(self._folder)
        return choose(name, units, sources_by_name(self._config), self._folder) if name else (units, [])

    async def _verify(self, units: Sequence[StoredUnit], own: list[VerifiedFile], apply: bool, report: Report) -> str:
        files = list_files(units)
        found = await verify_files(files, report)
        if apply:
            found = await self._mend(files, found, report)
            self._node.retry_missing()
        answer = VerifiedWeights(files=[*own, *found], restart=self._outdated(units, found))
        report(Progress(step="verified", verified=answer))
        broken = sum(file.state not in SOUND for file in found)
        return f"{broken} of {len(answer.files)} files are broken" if broken else "nothing is broken"

    async def _mend(
        self, files: Sequence[KeptFile], found: Sequence[VerifiedFile], report: Report
    ) -> list[VerifiedFile]:
        origins = read_origins(self._node)
        by_path = {str(file.path): file for file in files}
        return [await mend_file(by_path[one.path], one, origins, report) for one in found]

    def _outdated(self, units: Sequence[StoredUnit], found: Sequence[VerifiedFile]) -> list[str]:
        """Runtimes that do not rest, and may have read a file before it was mended."""
        mended = {one.path for one in found if one.state is FileState.MENDED}
        used = used_paths(self._config, self._folder)
        users = {
            user for unit in units if any(unit.holds(Path(path)) for path in mended) for user in users_of(unit, used)
        }
        controllers = self._node.controllers
        rest = (RuntimeState.STOPPED, RuntimeState.FAILED, RuntimeState.QUEUED)
        return sorted(user for user in users if user in controllers and controllers[user].state not in rest)


def sources_by_name(config: Config) -> dict[str, str]:
    """What a runtime and the models that it serves are called -> the source of its weights. Pure."""
    sources = {
        model.id: model.adapter or config.runtimes[runtime_id].weights
        for model in config.models
        for runtime_id in model.runtimes()
        if runtime_id in config.runtimes
    }
    sources |= {runtime_id: runtime.weights for runtime_id, runtime in config.runtimes.items()}
    return {name: source for name, source in sources.items() if source}


def choose(
    name: str, units: Sequence[StoredUnit], sources: Mapping[str, str], folder: Path
) -> tuple[list[StoredUnit], list[VerifiedFile]]:
    """The units that are meant, and the files of the operator's own, of which nothing is known.

    Raises: WeightsNotFetched.
    """
    named = [unit for unit in units if unit.name == name]
    if named and name not in sources:
        return named, []
    text = sources.get(name, name)
    try:
        source = parse_source(text)
    except SourceInvalid:
        raise WeightsNotFetched(
            f"no weights, model or runtime is called {name[:120]!r}", hint="llmgw weights list"
        ) from None
    if isinstance(source, PathSource):
        problem = "is a file of your own: no digest of it was recorded"
        return [], [VerifiedFile(path=text, unit="", state=FileState.NO_DIGEST, problem=problem)]
    made = units_of(source, units, folder)
    if not made:
        raise WeightsNotFetched(
            f"the weights {text[:200]!r} are not on this machine", hint=f"llmgw weights fetch {text}"
        )
    return made, []
