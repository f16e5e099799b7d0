"""A runtime that tells of its cache under a whole daemon: where its sockets lie, and who is told."""

import sys
from pathlib import Path

from core.api import KvEventsStatus
from tests.integration.daemon.stack import ROOT, running

FAKE = ROOT / "tests/fakes/vllm_python.py"


async def test_the_sockets_directory_is_the_engines_alone_and_the_status_names_it_also_to_the_next_daemon(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    python.chmod(0o755)
    fields = f"engine: vllm, weights: {tmp_path}, memoryGb: 0.5, gpus: 0"
    config = (
        f"models: [{{id: m, runtime: r}}]\nengines: {{vllm: {{python: {python}}}}}\n"
        f"runtimes: {{r: {{{fields}, options: {{kvEvents: true}}}}, s: {{{fields}}}}}\n"
    )
    async with running(tmp_path, config) as stack:
        before = (await stack.client.start_runtime("r")).kv_events
        assert before is not None
        folder = Path(before.endpoint.removeprefix("ipc://")).parent
        assert folder.parent == stack.layout.sockets
        assert folder.stat().st_mode & 0o777 == 0o700
        assert before == KvEventsStatus(endpoint=f"ipc://{folder}/kv", replay=f"ipc://{folder}/old")
        assert "PYTHONHASHSEED=0" in stack.unit_text("r")
        assert (await stack.client.start_runtime("s")).kv_events is None

        stack.kill(stack.daemon)
        stack.start_daemon()
        assert (await stack.until_runtime("r", "running")).kv_events == before

        assert (await stack.client.stop_runtime("r")).kv_events is None
        assert len(list(stack.layout.sockets.iterdir())) == 1
