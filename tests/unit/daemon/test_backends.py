"""Backends in the route table, their keys on disk, and how they stand by what workers say."""

import stat
from pathlib import Path

import pytest

from core.activity import ActivityReport, BackendActivity
from core.api import UNLIMITED, RouteModel
from core.config.load import parse_config
from core.config.schema import Config
from core.log import get_logger
from core.runtime import RuntimeState
from daemon.activity import Activity
from daemon.backend_keys import BackendKeys, KeyFile, file_name
from daemon.backend_status import backend_status
from daemon.routes import RuntimeView, build_route_table
from daemon.runtimes.spec import served_models, spec_hash
from engines.registry import get_adapter

KEY = "sk-" + "provider-1234567890"
TEXT = f"""
backends:
  p: {{baseUrl: "https://api.example.org/api/v1", apiKey: {KEY}, maxConcurrency: 3, timeoutMs: 9}}
  q: {{baseUrl: "http://10.0.0.7:8000/v1", enabled: false}}
runtimes: {{r: {{engine: sim}}}}
models:
  - {{id: both, targets: [{{runtime: r, weight: 3}}, {{backend: p, upstreamModel: org/both, id: far}}]}}
  - {{id: far, backend: p}}
  - {{id: off, backend: q}}
  - {{id: elsewhere, targets: [{{backend: p, node: n2}}]}}
"""


def config(text: str = TEXT) -> Config:
    return parse_config(text.encode(), Path("c"), {}).config


def models(given: Config, **keys: KeyFile) -> dict[str, RouteModel]:
    views = {"r": RuntimeView(RuntimeState.STOPPED, "", 0, "", get_adapter("sim"))}
    made = build_route_table(given, views, node="n1", epoch="e", version=1, backend_keys=keys)
    return {model.id: model for model in made.models}


def test_a_backend_is_a_target_beside_a_runtime() -> None:
    near, far = models(config(), p=KeyFile("/run/p.key"))["both"].targets
    assert (near.id, far.id) == ("n1/r", "backend:p")
    assert (near.runtime, near.weight, near.tls, near.backend) == ("r", 3, False, "")
    assert far.ready and (far.backend, far.runtime, far.name) == ("p", "", "far")
    assert (far.host, far.port, far.tls, far.base_path) == ("api.example.org", 443, True, "/api/v1")
    assert (far.upstream_model, far.key_file, far.max_concurrency) == ("org/both", "/run/p.key", 3)
    assert (far.first_byte_timeout_ms, far.between_bytes_timeout_ms) == (9, 600_000)


def test_a_disabled_backend_is_known_and_neither_ready_nor_advertised() -> None:
    off = models(config())["off"]
    (target,) = off.targets
    assert (target.ready, target.state, target.max_concurrency) == (False, "disabled", UNLIMITED)
    assert off.advertise is False


def test_a_key_that_could_not_be_stored_keeps_its_backend_from_being_asked_without_one() -> None:
    (target,) = models(config(), p=KeyFile(fault="its key cannot be stored: full"))["far"].targets
    assert (target.ready, target.state, target.reason) == (False, "failed", "its key cannot be stored: full")


def test_a_model_of_another_node_is_none_here() -> None:
    assert "elsewhere" not in models(config())


def test_no_key_is_in_the_table() -> None:
    given = config()
    made = build_route_table(given, {}, node="n1", epoch="e", version=1, backend_keys={"p": KeyFile("/run/p.key")})
    assert KEY not in repr(made)


def test_weights_and_backends_restart_no_runtime() -> None:
    changed = (
        TEXT.replace("weight: 3", "weight: 9").replace("org/both", "org/other").replace("timeoutMs: 9", "timeoutMs: 1")
    )
    assert spec_hash(config(), "r") == spec_hash(config(changed), "r")
    assert served_models(config(), "r") == ("both",)


def keys_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_keys_lie_in_files_that_others_cannot_read(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    stored = BackendKeys(folder, -1, get_logger("test")).store(config().backends)
    assert set(stored) == {"p"}
    path = Path(stored["p"].path)
    assert path.read_text() == f"{KEY}\n"
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(folder.stat().st_mode)) == (0o640, 0o750)
    assert KEY not in path.name


def test_a_new_key_is_a_new_file_and_the_old_one_goes_with_the_change_after(tmp_path: Path) -> None:
    keys = BackendKeys(tmp_path, -1, get_logger("test"))
    first, second, third = (config(TEXT.replace(KEY, f"{KEY}-{n}")).backends for n in range(3))
    before = keys.store(first)
    assert keys.store(first) is before
    keys.store(second)
    assert sorted(keys_in(tmp_path).values()) == [f"{KEY}-0\n", f"{KEY}-1\n"]
    keys.store(third)
    assert sorted(keys_in(tmp_path).values()) == [f"{KEY}-1\n", f"{KEY}-2\n"]
    # Another daemon changes nothing of what is in use, and removes the rest.
    assert BackendKeys(tmp_path, -1, get_logger("test")).store(third)["p"].path == str(
        tmp_path / file_name("p", f"{KEY}-2")
    )
    assert list(keys_in(tmp_path).values()) == [f"{KEY}-2\n"]


def test_a_key_that_cannot_be_written_is_a_fault_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.write_text("a file where the folder should be")
    keys = BackendKeys(folder, -1, get_logger("test"))
    assert keys.store(config().backends)["p"].fault.startswith("its key cannot be stored: ")
    folder.unlink()
    assert keys.store(config().backends)["p"].path


STANDINGS: list[tuple[list[str], str]] = [
    ([], "ready"),
    (["good", "good"], "ready"),
    (["good", "resting"], "resting"),
    (["resting", "out"], "out"),
    (["returning", "good"], "out"),
    (["a word of a newer gateway"], "ready"),
]


@pytest.mark.parametrize(("standings", "state"), STANDINGS)
def test_a_backend_stands_as_the_worst_worker_finds_it(standings: list[str], state: str) -> None:
    said = [(BackendActivity(active=1, standing=standing), 0.5) for standing in standings]
    told = backend_status(config(), "p", KeyFile("/x"), said, now_s=0.0)
    assert (told.state, told.active_requests, told.models) == (state, len(standings), ["both", "far", "elsewhere"])


def test_of_all_workers_the_last_error_is_told() -> None:
    activity = Activity()
    for source, failed_ago_s, error in (("a", 9.0, "old"), ("b", 2.0, "new"), ("c", None, "")):
        one = BackendActivity(error=error, failed_ago_s=failed_ago_s)
        activity.take(ActivityReport(source=source, epoch="e", version=1, backends={"p": one}), 100.0)
    told = backend_status(config(), "p", KeyFile("/x"), activity.of_backend("p", 101.0), now_s=1_000_000_000.0)
    assert (told.last_error, told.last_error_at) == ("new", "2001-09-09T01:46:37Z")
    assert activity.of_backend("p", 200.0) == []


def test_what_is_told_of_a_backend_has_no_key() -> None:
    told = backend_status(config(), "p", KeyFile("/x"), (), now_s=0.0)
    assert told.has_key and KEY not in repr(told)
    assert backend_status(config(), "q", KeyFile(), (), now_s=0.0).state == "disabled"
