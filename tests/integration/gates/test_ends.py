"""A gate, or its engine, that is killed in the middle: whose work it is, and how it ended, is known afterwards."""

from pathlib import Path

from tests.integration.gates.bench import long_picture, picture, running


async def test_a_killed_gate_knows_afterwards_whose_prompts_run(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        ada, bob = bench.ada, bench.bob
        first, second = await ada.prompt(long_picture(hold)), await bob.prompt(picture())
        before = await ada.prompt(picture())
        await ada.until(first, lambda told: told["step"] == 1)

        await bench.kill(bench.gate)
        await bench.start_gate()

        for who, other, what, state in ((ada, bob, first, "running"), (bob, ada, second, "queued")):
            assert (await who.until_state(what, state))["state"] == state
            assert (await other.ask("GET", f"/progress/{what}"))[0] == 404
            assert (await other.ask("POST", "/interrupt", {"prompt_id": what}))[0] == 404
        hold.touch()
        assert (await ada.until_state(first, "done"))["percent"] == 100.0
        await bob.until_state(second, "done")
        await ada.until_state(before, "done")


async def test_messages_reach_the_gate_after_it_was_started_again(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        await bench.ada.prompt(long_picture(hold))
        waiting = await bench.ada.prompt(long_picture(tmp_path / "later"))
        await bench.kill(bench.gate)
        await bench.start_gate()
        hold.touch()
        told = await bench.ada.until(waiting, lambda p: p["step"] == 1)
        assert (told["node"]["id"], told["steps"]) == ("2", 4)


async def test_what_ended_while_the_gate_was_down_is_found_out(tmp_path: Path) -> None:
    hold = tmp_path / "go"
    async with running(tmp_path) as bench:
        prompt_id = await bench.ada.prompt(long_picture(hold))
        await bench.ada.until_state(prompt_id, "running")
        await bench.kill(bench.gate)
        hold.touch()
        await bench.start_gate()
        await bench.ada.until_state(prompt_id, "done")
        assert (await bench.ada.ask("GET", f"/history/{prompt_id}"))[1][prompt_id]["outputs"]["3"]["images"]


async def test_results_outlive_gate_and_engine(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        prompt_id = await bench.ada.prompt(picture())
        await bench.ada.until_state(prompt_id, "done")
        for process in (bench.gate, bench.engine):
            await bench.kill(process)
        await bench.start_engine()
        await bench.start_gate()
        (image,) = (await bench.ada.ask("GET", f"/history/{prompt_id}"))[1][prompt_id]["outputs"]["2"]["images"]
        query = "&".join(f"{key}={value}" for key, value in image.items())
        assert (await bench.ada.ask("GET", f"/view?{query}"))[0] == 200
        assert (await bench.bob.ask("GET", f"/view?{query}"))[0] == 404


async def test_what_ran_when_the_engine_was_killed_has_failed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        prompt_id = await bench.ada.prompt(long_picture(tmp_path / "never"))
        waiting = await bench.bob.prompt(picture())
        await bench.ada.until_state(prompt_id, "running")
        await bench.kill(bench.engine)
        await bench.start_engine()
        for who, what in ((bench.ada, prompt_id), (bench.bob, waiting)):
            assert (await who.until_state(what, "failed"))["error"]["code"] == "engine_lost"
        await bench.ada.until_state(await bench.ada.prompt(picture()), "done")


async def test_a_prompt_that_cannot_be_written_down_is_not_run(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        ledger = bench.folder / "state" / "ledger.jsonl"
        ledger.unlink()
        ledger.mkdir()
        status, told = await bench.ada.ask("POST", "/prompt", {"prompt": picture()})
        assert (status, told["error"]["code"]) == (502, "storage_failed")
        assert not [line for line in await bench.asked() if line.startswith("POST /prompt")]


async def test_a_gate_without_a_key_serves_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.kill(bench.gate)
        bench.key_file.write_text("\n")
        bench.gate = await bench.spawn_gate()
        assert await bench.gate.wait() == 1
        assert "gate_key_missing" in (bench.folder / "log").read_text()
