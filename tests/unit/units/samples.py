"""Unit values for tests: one plain engine, and the same with everything that a value can hold."""

from dataclasses import replace

from core.runtime import Authority, AuthorityScope
from units.model import CREDENTIALS, RestartPolicy, Sandbox, ServiceType, ServiceUnit, UnitRecord
from units.names import engine_unit_name

PLAIN = ServiceUnit(
    name=engine_unit_name("qwen"),
    description="llmgw runtime qwen (sim)",
    exec_start=("/bin/sleep", "infinity"),
    record=UnitRecord("qwen", engine="sim", spec_hash="abc", authority=Authority("node-1")),
    user="daemon",
    sandbox=Sandbox(read_write_paths=("/var/lib/llmgw/homes/qwen",)),
)

GPU = replace(
    PLAIN,
    exec_start=(
        "/usr/bin/env",
        f"--api-key-file={CREDENTIALS}/key",
        "a b",
        "$HOME",
        "100%n",
        "\"'\\",
        "",
        ";",
        "é\u2028",
    ),
    record=UnitRecord(
        "qwen",
        engine="vllm",
        build="pypi-cuda-1",
        spec_hash="abc",
        ports=(8201, 8202),
        authority=Authority("leader", AuthorityScope.DISTRIBUTED_MEMBER, "group one"),
        devices=("GPU-1", "GPU 2"),
        since="2026-11-30T00:00:00Z",
        hold=True,
    ),
    type=ServiceType.NOTIFY,
    environment=(("HOME", "/var/lib/x y"), ("ODD", "a'b\"c\\ $X %n =")),
    environment_files=("/etc/llmgw/a b",),
    credentials=(("key", "/run/llmgw/keys/a b%"),),
    group="daemon",
    supplementary_groups=("video", "audio"),
    slice="llmgw-engines.slice",
    working_directory="/var/lib/x y",
    restart=RestartPolicy(delay_s=0.25, limit_burst=3, limit_interval_s=60),
    watchdog_s=2.5,
    memory_max_bytes=1 << 30,
    after=("dev-nvidia0.device", "dev-nvidia\\x2duvm.device"),
    wants=("network-online.target",),
    binds_to=("dev-nvidia0.device",),
    part_of=("llmgw.target",),
    upholds=("llmgw-gate-qwen.service",),
    sandbox=Sandbox(
        read_write_paths=("/var/lib/a b", "/home/u/c:d", "/tmp/x"),
        read_only_paths=('/srv/a"b\\c', "/root/w"),
        device_allow=("/dev/nvidia0", "char-nvidia-uvm"),
        allow_jit=False,
    ),
)
