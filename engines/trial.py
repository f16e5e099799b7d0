"""Starts an engine on a small model, as its adapter says, and looks whether it keeps what the adapter promises of it.

It serves, demands its key, answers one token, has the metrics that the adapter reads, and stops computing when a client
leaves. Run by `llmgw engine-check` on a machine of the operator's, and by the tests against real engines.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from core.errors import LlmgwError
from core.hardware import Finding
from core.http.client import HttpClient, Reply
from core.process import last_lines, run_process
from core.tasks import Backoff
from engines.adapter import KEY_FILE, Build, EngineAdapter, EngineSpec, Health, NodeFacts, Progress
from engines.check import FAILED, OK, WARNING

_CHAT = "/v1/chat/completions"
_ANSWER_S = 120.0
_ABORT_S = 20.0
_POLL_S = 1.5
"""llama.cpp looks for closed connections once a second, and starts that second anew at every other request."""
_PROMPT_TOKENS = 128
"""More than the prompt of a trial has under any template and any tokens."""
_LOG_BYTES = 64 << 20


class Trial:
    """One engine that runs for a while."""

    def __init__(self, adapter: EngineAdapter, spec: EngineSpec, key: str, http: HttpClient) -> None:
        self._adapter = adapter
        self._spec = spec
        self._key = key
        self._http = http

    async def look(self) -> list[Finding]:
        """Everything, in order; what fails does not keep the rest from being looked at."""
        findings = []
        for check, look in (
            ("key", self._key_is_demanded),
            ("answer", self._one_answer),
            ("metrics", self._metrics),
            ("abort", self._abort),
        ):
            try:
                findings.append(await look())
            except (LlmgwError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
                findings.append(Finding(check=check, status=FAILED, found=f"{type(error).__name__}: {error}"[:300]))
        return findings

    async def wait_ready(self, deadline_s: float) -> None:
        """Ask until it serves. Raises: TimeoutError, or ValueError when its health says that it failed."""
        backoff, probe = Backoff(0.05, 0.5), self._adapter.health_probe(self._spec)
        async with asyncio.timeout(deadline_s):
            while True:
                with contextlib.suppress(LlmgwError):
                    reply = await self._ask(probe.path, timeout_s=probe.timeout_s)
                    health = self._adapter.read_health(reply.status, reply.body)
                    if health is Health.READY:
                        return
                    if health is Health.FAILED:
                        raise ValueError(f"{probe.path} answers {reply.status}")
                await asyncio.sleep(backoff.next_s())

    async def _key_is_demanded(self) -> Finding:
        reply = await self._chat(key="wrong")
        if not self._adapter.demands_key:
            return Finding(check="key", status=OK, found="it demands none; a gate must stand before it")
        if reply.status in (401, 403):
            return Finding(check="key", status=OK, found=f"a wrong key is answered with {reply.status}")
        return Finding(
            check="key", status=FAILED, found=f"a wrong key is answered with {reply.status}: everybody may compute"
        )

    async def _one_answer(self) -> Finding:
        reply = await self._chat()
        text = json.loads(reply.body)["choices"][0]["message"]["content"]
        return Finding(check="answer", status=OK if text else FAILED, found=f"{reply.status}: {str(text)[:60]!r}")

    async def _metrics(self) -> Finding:
        if self._adapter.metrics_path is None:
            return Finding(check="metrics", status=OK, found="the adapter reads none")
        progress = await self._progress()
        lacking = [name for name in ("running", "waiting", "tokens_total") if getattr(progress, name) is None]
        if lacking:
            return Finding(check="metrics", status=FAILED, found=f"there is nothing that says {', '.join(lacking)}")
        return Finding(check="metrics", status=OK, found=f"{progress.tokens_total:g} tokens are counted")

    async def _abort(self) -> Finding:
        """A client that leaves in the middle must not keep the engine busy."""
        # Long, and within the context: vLLM refuses to promise more, llama.cpp cuts.
        tokens = max(64, self._spec.context_length - _PROMPT_TOKENS) if self._spec.context_length else 100_000
        body = json.dumps(self._body() | {"stream": True, "max_tokens": tokens, "ignore_eos": True}).encode()
        status = await self._leave_in_the_middle(body)
        if " 200 " not in status:
            return Finding(check="abort", status=FAILED, found=f"a stream is answered with {status[:60]!r}")
        loop = asyncio.get_running_loop()
        begin = loop.time()
        if self._adapter.metrics_path is None:
            return Finding(check="abort", status=WARNING, found="nothing tells whether it goes on computing")
        while loop.time() - begin < _ABORT_S:
            await asyncio.sleep(_POLL_S)
            if (await self._progress()).running == 0:
                found = f"nothing computes {loop.time() - begin:.0f} s after the client left"
                return Finding(check="abort", status=OK, found=found)
        return Finding(check="abort", status=FAILED, found=f"it still computes {_ABORT_S:g} s after the client left")

    async def _leave_in_the_middle(self, body: bytes) -> str:
        """Ask for a stream, and close the connection after its first event. The answer's first line."""
        head = f"POST {_CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._key}\r\n"
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(self._spec.host, self._spec.port)
            try:
                writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                writer.write(body)
                status = (await reader.readline()).decode("latin-1").strip()
                if " 200 " in status:
                    await reader.readuntil(b"data:")
                return status
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _progress(self) -> Progress:
        reply = await self._ask(self._adapter.metrics_path or "")
        return self._adapter.read_progress(reply.body.decode("utf-8", "replace"))

    def _body(self) -> dict[str, object]:
        messages = [{"role": "user", "content": "hello"}]
        return {"model": self._spec.served_models[0], "messages": messages, "max_tokens": 8}

    async def _chat(self, key: str = "") -> Reply:
        return await self._ask(_CHAT, json.dumps(self._body()).encode(), key=key)

    async def _ask(self, path: str, body: bytes = b"", *, key: str = "", timeout_s: float = _ANSWER_S) -> Reply:
        return await self._http.fetch(
            "POST" if body else "GET",
            f"http://{self._spec.host}:{self._spec.port}{path}",
            headers={"Authorization": f"Bearer {key or self._key}", "Content-Type": "application/json"},
            body=body,
            timeout_s=timeout_s,
        )


