"""`/v1/engines…`: builds of engines on this machine: list, install, go back, remove, prune."""

from pathlib import Path

import falcon
import falcon.asgi
import msgspec

from core.config.folders import engines_directory
from core.engines import EngineBuild, EngineList, InstallRequest, PruneRequest, RemovedBuilds, RemoveRequest
from core.message import Message
from daemon.hardware.sampler import Sampler
from daemon.jobs import Jobs, Report
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.local_api.jobs import job_lines
from daemon.node import Node
from engines.builds import (
    find_build,
    list_builds,
    list_engines,
    prunable_builds,
    prune_builds,
    read_active,
    read_manifest,
    remove_build,
    roll_back,
)
from engines.checked import is_stale, read_check
from engines.digests import recipe_for
from engines.install import install_build
from engines.machine import add_hardware, read_machine
from engines.mirror import packages_for
from engines.plan import select_builds
from engines.recipe import load_recipe


class _Engines:
    """What every resource here needs to know of the node."""

    role = Role.ADMIN

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _folder(self) -> Path:
        return engines_directory(self._node.config_use.loaded.config, self._node.preparer.layout)

    def _users(self, engine: str) -> dict[str, list[str]]:
        """Build -> the runtimes that run on it or name it."""
        users: dict[str, list[str]] = {}
        for runtime_id, runtime in self._node.config_use.loaded.config.runtimes.items():
            record = self._node.controller(runtime_id).record
            runs_on = record.build if record is not None and record.engine == engine else ""
            named = runtime.build if runtime.engine == engine else ""
            for name in {runs_on, named} - {""}:
                users.setdefault(name, []).append(runtime_id)
        return users

    def _describe(self, engine: str) -> list[EngineBuild]:
        """Every build of the engine, by name."""
        folder, users = self._folder / engine, self._users(engine)
        state, current = read_active(folder), find_build(engine, "", self._folder)
        described = []
        for build in sorted(list_builds(engine, self._folder), key=lambda build: build.name):
            manifest, check = read_manifest(folder / build.name), read_check(folder / build.name)
            described.append(
                EngineBuild(
                    engine=engine,
                    name=build.name,
                    version=build.version,
                    variant=manifest.variant if manifest else "",
                    path=str(folder / build.name),
                    source=manifest.source if manifest else "",
                    active=current is not None and build.name == current.name,
                    previous=build.name == state.previous,
                    used_by=sorted(users.get(build.name, [])),
                    size_bytes=manifest.size_bytes if manifest else 0,
                    check=check,
                    check_stale=check is not None and is_stale(check, build.version),
                )
            )
        return described


class Engines(_Engines):
    """Every build that is here."""

    role = Role.GATEWAY

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        builds = [build for engine in list_engines(self._folder) for build in self._describe(engine)]
        _answer(resp, EngineList(builds=builds))


class EngineInstall(_Engines):
    """Install the best build of an engine for this machine, or one by its version and variant."""

    def __init__(self, node: Node, jobs: Jobs, sampler: Sampler) -> None:
        super().__init__(node)
        self._jobs = jobs
        self._sampler = sampler

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, engine: str) -> None:
        request = await read_body(req, InstallRequest)
        # What nobody can install is an error of this request, not of a job.
        recipe = recipe_for(engine, self._node.config_use.loaded.config)
        select_builds(recipe, request.version, request.variant)
        key = f"install {engine} {request.version} {request.variant}"
        resp.content_type = "application/x-ndjson"
        resp.stream = job_lines(self._jobs.run(key, lambda report: self._install(engine, request, report)))

    async def _install(self, engine: str, request: InstallRequest, report: Report) -> str:
        node = self._node
        config = node.config_use.loaded.config
        build = await install_build(
            engine,
            engines_dir=self._folder,
            packages=packages_for(engine, config),
            progress=report,
            version=request.version,
            variant=request.variant,
            recipe=recipe_for(engine, config),
            machine=add_hardware(read_machine(), await self._sampler.refresh()),
        )
        node.retry_missing()
        return build.name


class EngineRollback(_Engines):
    """Use the build before this one again; runtimes take it with their next start."""

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, engine: str) -> None:
        load_recipe(engine)
        build = await roll_back(engine, self._folder)
        _answer(resp, next(one for one in self._describe(engine) if one.name == build.name))


class EngineRemove(_Engines):
    """Take one build away."""

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, engine: str) -> None:
        request = await read_body(req, RemoveRequest)
        load_recipe(engine)
        await remove_build(engine, request.build, self._folder, self._users(engine))
        _answer(resp, RemovedBuilds(builds=[request.build]))


class EnginePrune(_Engines):
    """Take away what is not used, was not used last, and is named by nobody."""

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, engine: str) -> None:
        request = await read_body(req, PruneRequest)
        load_recipe(engine)
        users = self._users(engine)
        if request.apply:
            _answer(resp, RemovedBuilds(builds=await prune_builds(engine, self._folder, users)))
        else:
            _answer(resp, RemovedBuilds(builds=prunable_builds(engine, self._folder, users)))


def _answer(resp: falcon.asgi.Response, message: Message) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(message)
