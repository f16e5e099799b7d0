"""Files of /proc and /sys as values: recorded ones, and ones that are missing or broken."""

from pathlib import Path

import pytest

from core.hardware import Adapter, InfinibandPort
from daemon.hardware.cpu import CpuTimes, parse_cpu, parse_times, read_cpu, read_numa, utilization
from daemon.hardware.disks import mount_of, parse_mounts, read_disks
from daemon.hardware.driver import parse_driver, read_driver
from daemon.hardware.infiniband import assign_fabrics, judge_fabrics, judge_port, parse_state, read_adapters
from daemon.hardware.marks import Marks, read_marks, write_marks
from daemon.hardware.memory import parse_meminfo, read_memory
from tests.unit.hardware.machines import SAMPLES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
            ("535.129.03", "proprietary"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder@U22)\n",
            ("580.82.07", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.173.02  Release Build  (dvs-builder@U22)\n",
            ("580.173.02", "open"),
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.94  Mon Nov 29\n", ("470.94", "proprietary")),
        ("", None),
        ("garbage 1.2.3", None),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64", None),
    ],
)
def test_the_driver_is_read_in_both_flavours(text: str, expected: tuple[str, str] | None) -> None:
    driver = parse_driver(text)
    assert (driver and (driver.version, driver.flavour)) == expected


def test_a_machine_without_the_module_has_no_driver(tmp_path: Path) -> None:
    assert read_driver(tmp_path / "version") is None


def test_memory_of_a_recorded_machine_and_of_none(tmp_path: Path) -> None:
    memory = read_memory(SAMPLES / "gb10/meminfo")
    assert memory is not None
    assert (memory.total_mib, memory.available_mib) == (124610, 115787)
    assert read_memory(tmp_path / "none") is None
    assert parse_meminfo("MemTotal: x kB\nnonsense").total_mib is None


CPUINFO = """processor\t: 0
model name\t: Common KVM processor
flags\t\t: fpu sse sse2 hypervisor
processor\t: 1
model name\t: Common KVM processor
flags\t\t: fpu sse sse2 hypervisor avx
"""


def test_a_virtual_processor_shows_what_all_its_cpus_have() -> None:
    cpu = parse_cpu(CPUINFO, "x86_64")
    assert (cpu.model, cpu.logical_cpus, cpu.features, cpu.hypervisor) == ("Common KVM processor", 2, [], True)


def test_an_arm_processor_is_read_by_its_own_names() -> None:
    cpu = parse_cpu("processor\t: 0\nFeatures\t: fp asimd sve i8mm\nCPU part\t: 0xd4f\n", "aarch64")
    assert (cpu.model, cpu.logical_cpus, cpu.features) == ("0xd4f", 1, ["asimd", "i8mm", "sve"])


def test_an_unreadable_cpuinfo_is_nothing(tmp_path: Path) -> None:
    assert read_cpu(tmp_path / "cpuinfo") is None


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2", CpuTimes(150, 1000)),
        ("cpu 1 2 3", None), ("", None), ("cpu a b c d e f", None), ("intr 1 2 3 4 5 6", None),
    ],
)  # fmt: skip
def test_ticks(stat: str, expected: CpuTimes | None) -> None:
    assert parse_times(stat) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, CpuTimes(1, 2), None), (CpuTimes(1, 2), None, None), (CpuTimes(0, 100), CpuTimes(50, 200), 50.0),
        (CpuTimes(0, 100), CpuTimes(0, 100), None), (CpuTimes(90, 100), CpuTimes(80, 200), 0.0),
    ],
)  # fmt: skip
def test_utilization_is_between_two_readings(
    before: CpuTimes | None, after: CpuTimes | None, expected: float | None
) -> None:
    assert utilization(before, after) == expected


def test_numa_nodes(tmp_path: Path) -> None:
    for number in (0, 1):
        node = tmp_path / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(f"{number}-7\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:  2048 kB\nNode {number} MemFree: 1024 kB\n")
    (tmp_path / "power").mkdir()
    first, second = read_numa(tmp_path)
    assert (first.number, first.cpus, first.memory_total_mib, second.memory_free_mib) == (0, "0-7", 2, 1)
    assert read_numa(tmp_path / "none") == ()


