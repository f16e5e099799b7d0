"""systemd's properties of a unit -> `UnitStatus`; unit names <-> object paths. Pure."""

import re
from collections.abc import Mapping

from core.errors import DependencyError
from units.backend import ActiveState, UnitStatus

CHANGE_STAMP = "StateChangeTimestampMonotonic"

STATUS_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "InvocationID",
    "Service.Result",
    "Service.MainPID",
    "Service.ExecMainStatus",
    "Service.NRestarts",
    "Service.StatusText",
)
"""What a `UnitStatus` is made of; of the interface `Unit` unless it is named."""

_INFINITY_US = 2**64 - 1

UNIT_PATH = "/org/freedesktop/systemd1/unit/"


class UnitPropertiesUnreadable(DependencyError):
    """systemd answered something that is no state of a unit."""

    code = "unit_properties_unreadable"


def unit_path(name: str) -> str:
    """The object path of a unit, whether it is loaded or not (`bus_label_escape`)."""
    escaped = re.sub(rb"[^A-Za-z0-9]", lambda found: f"_{found[0][0]:02x}".encode(), name.encode())
    return UNIT_PATH + escaped.decode()


def unit_name(path: str) -> str:
    """The unit of an object path."""
    label = path.removeprefix(UNIT_PATH).encode()
    return re.sub(rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), label).decode("utf-8", "replace")


def parse_status(name: str, properties: Mapping[str, object]) -> UnitStatus:
    """Raises: UnitPropertiesUnreadable."""
    active = _text(properties, "ActiveState")
    if active not in {known.value for known in ActiveState}:
        raise UnitPropertiesUnreadable(f"systemd calls {name} {active!r}, which is no state that we know")
    return UnitStatus(
        name=name,
        loaded=_text(properties, "LoadState") == "loaded",
        active_state=ActiveState(active),
        sub_state=_text(properties, "SubState"),
        result=_text(properties, "Service.Result") or "success",
        main_pid=_number(properties, "Service.MainPID"),
        exec_main_status=_number(properties, "Service.ExecMainStatus"),
        restarts=_number(properties, "Service.NRestarts"),
        status_text=_text(properties, "Service.StatusText"),
        invocation_id=_bytes(properties, "InvocationID").hex(),
    )


def parse_seconds(microseconds: object, *, infinity_s: float) -> float:
    """The value of a `…USec` property; systemd's infinity, and what is no number, count as `infinity_s`."""
    if isinstance(microseconds, int) and microseconds < _INFINITY_US:
        return microseconds / 1e6
    return infinity_s


def _text(properties: Mapping[str, object], key: str) -> str:
    value = properties.get(key, "")
    return value if isinstance(value, str) else ""


def _number(properties: Mapping[str, object], key: str) -> int:
    value = properties.get(key, 0)
    return value if isinstance(value, int) else 0


def _bytes(properties: Mapping[str, object], key: str) -> bytes:
    value = properties.get(key, [])
    return bytes(value) if isinstance(value, list) else b""
