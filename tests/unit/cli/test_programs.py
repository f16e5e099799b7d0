"""Which programs `llmgw up` runs."""

from pathlib import Path

import pytest

from cli.up.programs import MARK, build_programs, worker_count
from core.config.schema import Config, Server
from core.paths import Layout


def test_every_program_carries_the_mark_and_the_gateway_gets_the_socket(tmp_path: Path) -> None:
    programs = build_programs(
        Layout.under(tmp_path), tmp_path, Config(), {"PATH": "/bin"}, python="/py", tree=tmp_path, listener_fd=7
    )

    assert [program.name for program in programs] == ["supervisor", "daemon", "gateway"]
    assert {program.environment[MARK] for program in programs} == {str(tmp_path)}
    assert {program.environment["LLMGW_STATE"] for program in programs} == {str(tmp_path)}
    gateway = programs[2]
    assert (gateway.environment["LLMGW_BIND"], gateway.pass_fds) == ("fd://7", (7,))
    assert all("LLMGW_BIND" not in program.environment for program in programs[:2])


def test_libraries_that_lie_beside_an_installed_tree_are_found(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()

    programs = build_programs(
        Layout.under(tmp_path), tmp_path, Config(), {"PYTHONPATH": "/mine"}, python="/py", tree=tmp_path, listener_fd=7
    )

    assert programs[0].environment["PYTHONPATH"] == f"{tmp_path}/vendor:/mine"


@pytest.mark.parametrize(("given", "cpus", "workers"), [(0, 1, 1), (0, 2, 1), (0, 4, 2), (0, 64, 4), (3, 64, 3)])
def test_workers_are_one_per_two_cores_and_at_most_four(given: int, cpus: int, workers: int) -> None:
    assert worker_count(Config(server=Server(workers=given)), cpus) == workers
