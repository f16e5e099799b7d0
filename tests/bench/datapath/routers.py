"""Other people's routers, compared where they are installed: `sglang-router`, `vllm-router`, `litellm`.

None of them is a dependency of ours, and each wants its own environment: `LLMGW_BENCH_ROUTERS` names folders (as PATH
does) in which their programs are looked for besides PATH. They run as their own help says, without retries of what
does not fail here; none of them checks a key of its own here but litellm, which logs and counts as the gateway does.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.datapath.app import KEY
from tests.bench.datapath.processes import free_port, running

SEARCH_VARIABLE = "LLMGW_BENCH_ROUTERS"
ROUTERS = ("sglang-router", "vllm-router", "litellm")

_LITELLM = """
model_list:
  - model_name: m1
    litellm_params: {{model: openai/m1, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-engine}}
general_settings: {{master_key: "{key}"}}
"""


def find_router(name: str) -> str | None:
    """The program's path, or None when it is not installed."""
    places = os.pathsep.join((os.environ.get(SEARCH_VARIABLE, ""), os.environ.get("PATH", "")))
    return shutil.which(name, path=places)


def read_version(name: str) -> str:
    """What the router's own environment says that it is; empty when it does not say."""
    program = find_router(name)
    interpreter = Path(program).parent / "python3" if program else Path()
    if not interpreter.is_file():
        return ""
    ask = f"from importlib.metadata import version; print(version('{name}'))"
    done = subprocess.run([str(interpreter), "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@contextlib.contextmanager
def start_router(name: str, folder: Path, upstream: int, workers: int) -> Iterator[tuple[int, int]]:
    """Run the router in front of the engine; gives its port and pid. `workers` counts only for litellm."""
    program = find_router(name)
    if program is None:
        raise FileNotFoundError(f"{name} is not installed: put its folder into {SEARCH_VARIABLE}")
    port = free_port()
    argv = [program, *_ARGUMENTS[name](folder, upstream, port, workers)]
    # litellm asks the network for prices first, unless it is told to use what it brought.
    env = dict(os.environ, LITELLM_LOCAL_MODEL_COST_MAP="True")
    with running(argv, env=env, log=folder / f"{name}.out") as pid:
        yield port, pid


def _router_arguments(folder: Path, upstream: int, port: int, workers: int) -> list[str]:
    """sglang's and vllm's are one family, in Rust; both use as many threads as there are processors."""
    return [
        "--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://127.0.0.1:{upstream}",
        "--policy", "round_robin", "--prometheus-port", str(free_port()),
    ]  # fmt: skip


def _sglang_arguments(folder: Path, upstream: int, port: int, workers: int) -> list[str]:
    return ["launch", *_router_arguments(folder, upstream, port, workers)]


def _litellm_arguments(folder: Path, upstream: int, port: int, workers: int) -> list[str]:
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM.format(upstream=upstream, key=KEY))
    return ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", str(workers)]


_ARGUMENTS: dict[str, Callable[[Path, int, int, int], list[str]]] = {
    "sglang-router": _sglang_arguments,
    "vllm-router": _router_arguments,
    "litellm": _litellm_arguments,
}
