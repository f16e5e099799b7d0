"""What the config says of the hardware, as the sampler and the doctor take it. Pure."""

from pathlib import Path

from core.config.folders import engines_directory, weights_directory
from core.config.schema import Config
from core.paths import Layout
from daemon.hardware.inventory import Rules
from daemon.hardware.probe import Places
from daemon.hardware.sampler import Settings

_STALE_AT_LEAST_S = 30.0


def hardware_settings(config: Config, layout: Layout) -> Settings:
    """Values are stale when several samples in a row and a full deadline have brought nothing."""
    hardware, every_s = config.hardware, config.hardware.sample_interval_ms / 1000
    timeout_s = hardware.nvidia_smi_timeout_ms / 1000
    return Settings(
        places=Places(
            nvidia_smi=hardware.nvidia_smi,
            nvidia_smi_timeout_s=timeout_s,
            ib_root=Path(hardware.ib_root),
            disks=disk_folders(config, layout),
        ),
        rules=Rules(stale_after_s=max(_STALE_AT_LEAST_S, 3 * every_s + timeout_s), fabrics=hardware.fabrics),
        cards_every_s=every_s,
        kernel_log=Path(hardware.kernel_log) if hardware.kernel_log else None,
        marks=layout.state / "hardware-cleared.json",
    )


def disk_folders(config: Config, layout: Layout) -> tuple[tuple[str, Path], ...]:
    """Purpose and folder of everything large."""
    return (
        ("state", layout.state),
        ("engines", engines_directory(config, layout)),
        ("weights", weights_directory(config, layout)),
    )
