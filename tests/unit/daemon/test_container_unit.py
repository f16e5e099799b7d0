"""The unit of a container: podman is root's, what is inside is the engines' account's, and it can read its key."""

from dataclasses import replace
from pathlib import Path

from core.runtime import Authority
from daemon.runtimes.unit import Account, Surroundings, build_unit
from engines.adapter import NodeFacts
from tests.unit.engines.test_container import ADAPTER, BUILD, SPEC
from units.model import UnitRecord
from units.render import render_unit

ACCOUNT = Account("llmgw-engine", "llmgw-engine", ("render",), 991, 992)


def rendered(account: Account, *, command: tuple[str, ...] = SPEC.command) -> str:
    made = ADAPTER.build_command(replace(SPEC, command=command), BUILD, NodeFacts(2, 4096))
    around = Surroundings(account, Path("/var/lib/llmgw/keys/vision.inside"), start_deadline_s=300.0)
    record = UnitRecord("vision", authority=Authority(owner="here"))
    return render_unit(build_unit(SPEC, made, record, around))


def test_podman_is_roots_and_what_is_in_it_is_not() -> None:
    text = rendered(ACCOUNT)

    assert "User=" not in text
    assert "ProtectSystem" not in text
    assert "--user 991:992 " in text
    assert "src=/var/lib/llmgw/keys/vision.inside,dst=/run/llmgw/key,ro=true" in text
    assert "LoadCredential" not in text
    assert "\nKillMode=mixed\n" in text, "podman ends what is in it, and clears away behind it"


def test_without_an_account_to_switch_to_it_is_our_own() -> None:
    assert "--user 0:0 " in rendered(Account())
