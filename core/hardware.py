"""What a machine is made of and how it is doing: the values that the daemon reads and everybody else is told.

`GET /v1/hardware` answers `HardwareState`, `GET /v1/doctor` a `DoctorReport`; `POST /v1/hardware/clear` takes a
`ClearRequest`. Two rules hold for every field: what could not be read is null (never zero, never a guess), and
every value that was read says how old it is (`ageS`, seconds at the time of the answer). Percentages are 0 to 100.
"""

import msgspec

from core.message import Message


class Problem(Message, frozen=True, kw_only=True):
    """Something that an operator should know of, with the way to mend it."""

    code: str
    message: str
    hint: str = ""
    blocks: bool = False
    """Whether the card (or the node) is left out of placement because of it."""
    clearable: bool = False
    """Whether `llmgw hardware clear` ends it: an event of the past, not a state that would be read again."""


class CardProcess(Message, frozen=True, kw_only=True):
    """A process that holds memory of a card."""

    pid: int
    name: str
    kind: str = ""
    """nvidia-smi's letters: `C` computes, `G` draws, `C+G`."""
    memory_mib: int | None = None
    user: str = ""
    runtime: str = ""
    """The runtime of ours that it belongs to; empty: somebody else's."""


class XidCount(Message, frozen=True, kw_only=True):
    """How often the driver reported one kind of error for a card since boot, or since it was cleared."""

    xid: int
    meaning: str
    count: int
    last_s: float | None = None
    """Seconds after boot."""
    blocks: bool = False


class Nvlink(Message, frozen=True, kw_only=True):
    """Error counters of one link; the driver's counters stop at 65535."""

    link: int
    replay_errors: int | None = None
    recovery_errors: int | None = None
    crc_errors: int | None = None


class Card(Message, frozen=True, kw_only=True):
    """One thing that a runtime can be placed on: a card, or an instance of a card in MIG mode."""

    uuid: str
    """What `CUDA_VISIBLE_DEVICES` takes; empty when the driver does not know the card."""
    name: str
    card_class: str = msgspec.field(default="", name="class")
    """`h100-80g`, `rtx-4090`, `a100-80g-mig-3g.40gb`."""
    index: int | None = None
    pci: str = ""
    """Address as the kernel writes it: `0000:19:00.0`."""
    parent: str = ""
    """UUID of the card that this is an instance of."""
    mig: bool | None = None
    """Whether the card is in MIG mode; null where the card has no such mode."""
    unified: bool = False
    """Its memory is the machine's own."""
    compute_capability: str = ""
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    utilization: int | None = None
    memory_utilization: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    performance_state: str = ""
    throttled_by: list[str] = []
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    ecc_corrected: int | None = None
    remap_pending: bool | None = None
    """Rows remapped or pages retired that wait for a reset."""
    remap_failed: bool | None = None
    recovery_action: str = ""
    """What the driver asks for: `Reset`, `Reboot`, …; empty: nothing, or a driver that does not say."""
    nvlinks: list[Nvlink] = []
    processes: list[CardProcess] = []
    xids: list[XidCount] = []
    age_s: float | None = None
    placeable: bool = True
    """Whether a runtime may be placed here; the problems say why not."""
    available_mib: int | None = None
    """Memory that placement may count on now."""
    foreign_mib: int | None = None
    """Memory that other people's processes hold."""
    problems: list[Problem] = []


class PciDevice(Message, frozen=True, kw_only=True):
    """A display, 3D or network controller as the kernel lists it."""

    address: str
    vendor_id: str
    device_id: str
    pci_class: str = msgspec.field(default="", name="class")
    vendor: str = ""
    model: str = ""
    driver: str = ""
    numa_node: int | None = None


class Driver(Message, frozen=True, kw_only=True):
    """The NVIDIA kernel module."""

    version: str
    flavour: str
    """`open` or `proprietary`; empty where the module itself cannot be asked."""
    cuda_version: str = ""
    """Newest CUDA that it serves."""


class InfinibandPort(Message, frozen=True, kw_only=True):
    number: int
    state: str = ""
    """`ACTIVE`, `DOWN`, `INIT`, …"""
    physical_state: str = ""
    link_layer: str = ""
    """`InfiniBand` or `Ethernet`."""
    rate_gbps: float | None = None
    lid: int | None = None
    subnet_manager_lid: int | None = None
    """0: no subnet manager has configured the port."""
    net_devices: list[str] = []
    problems: list[Problem] = []


class Adapter(Message, frozen=True, kw_only=True):
    """An InfiniBand or RoCE adapter."""

    name: str
    pci: str = ""
    node_guid: str = ""
    firmware: str = ""
    model: str = ""
    fabrics: list[str] = []
    """Declared fabrics that name it."""
    ports: list[InfinibandPort] = []


class Cpu(Message, frozen=True, kw_only=True):
    model: str = ""
    architecture: str = ""
    logical_cpus: int | None = None
    usable_cpus: int | None = None
    """Those that we may run on."""
    utilization: float | None = None
    features: list[str] = []
    """Of those that engines choose their kernels by."""
    hypervisor: bool = False


class NumaNode(Message, frozen=True, kw_only=True):
    number: int
    cpus: str = ""
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None


class Memory(Message, frozen=True, kw_only=True):
    total_mib: int | None = None
    available_mib: int | None = None
    swap_total_mib: int | None = None
    swap_free_mib: int | None = None


class Disk(Message, frozen=True, kw_only=True):
    """A file system that something of ours lies on."""

    path: str
    purpose: str
    device: str = ""
    file_system: str = ""
    total_mib: int | None = None
    free_mib: int | None = None
    rotational: bool | None = None


class Link(Message, frozen=True, kw_only=True):
    """A network interface."""

    name: str
    kind: str = ""
    up: bool = False
    carrier: bool | None = None
    mtu: int | None = None
    mac: str = ""
    speed_mbps: int | None = None
    addresses: list[str] = []


class Source(Message, frozen=True, kw_only=True):
    """Where a part of this comes from, how old it is, and why it is not younger."""

    name: str
    age_s: float | None = None
    """Null: never read."""
    error: Problem | None = None


class HardwareState(Message, frozen=True, kw_only=True):
    """The whole machine. The age of each part is its source's; a card has its own too."""

    cards: list[Card] = []
    driver: Driver | None = None
    devices: list[PciDevice] = []
    infiniband: list[Adapter] = []
    cpu: Cpu | None = None
    numa: list[NumaNode] = []
    memory: Memory | None = None
    disks: list[Disk] = []
    links: list[Link] = []
    sources: list[Source] = []
    problems: list[Problem] = []
    """Of the node as a whole."""
    sampled_at: str = ""


class ClearRequest(Message, frozen=True, kw_only=True):
    """Forget past events of a card: its index, UUID, PCI address, or `all`."""

    card: str


class ClearResult(Message, frozen=True, kw_only=True):
    cleared: list[str] = []
    """Cards whose events were forgotten."""
    remaining: list[Card] = []
    """Of those, the cards that stay out of placement, with what keeps them out."""


class Finding(Message, frozen=True, kw_only=True):
    """What one check of the doctor saw."""

    check: str
    status: str
    """`ok`, `warning`, or `blocks`: this node cannot serve as configured."""
    found: str
    remedy: str = ""


class DoctorReport(Message, frozen=True, kw_only=True):
    ok: bool
    """Nothing blocks."""
    complete: bool
    """The daemon looked; false: it does not run, and the command looked by itself."""
    generated_at: str
    node: str
    blockers: int
    warnings: int
    findings: list[Finding] = []
