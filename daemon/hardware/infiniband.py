"""InfiniBand and RoCE adapters, from /sys/class/infiniband: ports, state, subnet manager, which net device.

A port that is up without a subnet manager (`sm_lid` 0) answers to nobody: on an InfiniBand link that is a problem,
on Ethernet (RoCE) there is none to begin with. Fabrics declared in the config are checked against what is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from core.hardware import Adapter, InfinibandPort, Problem
from daemon.hardware.nvidia import number
from daemon.hardware.sysfs import list_names, pci_address_of, read_number, read_text


def read_adapters(root: Path) -> tuple[Adapter, ...]:
    """Every adapter below `root`; none where there is no such folder."""
    return tuple(_adapter(root / name) for name in list_names(root))


def _adapter(path: Path) -> Adapter:
    return Adapter(
        name=path.name,
        pci=pci_address_of(path / "device"),
        node_guid=read_text(path / "node_guid"),
        firmware=read_text(path / "fw_ver"),
        model=read_text(path / "board_id") or read_text(path / "hca_type"),
        ports=[_port(path, name) for name in list_names(path / "ports") if name.isdecimal()],
    )


def _port(adapter: Path, name: str) -> InfinibandPort:
    path = adapter / "ports" / name
    bound = {read_text(path / "gid_attrs/ndevs" / entry) for entry in list_names(path / "gid_attrs/ndevs")}
    port = InfinibandPort(
        number=int(name),
        state=parse_state(read_text(path / "state")),
        physical_state=parse_state(read_text(path / "phys_state")),
        link_layer=read_text(path / "link_layer"),
        rate_gbps=number(read_text(path / "rate")),
        lid=read_number(path / "lid"),
        subnet_manager_lid=read_number(path / "sm_lid"),
        net_devices=sorted(bound - {""}) or list_names(adapter / "device/net"),
    )
    return msgspec.structs.replace(port, problems=judge_port(adapter.name, port))


def parse_state(text: str) -> str:
    """`4: ACTIVE` -> `ACTIVE`."""
    return text.partition(":")[2].strip() or text


def judge_port(adapter: str, port: InfinibandPort) -> list[Problem]:
    """What is wrong with a port. Pure."""
    name = f"{adapter} port {port.number}"
    if port.state and port.state != "ACTIVE":
        return [
            Problem(
                code="infiniband_port_down",
                message=f"{name} is {port.state}" + (f" (link {port.physical_state})" if port.physical_state else ""),
                hint="look at the cable and the switch; ibstat says more",
            )
        ]
    if port.link_layer == "InfiniBand" and port.subnet_manager_lid == 0:
        return [
            Problem(
                code="infiniband_no_subnet_manager",
                message=f"no subnet manager has configured {name}",
                hint="start opensm on one machine of the fabric, or the switch's own",
            )
        ]
    return []


def assign_fabrics(adapters: Iterable[Adapter], fabrics: Mapping[str, Sequence[str]]) -> list[Adapter]:
    """The adapters with the fabrics that name them. Pure."""
    return [
        msgspec.structs.replace(adapter, fabrics=[fabric for fabric, names in fabrics.items() if adapter.name in names])
        for adapter in adapters
    ]


def judge_fabrics(adapters: Iterable[Adapter], fabrics: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Declared adapters that are not there, and declared fabrics without an active port. Pure."""
    present = {adapter.name: adapter for adapter in adapters}
    problems = []
    for fabric, names in fabrics.items():
        missing = [name for name in names if name not in present]
        if missing:
            problems.append(
                Problem(
                    code="fabric_adapter_missing",
                    message=f"fabric {fabric} names {', '.join(missing)}, which this machine has not",
                    hint=f"adapters here: {', '.join(sorted(present)) or 'none'}; mend hardware.fabrics.{fabric}",
                )
            )
        ports = [port for name in names if name in present for port in present[name].ports]
        if ports and not any(port.state == "ACTIVE" for port in ports):
            problems.append(
                Problem(
                    code="fabric_down",
                    message=f"no port of fabric {fabric} is active",
                    hint="look at cables, switch and subnet manager; llmgw hardware shows each port",
                )
            )
    return problems
