"""The daemon with the embedded supervisor and simulated engines, as real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.config.problem import ConfigErrors
from core.errors import ConfigError, ConflictError, DependencyError, LlmgwError, NotFoundError, PermissionError_
from tests.integration.daemon.stack import PATIENCE_S, ROOT, running
from tests.patience import MOMENT_S
from tests.rewriting import rewrite

SIM = "models: [{id: m, runtime: sim}]\nruntimes:\n  sim: {engine: sim, keepWarm: true}\n"
ON_DEMAND = "runtimes:\n  sim: {engine: sim}\n"


async def test_a_keep_warm_runtime_runs_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        runtime = await stack.until_runtime("sim", "running")
        assert runtime.pid > 0 and runtime.port > 0 and runtime.models == ["m"]
        assert runtime.unit == "llmgw-engine-sim.service"
        assert runtime.on == "cpu"
        assert runtime.memory_mib is not None
        assert stack.engine_pids() == [runtime.pid]


async def test_start_stop_and_restart_on_demand(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        assert (await stack.until(lambda s: bool(s.runtimes))).runtimes[0].state == "stopped"
        started = await stack.client.start_runtime("sim")
        assert started.state == "running"
        again = await stack.client.start_runtime("sim")
        assert again.pid == started.pid
        restarted = await stack.client.restart_runtime("sim")
        assert restarted.state == "running" and restarted.pid != started.pid
        stopped = await stack.client.stop_runtime("sim")
        assert stopped.state == "stopped"
        assert stack.engine_pids() == []
        assert (await stack.client.stop_runtime("sim")).state == "stopped"


async def test_a_second_start_that_cannot_be_prepared_is_answered_as_the_first_was(tmp_path: Path) -> None:
    config = "runtimes:\n  m: {engine: llamacpp, weights: /nonexistent/m.gguf, build: nope}\n"
    async with running(tmp_path, config) as stack:
        for _ in range(3):
            with pytest.raises(LlmgwError) as caught:
                await asyncio.wait_for(stack.client.start_runtime("m"), PATIENCE_S)
            assert caught.value.code == "engine_build_missing"


async def test_a_command_that_asks_for_the_key_gets_it_and_is_asked_with_it(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "engines.sim", "--port", "{port}", "--key-file", "{keyFile}", "--model", "m"]
    script = f'cd "{ROOT}" && exec "$@"'
    command = json.dumps(["/bin/sh", "-c", script, "sh", *words])
    async with running(tmp_path, f"runtimes:\n  m: {{engine: command, memoryGb: 1, command: {command}}}\n") as stack:
        assert (await stack.client.start_runtime("m")).state == "running"


async def test_an_unknown_runtime_is_not_found(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        for name in ("nope", "../../etc", "a b", "%00"):
            with pytest.raises(NotFoundError):
                await stack.client.start_runtime(name)


async def test_a_killed_daemon_is_no_matter_to_the_engine_and_its_successor_adopts(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        stack.kill(stack.daemon)
        assert stack.engine_pids() == [before.pid]
        stack.start_daemon()
        after = await stack.until_runtime("sim", "running")
        assert (after.pid, after.port) == (before.pid, before.port)
        assert after.reason == "adopted"


async def test_an_on_demand_runtime_stays_up_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        before = await stack.client.start_runtime("sim")
        stack.kill(stack.daemon)
        stack.start_daemon()
        assert (await stack.until_runtime("sim", "running")).pid == before.pid


async def test_a_killed_engine_comes_back_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        os.kill(before.pid, signal.SIGKILL)
        after = await stack.until(lambda s: s.runtimes[0].state == "running" and s.runtimes[0].pid != before.pid)
        assert after.runtimes[0].port == before.port
        assert len(stack.engine_pids()) == 1


async def test_an_engine_that_ends_politely_comes_back_too(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        os.kill(before.pid, signal.SIGTERM)
        await stack.until(lambda s: s.runtimes[0].state == "running" and s.runtimes[0].pid != before.pid)


async def test_a_killed_supervisor_is_no_matter_to_the_engine(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        stack.kill(stack.supervisor)
        assert stack.engine_pids() == [before.pid]
        stack.start_supervisor()
        assert (await stack.client.restart_runtime("sim")).pid != before.pid
        assert len(stack.engine_pids()) == 1


async def test_a_clients_request_does_not_undo_an_operators_stop(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        await stack.client.start_runtime("sim", reason="request")
        await stack.client.stop_runtime("sim")
        with pytest.raises(ConflictError, match="stopped by an operator"):
            await stack.client.start_runtime("sim", reason="request")
        assert (await stack.client.start_runtime("sim")).state == "running"


async def test_an_operators_stop_outlives_the_daemon(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        await stack.until_runtime("sim", "running")
        assert (await stack.client.stop_runtime("sim")).hold
        stack.kill(stack.daemon)
        stack.start_daemon()
        held = await stack.until_runtime("sim", "stopped")
        assert held.hold and held.reason == "stopped by an operator"
        assert stack.engine_pids() == []
        assert (await stack.client.start_runtime("sim")).state == "running"


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ('{engine: command, command: [/bin/sh, -c, "exit 3"], HEALTH}', "exited with status 3"),
        ("{engine: command, command: [/no/such/binary], HEALTH}", "/no/such/binary"),
        ('{engine: command, command: [/bin/sleep, "60"], HEALTH, startupTimeoutMs: 300}', "within 0.3 s"),
        ("{engine: llamacpp, weights: /nonexistent.gguf}", "llamacpp is not installed"),
    ],
)  # fmt: skip
async def test_what_cannot_start_fails_once_with_its_reason(tmp_path: Path, runtime: str, words: str) -> None:
    runtime = runtime.replace("HEALTH", 'memoryGb: 0.1, healthUrl: "http://127.0.0.1:1/"')
    async with running(tmp_path, f"runtimes:\n  bad: {runtime}\n  sim: {{engine: sim, keepWarm: true}}\n") as stack:
        with pytest.raises(LlmgwError, match=words):
            await stack.client.start_runtime("bad")
        failed = await stack.until_runtime("bad", "failed")
        assert words in failed.reason
        await stack.until_runtime("sim", "running")
        assert len(stack.engine_pids()) == 1


async def test_a_failed_start_shows_the_engines_last_words(tmp_path: Path) -> None:
    command = '[/bin/sh, -c, "echo cannot open weights; exit 1"]'
    async with running(
        tmp_path,
        f'runtimes:\n  bad: {{engine: command, command: {command}, memoryGb: 1, healthUrl: "http://127.0.0.1:1/"}}\n',
    ) as stack:
        with pytest.raises(DependencyError):
            await stack.client.start_runtime("bad")
        failed = await stack.until_runtime("bad", "failed")
        assert failed.log[-1] == "cannot open weights"
        assert failed.restarts == 0
        assert [line async for line in stack.client.logs("bad", lines=5)][-1] == "cannot open weights"


async def test_a_wrong_config_is_refused_whole_and_shown(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        stack.write_config("runtimes: {sim: {engine: sim, prot: 1}}")
        with pytest.raises(ConfigError, match=r"runtimes\.sim\.prot"):
            await stack.client.reload()
        state = await stack.client.state()
        assert "runtimes.sim.prot" in state.config.error
        assert state.runtimes[0].pid == before.pid


@pytest.mark.parametrize(
    ("runtime", "path"),
    [
        ("{engine: nonesuch}", r"runtimes\.bad\.engine: there is no engine nonesuch"),
        ("{engine: sim, args: [--port, '1']}", r"runtimes\.bad\.args: .*--port"),
        ("{engine: sim, env: {LD_PRELOAD: /x.so}}", r"runtimes\.bad\.env: .*LD_PRELOAD"),
        ("{engine: llamacpp, weights: 'ftp://x'}", r"runtimes\.bad\.weights: "),
    ],
)
async def test_what_no_engine_accepts_is_refused_when_the_config_is_read(
    tmp_path: Path, runtime: str, path: str
) -> None:
    async with running(tmp_path, SIM) as stack:
        stack.write_config(f"runtimes: {{bad: {runtime}}}")
        with pytest.raises(ConfigError, match=path):
            await stack.client.reload()


async def test_a_daemon_that_starts_with_a_broken_file_serves_the_last_good_one(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        stack.kill(stack.daemon)
        stack.layout.config.write_text("][")
        stack.start_daemon()
        state = await stack.until(lambda s: bool(s.runtimes) and s.runtimes[0].state == "running")
        assert state.runtimes[0].pid == before.pid
        assert state.config.error


async def test_a_reload_restarts_only_what_changed(tmp_path: Path) -> None:
    two = "runtimes:\n  a: {engine: sim, keepWarm: true}\n  b: {engine: sim, keepWarm: true}\n"
    async with running(tmp_path, two, unseen=True) as stack:
        a = await stack.until_runtime("a", "running")
        b = await stack.until_runtime("b", "running")
        assert a.port != b.port
        stack.write_config(two.replace("b: {engine: sim,", "b: {engine: sim, maxConcurrency: 2,"))
        result = await stack.client.reload()
        assert (result.restarted, result.started, result.stopped) == (["b"], [], [])
        await stack.until(lambda s: s.runtimes[1].state == "running" and s.runtimes[1].pid != b.pid)
        assert (await stack.until_runtime("a", "running")).pid == a.pid


async def test_an_edited_file_is_read_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        stack.write_config("runtimes: {sim: {engine: sim, keepWarm: true}, two: {engine: sim}}\n")
        await stack.until_runtime("sim", "running")
        stack.write_config("][")
        await stack.until(lambda s: bool(s.config.error) and len(s.runtimes) == 2)


async def test_a_runtime_taken_out_of_the_config_goes_with_its_unit(tmp_path: Path) -> None:
    async with running(tmp_path, SIM, unseen=True) as stack:
        await stack.until_runtime("sim", "running")
        stack.write_config("")
        assert (await stack.client.reload()).stopped == ["sim"]
        await stack.until(lambda s: not s.runtimes)
        assert stack.engine_pids() == []
        assert not list(stack.layout.units.glob("llmgw-engine-*"))


async def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        first = stack.daemon
        stack.start_daemon()
        assert stack.daemon is not None and stack.daemon.wait(timeout=PATIENCE_S) == ConflictError.exit_code
        assert "another daemon" in stack.log_text()
        stack.daemon = first


async def test_the_route_table_follows_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        await stack.until_runtime("sim", "running")
        tables = stack.client.routes()
        first = await anext(tables)
        assert first.models[0].targets[0].ready
        assert Path(first.models[0].targets[0].key_file).stat().st_mode & 0o007 == 0
        began = time.monotonic()
        await stack.client.stop_runtime("sim")
        async for table in tables:
            if not table.models[0].targets[0].ready:
                break
        assert time.monotonic() - began < 0.1 + MOMENT_S
        await tables.aclose()


async def test_no_secret_stands_in_argv_unit_or_log(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        runtime = await stack.until_runtime("sim", "running")
        key = (stack.layout.keys / "sim.key").read_text().strip()
        assert key.encode() not in Path(f"/proc/{runtime.pid}/cmdline").read_bytes()
        assert key.encode() not in Path(f"/proc/{runtime.pid}/environ").read_bytes()
        assert key not in (stack.layout.units / runtime.unit).read_text()
        assert key not in stack.log_text()


def test_a_config_that_never_worked_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("servr: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "daemon"],
        cwd=ROOT,
        env={**os.environ, "LLMGW_STATE": str(tmp_path)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == ConfigErrors.exit_code
    assert b"did you mean server" in done.stderr


async def test_a_dry_reload_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    two = "runtimes:\n  a: {engine: sim, keepWarm: true}\n  b: {engine: sim}\n"
    async with running(tmp_path, two, unseen=True) as stack:
        before = await stack.until_runtime("a", "running")
        await stack.client.stop_runtime("b")
        changed = (
            two.replace("a: {engine: sim,", "a: {engine: sim, maxConcurrency: 2,")
            + "  c: {engine: sim, keepWarm: true}\n"
        )
        text = stack.layout.config.read_text().replace(two, changed)
        rewrite(stack.layout.config, text)
        plan = await stack.client.plan_reload()
        assert (plan.restarted, plan.started) == (["a"], ["c"])
        assert (await stack.client.state()).runtimes[0].pid == before.pid


async def test_a_running_engine_is_warmed_up_on_request(tmp_path: Path) -> None:
    async with running(tmp_path, ON_DEMAND) as stack:
        with pytest.raises(ConflictError, match="is stopped"):
            await stack.client.warm_up_runtime("sim")
        await stack.client.start_runtime("sim")
        assert (await stack.client.warm_up_runtime("sim")).took_s >= 0


async def test_serving_stays_stopped_over_a_restart_of_the_daemon(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        await stack.until_runtime("sim", "running")
        await stack.client.set_serving(False)
        await stack.until_runtime("sim", "stopped")
        stack.kill(stack.daemon)
        stack.start_daemon()
        stopped = await stack.until(lambda s: bool(s.runtimes))
        assert stopped.runtimes[0].state == "stopped" and stack.engine_pids() == []
        await stack.client.set_serving(True)
        await stack.until_runtime("sim", "running")


async def test_a_runtime_that_a_leader_owns_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path, SIM) as stack:
        before = await stack.until_runtime("sim", "running")
        stack.kill(stack.daemon)
        unit = stack.layout.units / before.unit
        text = unit.read_text()
        own = next(line for line in text.splitlines() if line.startswith("AuthorityOwner="))
        delegated = text.replace(own, "AuthorityOwner=leader").replace(
            "AuthorityScope=local", "AuthorityScope=distributed-member"
        )
        unit.write_text(delegated)
        stack.write_config("runtimes: {}\n")
        stack.start_daemon()
        await stack.until(lambda s: any(r.id == "sim" and r.state == "running" for r in s.runtimes))
        await stack.client.set_serving(False)
        await stack.client.reload()
        assert stack.engine_pids() == [before.pid], "not in the config, and still none of our business"
        stack.write_config(SIM)
        await stack.client.reload()
        for ask in (stack.client.stop_runtime, stack.client.restart_runtime):
            with pytest.raises(PermissionError_, match="belongs to leader"):
                await ask("sim")
        assert stack.engine_pids() == [before.pid]
