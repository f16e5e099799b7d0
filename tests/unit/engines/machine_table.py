"""Machines that the choice of builds is tested on: name -> machine. The cards are such as people have."""

from engines.machine import Gpu, Machine

X86, ARM = "linux-x86_64", "linux-aarch64"
BOOKWORM, TRIXIE, JAMMY, NOBLE, BULLSEYE = (2, 36), (2, 41), (2, 35), (2, 39), (2, 31)
AVX2 = frozenset({"sse4_2", "avx", "avx2", "fma", "f16c", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512_bf16"}
OLD_CPU = frozenset({"sse4_2", "avx"})
NEON = frozenset({"asimd", "sve"})

P40, V100 = Gpu("Tesla P40", (6, 1)), Gpu("Tesla V100-SXM2-32GB", (7, 0))
GTX1080 = Gpu("GeForce GTX 1080", (6, 1))
M40 = Gpu("Tesla M40", (5, 2))
K80 = Gpu("Tesla K80", (3, 7))
T4, A100 = Gpu("Tesla T4", (7, 5)), Gpu("NVIDIA A100-SXM4-80GB", (8, 0))
A10, ORIN = Gpu("NVIDIA A10", (8, 6)), Gpu("Orin", (8, 7))
RTX4090, H100 = Gpu("NVIDIA GeForce RTX 4090", (8, 9)), Gpu("NVIDIA H100 80GB HBM3", (9, 0))
GH200, B200 = Gpu("NVIDIA GH200 480GB", (9, 0)), Gpu("NVIDIA B200", (10, 0))
B300, THOR = Gpu("NVIDIA B300", (10, 3)), Gpu("NVIDIA Thor", (11, 0))
RTX5090, GB10 = Gpu("NVIDIA GeForce RTX 5090", (12, 0)), Gpu("NVIDIA GB10", (12, 1))

R470, R535, R560 = ((470, 256, 2), (11, 4)), ((535, 183, 1), (12, 2)), ((560, 35, 3), (12, 6))
R570, R580, R595 = ((570, 86, 10), (12, 8)), ((580, 95, 5), (13, 0)), ((595, 58), (13, 4))


def a_machine(
    *gpus: Gpu,
    driver: tuple[tuple[int, ...], tuple[int, int]] = ((), (0, 0)),
    platform: str = X86,
    glibc: tuple[int, int] = BOOKWORM,
    cpu: frozenset[str] = AVX2,
    python: tuple[int, int] = (3, 11),
    other: tuple[str, ...] = (),
) -> Machine:
    return Machine(platform, glibc, cpu, python, gpus, *driver, other_gpus=other)


MACHINES: dict[str, Machine] = {
    "Debian 12, no card": a_machine(),
    "Debian 13, no card, Python 3.13": a_machine(glibc=TRIXIE, python=(3, 13)),
    "Debian 12, no card, no AVX2": a_machine(cpu=OLD_CPU),
    "Debian 11, no card": a_machine(glibc=BULLSEYE, python=(3, 9)),
    "Alpine, no card": a_machine(glibc=(0, 0), python=(3, 12)),
    "arm64 server, no card": a_machine(platform=ARM, cpu=NEON),
    "Debian 12, AMD card": a_machine(other=("AMD",)),
    "Ubuntu 24.04, AMD card": a_machine(glibc=NOBLE, python=(3, 12), other=("AMD",)),
    "Debian 12, Intel card": a_machine(other=("Intel",)),
    "K80, driver 470": a_machine(K80, driver=R470),
    "M40, driver 535": a_machine(M40, driver=R535),
    "P40, driver 580": a_machine(P40, driver=R580),
    "GTX 1080, driver 570, Ubuntu 24.04": a_machine(GTX1080, driver=R570, glibc=NOBLE, python=(3, 12)),
    "two V100, driver 580": a_machine(V100, V100, driver=R580),
    "two V100, driver 535": a_machine(V100, V100, driver=R535),
    "two V100, driver 580, Ubuntu 24.04": a_machine(V100, V100, driver=R580, glibc=NOBLE, python=(3, 12)),
    "T4, driver 535": a_machine(T4, driver=R535),
    "T4, driver 580": a_machine(T4, driver=R580),
    "A100, driver 560": a_machine(A100, driver=R560),
    "A10, driver 580": a_machine(A10, driver=R580),
    "RTX 4090, driver 580": a_machine(RTX4090, driver=R580),
    "RTX 4090, driver 570, Ubuntu 22.04": a_machine(RTX4090, driver=R570, glibc=JAMMY, python=(3, 10)),
    "RTX 4090, driver 535, Ubuntu 24.04": a_machine(RTX4090, driver=R535, glibc=NOBLE, python=(3, 12)),
    "RTX 4090, driver 595, Debian 13": a_machine(RTX4090, driver=R595, glibc=TRIXIE, python=(3, 13)),
    "RTX 4090 beside a P40, driver 580": a_machine(RTX4090, P40, driver=R580),
    "RTX 4090, no AVX2": a_machine(RTX4090, driver=R580, cpu=OLD_CPU),
    "eight H100, driver 580": a_machine(*[H100] * 8, driver=R580, cpu=AVX512),
    "eight H100, driver 535": a_machine(*[H100] * 8, driver=R535, cpu=AVX512),
    "eight H100, driver 595, Ubuntu 24.04": a_machine(*[H100] * 8, driver=R595, glibc=NOBLE, python=(3, 12)),
    "GH200, driver 580": a_machine(GH200, driver=R580, platform=ARM, cpu=NEON),
    "B200, driver 570": a_machine(B200, driver=R570, cpu=AVX512),
    "B200, driver 580": a_machine(B200, driver=R580, cpu=AVX512),
    "B300, driver 580, Ubuntu 24.04": a_machine(B300, driver=R580, glibc=NOBLE, python=(3, 12), cpu=AVX512),
    "RTX 5090, driver 595, Debian 13, Python 3.14": a_machine(RTX5090, driver=R595, glibc=TRIXIE, python=(3, 14)),
    "GB10, driver 580, Ubuntu 24.04": a_machine(GB10, driver=R580, platform=ARM, cpu=NEON, glibc=NOBLE, python=(3, 12)),
    "GB10, driver 595, Ubuntu 24.04": a_machine(GB10, driver=R595, platform=ARM, cpu=NEON, glibc=NOBLE, python=(3, 12)),
    "Thor, driver 580, Ubuntu 24.04": a_machine(THOR, driver=R580, platform=ARM, cpu=NEON, glibc=NOBLE, python=(3, 12)),
    "RTX 4090 without a driver": a_machine(),
    "macOS": Machine("darwin-arm64", (0, 0), frozenset()),
}
