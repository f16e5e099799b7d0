"""What is compared: nginx as the reference, the bare `core.http` gateway, and the gateway itself."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.datapath.app import UPSTREAM_VARIABLE
from tests.bench.datapath.processes import free_port, running

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
def start_nginx(folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(workers=workers, folder=folder, upstream=upstream, port=port))
    argv = ["nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")]
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    with running(argv, env=dict(os.environ, PATH=path), log=folder / "nginx.out") as pid:
        yield Contender("nginx", port, pid)


@contextlib.contextmanager
def start_core(folder: Path, upstream: int, workers: int) -> Iterator[Contender]:
    port = free_port()
    env = dict(
        os.environ, LLMGW_BIND=f"127.0.0.1:{port}", LLMGW_WORKERS=str(workers), PYTHONPATH=str(_ROOT),
        **{UPSTREAM_VARIABLE: str(upstream)},
    )  # fmt: skip
    argv = [
        sys.executable, "-m", "gunicorn", "-c", str(_ROOT / "packaging/gunicorn.conf.py"),
        "tests.bench.datapath.app:create_app()",
    ]  # fmt: skip
    with running(argv, env=env, log=folder / "core.out") as pid:
        yield Contender("core.http + Falcon", port, pid)


CONTENDERS: dict[str, Start] = {"nginx": start_nginx, "core": start_core}