MOUNTS = r"""21 26 0:20 / /sys rw - sysfs sysfs rw
26 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
30 26 0:26 / /srv\040big rw - nfs4 server:/export rw
31 26 8:17 / /var/lib rw - xfs /dev/sdb1 rw
32 31 0:40 / /var/lib rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/", "ext4"),
        ("/srv big/models", "nfs4"),
        ("/srv bigger", "ext4"),
        ("/var/lib/llmgw", "tmpfs"),
        ("/var/li", "ext4"),
    ],
)
def test_a_path_lies_on_the_innermost_and_latest_mount(path: str, file_system: str) -> None:
    mount = mount_of(path, parse_mounts(MOUNTS))
    assert mount is not None and mount.file_system == file_system


def test_a_folder_that_is_not_there_yet_is_looked_for_at_its_parent(tmp_path: Path) -> None:
    (disk,) = read_disks({"weights": tmp_path / "not/yet"})
    assert disk.path == str(tmp_path / "not/yet") and disk.free_mib is not None and disk.file_system


def adapter(root: Path, name: str, **files: str) -> None:
    port = root / name / "ports/1"
    port.mkdir(parents=True)
    defaults = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": "InfiniBand",
        "sm_lid": "0x1",
        "lid": "0x2",
    }
    for file, text in {**defaults, "rate": "400 Gb/sec (4X NDR)", **files}.items():
        (port / file).write_text(f"{text}\n")


def test_adapters_ports_and_their_net_devices(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_0")
    (tmp_path / "mlx5_0/node_guid").write_text("b83f:d203:00aa:1234\n")
    (tmp_path / "mlx5_0/ports/1/gid_attrs/ndevs").mkdir(parents=True)
    (tmp_path / "mlx5_0/ports/1/gid_attrs/ndevs/0").write_text("ib0\n")
    adapter(tmp_path, "mlx5_1", state="1: DOWN", phys_state="3: Disabled", sm_lid="0x0")
    first, second = read_adapters(tmp_path)
    (port,) = first.ports
    assert (first.node_guid, port.state, port.rate_gbps, port.lid, port.subnet_manager_lid, port.net_devices) == (
        "b83f:d203:00aa:1234", "ACTIVE", 400.0, 2, 1, ["ib0"],
    )  # fmt: skip
    assert port.problems == []
    assert [problem.code for problem in second.ports[0].problems] == ["infiniband_port_down"]
    assert read_adapters(tmp_path / "none") == ()


def test_a_port_without_files_is_known_to_be_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mlx5_0/ports/1").mkdir(parents=True)
    ((port,),) = (adapter.ports for adapter in read_adapters(tmp_path))
    assert (port.state, port.rate_gbps, port.lid, port.subnet_manager_lid, port.problems) == ("", None, None, None, [])


@pytest.mark.parametrize(
    ("state", "layer", "manager", "code"),
    [
        ("ACTIVE", "InfiniBand", 1, None), ("ACTIVE", "InfiniBand", 0, "infiniband_no_subnet_manager"),
        ("ACTIVE", "Ethernet", 0, None), ("ACTIVE", "InfiniBand", None, None),
        ("DOWN", "Ethernet", 0, "infiniband_port_down"),
        ("INIT", "InfiniBand", 0, "infiniband_port_down"), ("", "InfiniBand", None, None),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_port(state: str, layer: str, manager: int | None, code: str | None) -> None:
    port = InfinibandPort(number=1, state=state, link_layer=layer, subnet_manager_lid=manager)
    assert [problem.code for problem in judge_port("mlx5_0", port)] == ([code] if code else [])


def test_declared_fabrics_are_checked_against_what_is_there() -> None:
    up = Adapter(name="mlx5_0", ports=[InfinibandPort(number=1, state="ACTIVE")])
    down = Adapter(name="mlx5_1", ports=[InfinibandPort(number=1, state="DOWN")])
    fabrics = {"fast": ["mlx5_0", "mlx5_1"], "slow": ["mlx5_1"], "lost": ["mlx5_9"]}
    assert [entry.fabrics for entry in assign_fabrics([up, down], fabrics)] == [["fast"], ["fast", "slow"]]
    assert [problem.code for problem in judge_fabrics([up, down], fabrics)] == ["fabric_down", "fabric_adapter_missing"]
    assert parse_state("4: ACTIVE") == "ACTIVE" and parse_state("") == "" and parse_state("odd") == "odd"


def test_marks_are_of_one_boot_and_a_broken_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state/marks.json"
    assert read_marks(path, "b1") == Marks(boot_id="b1")
    written = Marks(boot_id="b1", events_until_s={"0000:19:00.0": 5.5}, ecc={"GPU-1": 2})
    write_marks(path, written)
    assert read_marks(path, "b1") == written
    assert read_marks(path, "b2") == Marks(boot_id="b2")
    for garbage in (b"", b"[]", b'{"bootId": 1}', b"[" * 5000, b"\xff"):
        path.write_bytes(garbage)
        assert read_marks(path, "b1") == Marks(boot_id="b1")
