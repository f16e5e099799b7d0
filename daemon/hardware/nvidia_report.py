"""The full report, `nvidia-smi -q -x`, as values. Pure.

Layouts differ by driver: v11 calls throttling `clocks_throttle_reasons`, v12 (R535 and newer) `clocks_event_reasons`;
v13 (R580 and newer) splits power and uncorrectable counts and adds `gpu_recovery_action`. Cards before Ampere count
ECC as single and double bit errors and retire pages; later ones remap rows. Instances of a card in MIG mode carry no
UUID here; `nvidia.parse_list` has them, by index.
"""

from dataclasses import dataclass
from xml.etree import ElementTree

from core.hardware import Card, CardProcess
from daemon.hardware.nvidia import OutputUnreadable, number, pci_address, whole, word

REPORT_ARGV = ("-q", "-x")

_UNCORRECTED = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
    "double_bit/total",
)
_CORRECTED = ("sram_correctable", "dram_correctable", "single_bit/total")
_POWER = ("average_power_draw", "instant_power_draw", "power_draw")
_NOT_THROTTLING = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clocks_setting"})


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance: its place in the card and its memory."""

    index: int
    gpu_instance: int | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    ecc_uncorrected: int | None


@dataclass(frozen=True, slots=True)
class ReportedProcess:
    process: CardProcess
    gpu_instance: int | None


@dataclass(frozen=True, slots=True)
class ReportedCard:
    card: Card
    architecture: str
    instances: tuple[Instance, ...]
    processes: tuple[ReportedProcess, ...]


@dataclass(frozen=True, slots=True)
class Report:
    driver_version: str
    cuda_version: str
    cards: tuple[ReportedCard, ...]


def parse_report(text: str) -> Report:
    """Raises: OutputUnreadable."""
    # The document's own line names an external DTD, which the parser never fetches; entities it has none.
    if "<!ENTITY" in text:
        raise OutputUnreadable("a report that defines entities")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise OutputUnreadable(f"a report that is no XML: {error}") from error
    if root.tag != "nvidia_smi_log":
        raise OutputUnreadable(f"a report of another kind: <{root.tag[:40]}>")
    return Report(
        driver_version=word(root.findtext("driver_version")),
        cuda_version=word(root.findtext("cuda_version")),
        cards=tuple(_card(index, gpu) for index, gpu in enumerate(root.findall("gpu"))),
    )


def _card(index: int, gpu: ElementTree.Element) -> ReportedCard:
    mode = word(gpu.findtext("mig_mode/current_mig"))
    volatile = gpu.find("ecc_errors/volatile")
    power = _first(gpu, "gpu_power_readings", "power_readings")
    card = Card(
        uuid=word(gpu.findtext("uuid")),
        name=word(gpu.findtext("product_name")),
        index=index,
        pci=pci_address(gpu.findtext("pci/pci_bus_id") or gpu.get("id") or ""),
        mig={"Enabled": True, "Disabled": False}.get(mode),
        memory_total_mib=whole(gpu.findtext("fb_memory_usage/total")),
        memory_used_mib=whole(gpu.findtext("fb_memory_usage/used")),
        memory_free_mib=whole(gpu.findtext("fb_memory_usage/free")),
        utilization=whole(gpu.findtext("utilization/gpu_util")),
        memory_utilization=whole(gpu.findtext("utilization/memory_util")),
        temperature_c=whole(gpu.findtext("temperature/gpu_temp")),
        power_w=_first_number(power, _POWER),
        power_limit_w=_first_number(power, ("current_power_limit", "enforced_power_limit", "power_limit")),
        sm_clock_mhz=whole(gpu.findtext("clocks/sm_clock")),
        memory_clock_mhz=whole(gpu.findtext("clocks/mem_clock")),
        performance_state=word(gpu.findtext("performance_state") or gpu.findtext("gpu_power_readings/power_state")),
        throttled_by=_throttled_by(gpu),
        ecc_uncorrected=_sum(volatile, _UNCORRECTED),
        ecc_corrected=_sum(volatile, _CORRECTED),
        remap_pending=_yes(
            gpu,
            "remapped_rows/remapped_row_pending",
            "retired_pages/pending_retirement",
            "retired_pages/pending_blacklist",
        ),
        remap_failed=_yes(gpu, "remapped_rows/remapped_row_failure"),
        recovery_action=word(gpu.findtext("gpu_recovery_action")),
    )
    if not card.uuid:
        raise OutputUnreadable(f"a card without a UUID: {card.name[:60]!r}")
    return ReportedCard(
        card=card,
        architecture=word(gpu.findtext("product_architecture")),
        instances=tuple(_instance(device) for device in gpu.findall("mig_devices/mig_device")),
        processes=tuple(_process(info) for info in gpu.findall("processes/process_info")),
    )


def _instance(device: ElementTree.Element) -> Instance:
    index = whole(device.findtext("index"))
    if index is None:
        raise OutputUnreadable("a MIG instance without an index")
    return Instance(
        index=index,
        gpu_instance=whole(device.findtext("gpu_instance_id")),
        memory_total_mib=whole(device.findtext("fb_memory_usage/total")),
        memory_used_mib=whole(device.findtext("fb_memory_usage/used")),
        memory_free_mib=whole(device.findtext("fb_memory_usage/free")),
        ecc_uncorrected=_sum(device.find("ecc_error_count/volatile_count"), _UNCORRECTED),
    )


def _process(info: ElementTree.Element) -> ReportedProcess:
    pid = whole(info.findtext("pid"))
    if pid is None:
        raise OutputUnreadable("a process without a pid")
    process = CardProcess(
        pid=pid,
        name=word(info.findtext("process_name")),
        kind=word(info.findtext("type")),
        memory_mib=whole(info.findtext("used_memory")),
    )
    return ReportedProcess(process, whole(info.findtext("gpu_instance_id")))


def _throttled_by(gpu: ElementTree.Element) -> list[str]:
    """What holds the clocks down: `sw_power_cap`, `hw_thermal_slowdown`, …; being idle is no throttling."""
    reasons = _first(gpu, "clocks_event_reasons", "clocks_throttle_reasons")
    if reasons is None:
        return []
    named = [
        (
            child.tag.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_"),
            (child.text or "").strip(),
        )
        for child in reasons
    ]
    return [name for name, state in named if state == "Active" and name not in _NOT_THROTTLING]


def _first(parent: ElementTree.Element, *names: str) -> ElementTree.Element | None:
    return next((found for name in names if (found := parent.find(name)) is not None), None)


def _first_number(parent: ElementTree.Element | None, names: tuple[str, ...]) -> float | None:
    if parent is None:
        return None
    return next((value for name in names if (value := number(parent.findtext(name))) is not None), None)


def _sum(parent: ElementTree.Element | None, names: tuple[str, ...]) -> int | None:
    """The sum of the counters that are there; None when none is."""
    if parent is None:
        return None
    counts = [count for name in names if (count := whole(parent.findtext(name))) is not None]
    return sum(counts) if counts else None


def _yes(gpu: ElementTree.Element, *paths: str) -> bool | None:
    states = [word(gpu.findtext(path)) for path in paths]
    known = [state == "Yes" for state in states if state in ("Yes", "No")]
    return any(known) if known else None
