"""`llmgw firewall sync --install`: have systemd install the node's wish at boot and whenever its file changes."""

from pathlib import Path

from cli.output import say, show_json
from cli.service import require_systemd
from cli.session import Session
from core.errors import UnavailableError, UsageError
from core.files import ensure_directory, write_atomic
from core.paths import Layout
from core.process import run_process

UNITS = ("llmgw-firewall-sync.path", "llmgw-firewall-sync.service")
_SYSTEMCTL_S = 60.0
_SHIPPED = (Path("/lib/systemd/system"), Path("/usr/lib/systemd/system"), Path("/etc/systemd/system"))


async def install(session: Session, *, dry_run: bool) -> None:
    """Write drop-ins where the state lies elsewhere than the package's, and enable the units."""
    require_systemd()
    if not any((folder / UNITS[0]).exists() for folder in _SHIPPED):
        raise UnavailableError(
            f"{UNITS[0]} is not installed", hint="it comes with the Debian package", code="units_missing"
        )
    files = plan_drop_ins(session.layout)
    commands = (("systemctl", "daemon-reload"), ("systemctl", "enable", "--now", *UNITS))
    if not dry_run:
        for path, text in files.items():
            ensure_directory(path.parent)
            write_atomic(path, text)
        for command in commands:
            await run_process(command, timeout_s=_SYSTEMCTL_S)
    _show(session, files, commands)


def plan_drop_ins(layout: Layout) -> dict[Path, str]:
    """Pure. None for the system's own layout, which is what the units say by themselves.

    Raises: UsageError for a path that a unit file cannot hold.
    """
    if layout.state == Layout.system().state:
        return {}
    wish, state = str(layout.firewall_wish), str(layout.state.parent)
    if not wish.isprintable() or any(character in wish for character in "\"'\\"):
        raise UsageError(f"a unit file cannot name {wish!r}", hint="choose another --state")
    watched, home = wish.replace("%", "%%"), state.replace("%", "%%")
    folder = Path("/etc/systemd/system")
    return {
        folder / f"{UNITS[0]}.d/state.conf": f"[Path]\nPathChanged=\nPathChanged={watched}\n",
        folder / f"{UNITS[1]}.d/state.conf": (
            f"[Unit]\nConditionPathExists=\nConditionPathExists={watched}\n\n"
            f'[Service]\nEnvironment="LLMGW_STATE={home}"\n'
            # Homes are private: on Debian 13 for everybody, elsewhere for who wants it.
            "CapabilityBoundingSet=CAP_DAC_READ_SEARCH\n"
        ),
    }


def _show(session: Session, files: dict[Path, str], commands: tuple[tuple[str, ...], ...]) -> None:
    lines = [" ".join(command) for command in commands]
    if session.json:
        show_json({"files": {str(path): text for path, text in files.items()}, "commands": lines})
        return
    for path, text in files.items():
        say(f"{path}:")
        for line in text.splitlines():
            say(f"  {line}")
    for line in lines:
        say(line)
