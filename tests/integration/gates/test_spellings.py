"""What a gate does not let through is not let through in any spelling: one table, sent byte for byte."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.upstream import FakeUpstream
from tests.integration.daemon.stack import ROOT, free_port
from tests.integration.gates.bench import KEY, running

DENIED = [
    ("POST", "/free"), ("POST", "/history"), ("GET", "/settings"), ("POST", "/settings"), ("GET", "/users"),
    ("POST", "/users"), ("GET", "/userdata"), ("GET", "/userdata/x.json"), ("POST", "/userdata/x.json"),
    ("GET", "/internal/logs"), ("GET", "/internal/folder_paths"), ("GET", "/internal/files/output"),
    ("GET", "/models"), ("GET", "/models/checkpoints"), ("GET", "/embeddings"), ("GET", "/extensions"),
    ("GET", "/view_metadata/checkpoints"), ("POST", "/upload/mask"), ("POST", "/customnode/install"),
    ("GET", "/customnode/getlist"), ("POST", "/manager/reboot"), ("GET", "/manager/queue/start"),
    ("POST", "/v2/manager/queue/task"), ("POST", "/externalmodel/getlist"), ("GET", "/system_stats"), ("GET", "/"),
    ("GET", "/index.html"), ("GET", "/features"), ("GET", "/jobs"), ("GET", "/ws"), ("GET", "/asked"),
    ("POST", "/files"), ("DELETE", "/files"), ("POST", "/ws"), ("DELETE", "/upload/image"), ("PATCH", "/view"),
    ("PUT", "/prompt"), ("DELETE", "/queue"), ("DELETE", "/history"), ("POST", "/view"), ("POST", "/object_info"),
]  # fmt: skip


def spellings(path: str) -> Iterator[str]:
    """The path as it is, and as a server that is more forgiving than ours would read it."""
    rest = path.lstrip("/")
    yield from (path, f"/api{path}", f"/api/api{path}", f"/API{path}", f"//{rest}", f"/api//{rest}", f"/./{rest}")
    yield from (f"/prompt/..{path}", f"/view/../{rest}", f"/api/..{path}", f"/queue/%2e%2e{path}", f"/x/..;{path}")
    yield from (f"{path}/", f"{path}//", f"{path}/.", f"{path};x=1", f"{path}?x=1", f"{path}?", f"{path}%00")
    yield from (f"{path}%20", f"{path}.json", f"/%2f{rest}", f"/%2F{rest}", f"\\{rest}", f"/\\{rest}", f"/%5c{rest}")
    if rest:
        first, others = rest[0], rest[1:]
        yield from (f"/%{ord(first):02x}{others}", f"/%25{ord(first):02x}{others}", f"/{first.upper()}{others}")
        yield from (path.upper(), f"http://127.0.0.1{path}", f"/api/%{ord(first):02X}{others}")
        yield path.replace("/", "%2f")
        yield from (f"/view?filename=x&x=/..{path}", f"/view%3f/..{path}", f"/view%23{path}")


async def send(port: int, method: str, target: str, body: bytes = b"{}") -> int:
    """The answer's status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


async def test_every_denied_route_is_denied_in_every_spelling(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for method, path in DENIED:
            for target in spellings(path):
                status = await send(bench.port, method, target)
                assert status in (400, 404, 405), (method, target, status)
        # The gate's own questions, and nothing that came from outside.
        asked = {line.split("?")[0] for line in await bench.asked()}
        assert asked <= {"GET /system_stats", "GET /asked", "GET /ws", "GET /queue"}, asked


VIEWS = [
    "filename=a.png&filename=b.png", "filename=a.png&type=output&type=input", "filename=..%2f..%2fetc%2fpasswd",
    "filename=/etc/passwd", "filename=a.png&subfolder=..", "filename=a.png&subfolder=OWN/../other",
    "filename=a.png&subfolder=OWN%2f..%2fother", "filename=a.png&subfolder=", "filename=a.png",
    "filename=a.png&subfolder=OWNx", "filename=a.png&subfolder=/OWN", "filename=a.png&subfolder=./OWN",
    "filename=a.png&type=temp", "filename=a.png&type=../output", "filename=OWN/a.png", "filename=%ff",
    "filename=a.png%20%5Boutput%5D&subfolder=OWN", "filename=a.png&subfolder=OWN&folder=x", "", "filename",
    "filename=a.png%00&subfolder=OWN", "Filename=a.png&subfolder=OWN", "filename=a.png;subfolder=OWN",
    "filename=.hidden&subfolder=OWN",
]  # fmt: skip
"""OWN stands for the caller's mark."""


async def test_nothing_outside_the_callers_folder_is_viewed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for folder in ("output", "output/other", "input", "temp", "output/direct"):
            (bench.base / folder).mkdir(exist_ok=True)
            (bench.base / folder / "a.png").write_bytes(b"a picture")
        for query in VIEWS:
            for method in ("GET", "DELETE"):
                status = await send(bench.port, method, f"/view?{query.replace('OWN', 'direct')}")
                assert status in (400, 404), query
        assert not [line for line in await bench.asked() if "view" in line]
        assert await send(bench.port, "GET", "/view?filename=a.png&subfolder=direct") == 200
        folders = ("output", "output/other", "input", "temp", "output/direct")
        assert all((bench.base / folder / "a.png").exists() for folder in folders)
        assert await send(bench.port, "DELETE", "/view?filename=a.png&subfolder=direct") == 204
        assert [(bench.base / folder / "a.png").exists() for folder in folders] == [True] * 4 + [False]


async def test_a_generic_gate_passes_its_list_and_nothing_else(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    port = free_port()
    async with FakeUpstream() as engine:
        gate = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "engines.gates", "generic", "--port", str(port), "--engine-port", str(engine.port)),
            *("--key-file", str(key), "--model=m", "--route=/v1/chat/completions", "--route=/v1/completions"),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert gate.stderr is not None
            assert b"gate_listening" in await gate.stderr.readline()
            body = json.dumps({"model": "m", "messages": []}).encode()
            assert await send(port, "POST", "/v1/chat/completions", body) == 200
            assert "authorization" not in {name.lower() for name in engine.seen[-1].headers}
            seen = len(engine.seen)
            for path in ("/v1/load_lora", "/metrics", "/update_weights", "/v1/embeddings", "/perf_metrics"):
                for target in spellings(path):
                    assert await send(port, "POST", target, body) in (400, 404, 405), target
            for target in spellings("/v1/chat/completions"):
                if target not in ("/v1/chat/completions", "/v1/chat/completions?", "/v1/chat/completions?x=1"):
                    status = await send(port, "POST", target, body)
                    assert status in (400, 404, 405) or target.startswith("http://"), (target, status)
            assert {one.path for one in engine.seen[seen:]} <= {"/v1/chat/completions"}
        finally:
            gate.kill()
            await gate.wait()
