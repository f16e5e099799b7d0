"""What is compared: nginx as the reference, the bare `core.http` gateway, the gateway itself, and installed routers."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from core.api import ApiKey, RouteModel, RouteTable, RouteTarget, SecurityPolicy
from core.paths import Layout
from tests.bench.datapath.app import KEY, UPSTREAM_VARIABLE
from tests.bench.datapath.processes import free_port, running
from tests.bench.datapath.routers import ROUTERS, find_router, start_router

_ROOT = Path(__file__).resolve().parents[3]

_NGINX = """
worker_processes {workers}; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 8192; }}
http {{
    access_log off; keepalive_requests 10000000; client_max_body_size 64m; client_body_buffer_size 8m;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream engine {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engine; proxy_http_version 1.1; proxy_buffering off;
            proxy_set_header Connection ""; proxy_set_header Authorization "Bearer sk-engine";
        }}
    }}
}}
"""


@dataclass(frozen=True)
class Contender:
    """A running proxy in front of the engine."""

    name: str
    port: int
    pid: int


Start = Callable[[Path, int, int], contextlib.AbstractContextManager[Contender]]
"""Called with a folder for files, the engine's port and the number of workers."""


@contextlib.contextmanager
def start_nginx(folder: Path, upstream: int, workers: int, *, under: Sequence[str] = ()) -> Iterator[Contender]:
    """`under` is the command of a program that runs and watches it; then it is one process."""
    port = free_port()
    config = folder / "nginx.conf"
    alone = "master_process off;" if under else ""
    config.write_text(alone + _NGINX.format(workers=workers, folder=folder, upstream=upstream, port=port))
    argv = [*under, "nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")]
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    with running(argv, env=dict(os.environ, PATH=path), log=folder / "nginx.out") as pid:
        yield Contender("nginx", port, pid)


@contextlib.contextmanager
def start_falcon(folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    with _start_core(folder, upstream, workers, "core + Falcon", "create_app()") as contender:
        yield contender


@contextlib.contextmanager
def start_core(folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    with _start_core(folder, upstream, workers, "core", "create_app(direct=True)") as contender:
        yield contender


@contextlib.contextmanager
def _start_core(folder: Path, upstream: int, workers: int, name: str, factory: str) -> Iterator[Contender]:
    port = free_port()
    env = dict(
        os.environ, LLMGW_BIND=f"127.0.0.1:{port}", LLMGW_WORKERS=str(workers), PYTHONPATH=str(_ROOT),
        **{UPSTREAM_VARIABLE: str(upstream)},
    )  # fmt: skip
    argv = [
        sys.executable, "-m", "gunicorn", "-c", str(_ROOT / "packaging/gunicorn.conf.py"),
        f"tests.bench.datapath.app:{factory}",
    ]  # fmt: skip
    with running(argv, env=env, log=folder / f"{name}.out") as pid:
        yield Contender(name, port, pid)


@contextlib.contextmanager
def start_gateway(folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    """The real one, with keys, request lines and a route table from a daemon's socket."""
    port = free_port()
    settings = str(_ROOT / "packaging/gunicorn.conf.py")
    argv = [sys.executable, "-m", "gunicorn", "-c", settings, "gateway.app:create_app()"]
    with gateway_environment(folder, upstream) as environment:
        env = environment | {"LLMGW_BIND": f"127.0.0.1:{port}", "LLMGW_WORKERS": str(workers)}
        with running(argv, env=env, log=folder / "gateway.out") as pid:
            yield Contender("gateway", port, pid)


@contextlib.contextmanager
def gateway_environment(folder: Path, upstream: int) -> Iterator[dict[str, str]]:
    """What a gateway finds: its state in `folder`, and a daemon there that names the engine at port `upstream`."""
    state = folder / "state"
    layout = Layout.under(state)
    layout.runtime.mkdir(parents=True)
    layout.gateway_state.mkdir(parents=True)
    key_file = folder / "engine.key"
    key_file.write_text("sk-engine")
    table = folder / "table.json"
    table.write_bytes(msgspec.json.encode(_table(upstream, key_file)))
    env = dict(os.environ, PYTHONPATH=str(_ROOT), LLMGW_STATE=str(state))
    serve = f'exec "$0" -m tests.fakes.daemon_socket "{layout.daemon_socket}" < "{table}"'
    with running(["sh", "-c", serve, sys.executable], env=env, log=folder / "daemon.out"):
        yield env


def _table(upstream: int, key_file: Path) -> RouteTable:
    target = RouteTarget(
        id="t1", runtime="r1", host="127.0.0.1", port=upstream, ready=True, state="running", key_file=str(key_file),
        routes=["/v1/chat/completions"], max_concurrency=4096,
    )  # fmt: skip
    key = ApiKey(sha256=hashlib.sha256(KEY.encode()).hexdigest(), name="bench")
    policy = SecurityPolicy(allow_missing_auth=False)
    models = [RouteModel(id="m1", targets=[target])]
    return RouteTable(version=1, epoch="bench", node="bench", models=models, keys=[key], security=policy)


@contextlib.contextmanager
def _start_other(name: str, folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    with start_router(name, folder, upstream, workers) as (port, pid):
        yield Contender(name, port, pid)


_OURS: dict[str, Start] = {
    "nginx": start_nginx,
    "falcon": start_falcon,
    "core": start_core,
    "gateway": start_gateway,
}
_OTHERS: dict[str, Start] = {name: partial(_start_other, name) for name in ROUTERS if find_router(name)}
CONTENDERS = _OURS | _OTHERS
