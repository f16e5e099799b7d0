"""`/v1/engines/{engine}/install` and `/v1/weights/fetch`: long operations, reported line by line."""

from collections.abc import AsyncIterator

import falcon
import falcon.asgi
import msgspec

from core.api import WeightsRequest
from daemon.jobs import Job, Jobs, Report
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from daemon.runtimes.prepare import engines_directory, weights_directory
from engines.install import install_build
from engines.recipe import load_recipe
from engines.weights import fetch, parse_source


class EngineInstall:
    """Install the best build of an engine for this machine."""

    role = Role.ADMIN

    def __init__(self, node: Node, jobs: Jobs) -> None:
        self._node = node
        self._jobs = jobs

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, engine: str) -> None:
        load_recipe(engine)  # an engine that nobody can install is an error of this request, not of a job
        resp.content_type = "application/x-ndjson"
        resp.stream = _lines(self._jobs.run(f"install {engine}", lambda report: self._install(engine, report)))

    async def _install(self, engine: str, report: Report) -> str:
        node = self._node
        config = node.config_use.loaded.config
        build = await install_build(
            engine,
            engines_dir=engines_directory(config, node.preparer.layout),
            facts=node.preparer.facts,
            mirror=config.engines.mirror,
            progress=report,
        )
        node.retry_missing()
        return build.name


class WeightsFetch:
    """Bring a model's weights onto this machine."""

    role = Role.ADMIN

    def __init__(self, node: Node, jobs: Jobs) -> None:
        self._node = node
        self._jobs = jobs

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        request = await read_body(req, WeightsRequest)
        parse_source(request.source)
        resp.content_type = "application/x-ndjson"
        resp.stream = _lines(self._jobs.run(f"fetch {request.source}", lambda r: self._fetch(request.source, r)))

    async def _fetch(self, source: str, report: Report) -> str:
        node = self._node
        config = node.config_use.loaded.config
        path = await fetch(
            source,
            weights_dir=weights_directory(config, node.preparer.layout),
            mirror=config.engines.mirror,
            progress=report,
        )
        node.retry_missing()
        return str(path)


async def _lines(job: Job) -> AsyncIterator[bytes]:
    async for line in job.watch():
        yield msgspec.json.encode(line) + b"\n"
