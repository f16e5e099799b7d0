"""The units of a gated runtime: an engine, and a gate that lives and ends with it."""

from pathlib import Path

from daemon.adoption import find_stray_gates
from daemon.runtimes.unit import Account, Surroundings, build_gate_unit, build_unit
from engines.adapter import KEY_FILE, EngineCommand, EngineSpec
from units.model import UnitRecord
from units.names import engine_unit_name, gate_unit_name
from units.record import parse_record
from units.render import render_unit

SPEC = EngineSpec("art", "comfyui", ("art",), 8202, home=Path("/var/lib/llmgw/homes/art"))
RECORD = UnitRecord("art", engine="comfyui", ports=(8201, 8202), devices=("GPU-1",))
AROUND = Surroundings(Account("llmgw-engine", "llmgw-engine", ("video",)), Path("/run/llmgw/keys/art.key"), 60.0)


def texts() -> tuple[str, str]:
    engine = build_unit(SPEC, EngineCommand(("/bin/engine",)), RECORD, AROUND, is_gated=True)
    gate = build_gate_unit(SPEC, EngineCommand(("/bin/gate", "--key-file", KEY_FILE), allow_jit=False), RECORD, AROUND)
    return render_unit(engine), render_unit(gate)


def test_the_key_is_the_gates_alone_and_stands_in_no_argument() -> None:
    engine, gate = texts()
    assert "LoadCredential" not in engine
    assert "LoadCredential=key:/run/llmgw/keys/art.key" in gate
    assert "ExecStart=/bin/gate --key-file %d/key" in gate


def test_the_engine_holds_its_gate_up_and_takes_it_along() -> None:
    engine, gate = texts()
    assert "Upholds=llmgw-gate-art.service" in engine
    assert "BindsTo=llmgw-engine-art.service" in gate and "After=llmgw-engine-art.service" in gate
    assert "User=llmgw-engine" in gate and "ProtectSystem=strict" in gate and "PrivateDevices=yes" in gate
    assert "MemoryDenyWriteExecute=yes" in gate and "SupplementaryGroups" not in gate
    record = parse_record(gate)
    assert (record.kind, record.ports, record.devices) == ("gate", (8201,), ())
    assert parse_record(engine).ports == (8201, 8202)


def test_an_engine_without_a_gate_holds_none_up() -> None:
    text = render_unit(build_unit(SPEC, EngineCommand(("/bin/engine",)), RECORD, AROUND))
    assert "Upholds" not in text and "LoadCredential" in text


def test_a_gate_whose_engine_is_gone_is_found_and_nothing_else() -> None:
    engine, gate = texts()
    names = engine_unit_name("art"), gate_unit_name("art")
    assert find_stray_gates({names[0]: engine, names[1]: gate}) == []
    assert find_stray_gates({names[1]: gate}) == [names[1]]
    assert find_stray_gates({names[1]: "[X-Llmgw]\nbroken", "llmgw-gate-other.service": gate}) == []
