"""Traces and certificates on a whole node: what stands in the config is what daemon, gateway and `llmgw status` do."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.fakes.otlp_collector import FakeCollector
from tests.integration.daemon.stack import ROOT
from tests.integration.gateway.certificates import place, served_name
from tests.integration.node.up import Up, one_model
from tests.rewriting import rewrite

BOUND_S = 90.0
TOKEN = "collector-token-7"


def llmgw(up: Up, *words: str) -> str:
    """What the command says, whatever its exit code."""
    command = [sys.executable, "-m", "cli", "--state", str(up.state), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S, check=False).stdout


async def until_status(up: Up, words: str, *, is_there: bool) -> None:
    """Until `llmgw status` says so, or no longer."""
    said = ""
    try:
        async with asyncio.timeout(BOUND_S):
            while (words in said) is not is_there or not said:
                said = await asyncio.to_thread(llmgw, up, "status")
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{words!r} is {'never' if is_there else 'always'} in:\n{said}") from None


async def test_a_collector_that_the_config_names_gets_the_nodes_traces_until_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text(f"TOKEN={TOKEN}\n")
    plain = one_model()
    async with FakeCollector() as collector, Up(tmp_path, plain) as up:
        await up.until_serving(BOUND_S)
        section = "{endpoint: 'http://127.0.0.1:%d', headers: {authorization: 'Bearer ${TOKEN}'}, serviceName: ours}"
        rewrite(tmp_path / "config.yaml", f"{plain}tracing: {section % collector.port}\n")
        async with asyncio.timeout(BOUND_S):
            while not collector.spans:
                await up.chat()
        await collector.wait_spans(2)
        assert collector.headers[0]["authorization"] == f"Bearer {TOKEN}"
        assert collector.paths[0] == "/v1/traces" and collector.spans[0].resource["service.name"] == "ours"
        assert {span.attributes["gen_ai.request.model"] for span in collector.spans} == {"m"}
        kept = [path for path in (tmp_path / "lib" / "gateway").rglob("*") if path.is_file()]
        assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
        assert TOKEN not in llmgw(up, "config", "show") and TOKEN not in (tmp_path / "up.log").read_text()
        rewrite(tmp_path / "config.yaml", plain)
        file = tmp_path / "run" / "keys" / "tracing.headers"
        await up.until(lambda: not file.exists(), BOUND_S)


async def test_a_broken_certificate_is_in_the_status_until_it_is_mended_and_the_old_one_serves(tmp_path: Path) -> None:
    place(tmp_path, "first")
    plain = one_model()
    async with Up(tmp_path, plain) as up:
        await up.until_serving(BOUND_S)
        files = f"{{certFile: {tmp_path / 'cert.pem'}, keyFile: {tmp_path / 'key.pem'}}}"
        rewrite(tmp_path / "config.yaml", plain.replace("workers: 2}", f"workers: 2, tls: {files}}}"))
        address = ("127.0.0.1", up.port)
        await until_shown(address, "first")
        place(tmp_path, "second", "first")
        await until_status(up, "NOT as the config says", is_there=True)
        assert "mismatch" in llmgw(up, "status").lower()
        assert json.loads(llmgw(up, "status", "--json"))["gatewayComplaints"]
        await until_shown(address, "first")
        place(tmp_path, "second")
        await until_shown(address, "second")
        await until_status(up, "NOT as the config says", is_there=False)


async def until_shown(address: tuple[str, int], name: str) -> None:
    """Until a new connection is shown this certificate."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                if await served_name(address) == name:
                    return
            except OSError:  # ssl's errors are some
                pass
            await asyncio.sleep(0.05)
