"""This machine's hardware, for a command: from the daemon, or with our own eyes where none runs."""

from pathlib import Path

from cli.session import Session
from core.clock import SystemClock
from core.config import folders
from core.config.load import ConfigMissing, load_config
from core.config.problem import ConfigErrors
from core.config.schema import Config
from core.errors import UnavailableError
from core.hardware import HardwareState
from daemon.hardware.inventory import build_state
from daemon.hardware.probe import Probe
from daemon.hardware.settings import hardware_settings


async def read_hardware(session: Session) -> HardwareState:
    """Fresh. Raises: UnavailableError from a daemon that runs and does not answer."""
    try:
        async with session.daemon() as daemon:
            return await daemon.hardware(fresh=True)
    except UnavailableError as error:
        if error.code != "daemon_not_running":
            raise
    config = config_or_defaults(session)
    settings, clock = hardware_settings(config, session.layout), SystemClock()
    probe = Probe(settings.places, clock)
    await probe.read_all()
    return build_state(probe.inventory, settings.rules, clock.monotonic_s(), "")


def config_or_defaults(session: Session) -> Config:
    """What the file says, or nothing where it cannot be read: then it is not what was asked about."""
    try:
        return load_config(session.layout, session.environment()).config
    except (ConfigErrors, ConfigMissing):
        return Config()


def engines_directory(session: Session) -> Path:
    """Where builds of engines lie."""
    return folders.engines_directory(config_or_defaults(session), session.layout)