async def try_engine(
    adapter: EngineAdapter, spec: EngineSpec, build: Build, facts: NodeFacts, *, deadline_s: float = 600.0
) -> list[Finding]:
    """Start it, look at it, stop it. Never raises for what an engine may do."""
    async with _started(adapter, spec, build, facts, deadline_s) as (trial, engine, log):
        ready = asyncio.create_task(trial.wait_ready(deadline_s))
        await asyncio.wait({ready, engine}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await asyncio.wait({ready})
            return [Finding(check="start", status=FAILED, found=f"it ended: {await _last_words(engine, log)}")]
        error = ready.exception()
        if error is not None:
            return [Finding(check="start", status=FAILED, found=f"it does not serve: {error or 'in time'}"[:300])]
        return [Finding(check="start", status=OK, found="it serves"), *await trial.look()]


@contextlib.asynccontextmanager
async def _started(
    adapter: EngineAdapter, spec: EngineSpec, build: Build, facts: NodeFacts, deadline_s: float
) -> AsyncIterator[tuple[Trial, asyncio.Task[str], Path]]:
    """The engine as a child in a folder of its own; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="llmgw-check-") as folder:
        home, key_file, key = Path(folder), Path(folder) / "key", f"sk-{secrets.token_hex(24)}"
        key_file.touch(mode=0o600)
        key_file.write_text(key)
        spec = replace(spec, port=free_port(), home=home)
        command = adapter.build_command(spec, build, facts)
        argv = [word.replace(KEY_FILE, str(key_file)) for word in command.argv]
        engine = asyncio.create_task(_run(argv, dict(command.environment), home, deadline_s + 600.0))
        try:
            async with HttpClient() as http:
                yield Trial(adapter, spec, key, http), engine, home
        finally:
            engine.cancel()
            await asyncio.wait({engine})


async def _run(argv: list[str], environment: dict[str, str], cwd: Path, timeout_s: float) -> str:
    """Until it ends or is cancelled (then it is stopped and reaped). Its last words."""
    done = await run_process(argv, timeout_s=timeout_s, env=environment, cwd=cwd, limit_bytes=_LOG_BYTES, check=False)
    return f"status {done.code}: {last_lines(done.stdout + done.stderr, 3)}"


async def _last_words(engine: asyncio.Task[str], log: Path) -> str:
    try:
        return await engine
    except (LlmgwError, OSError) as error:
        return str(error)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
