"""`/v1/weights/fetch`, and how a long operation is reported: line by line."""

import os
from collections.abc import AsyncIterator

import falcon
import falcon.asgi
import msgspec

from core.api import WeightsRequest
from core.config.folders import weights_directory
from core.config.load import read_environment_file
from daemon.jobs import Job, Jobs, Report
from daemon.local_api.access import Role
from daemon.local_api.body import read_body
from daemon.node import Node
from engines.origins import Origins, find_origins
from engines.weights import fetch, parse_source


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
        resp.stream = job_lines(self._jobs.run(f"fetch {request.source}", lambda r: self._fetch(request.source, r)))

    async def _fetch(self, source: str, report: Report) -> str:
        node = self._node
        config = node.config_use.loaded.config
        path = await fetch(
            source,
            weights_dir=weights_directory(config, node.preparer.layout),
            origins=read_origins(node),
            progress=report,
        )
        node.retry_missing()
        return str(path)


def read_origins(node: Node) -> Origins:
    """Where weights come from, as the config and the daemon's environment file say."""
    environ = {**read_environment_file(node.preparer.layout.environment), **os.environ}
    return find_origins(node.config_use.loaded.config, environ)


async def job_lines(job: Job) -> AsyncIterator[bytes]:
    """Everything that the job says, one JSON object on each line."""
    async for line in job.watch():
        yield msgspec.json.encode(line) + b"\n"
