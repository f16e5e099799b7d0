"""The `[X-Llmgw]` section of a generated unit file: the record of what runs, written and read back.

systemd skips sections named `X-…`, so the record travels with the unit it describes and needs no second database.
A daemon that starts reads the records to adopt what runs. Reading is tolerant of keys that a newer version wrote and
strict about everything else: a file that somebody else wrote or broke is `RecordUnreadable`, and then the daemon
leaves that unit alone. Pure.
"""

from collections.abc import Callable, Sequence

from core.errors import ConfigError
from core.runtime import Authority, AuthorityScope
from units.model import Failure, UnitRecord
from units.words import WordsUnreadable, quote_word, split_words

SECTION = "[X-Llmgw]"
KINDS = ("engine", "gate")


class RecordUnreadable(ConfigError):
    """A unit file without a record that we can trust."""

    code = "unit_record_unreadable"


_KEYS = {
    "RuntimeId": "runtime_id",
    "Kind": "kind",
    "Engine": "engine",
    "Build": "build",
    "SpecHash": "spec_hash",
    "Ports": "ports",
    "AuthorityOwner": "owner",
    "AuthorityScope": "scope",
    "AuthorityGroup": "group",
    "Devices": "devices",
    "Since": "since",
    "Hold": "hold",
    "Leaving": "leaving",
    "Failure": "failure",
}
"""Key in the file -> field of `UnitRecord` or of its `Authority`."""


def render_record(record: UnitRecord) -> list[str]:
    """The section's lines. Raises: WordRefused for what a unit file cannot carry."""
    values: dict[str, Sequence[str]] = {
        "RuntimeId": (record.runtime_id,),
        "Kind": (record.kind,),
        "Engine": (record.engine,),
        "Build": (record.build,),
        "SpecHash": (record.spec_hash,),
        "Ports": [str(port) for port in record.ports],
        "AuthorityOwner": (record.authority.owner,),
        "AuthorityScope": (record.authority.scope,),
        "AuthorityGroup": (record.authority.group,),
        "Devices": record.devices,
        "Since": (record.since,),
        "Hold": ("yes" if record.hold else "no",),
        "Leaving": ("yes",) if record.leaving else (),
        "Failure": (record.failure.code, record.failure.message) if record.failure else (),
    }
    return [SECTION, *(_render_line(key, words) for key, words in values.items() if any(words))]


def _render_line(key: str, words: Sequence[str]) -> str:
    return f"{key}=" + " ".join(quote_word(word, directive=f"{SECTION} {key}", dollars=False) for word in words)


def parse_record(text: str) -> UnitRecord:
    """The record in a unit file's text. Raises: RecordUnreadable."""
    values = _read_section(text)
    scope = _word(values, "AuthorityScope") or AuthorityScope.LOCAL.value
    if scope not in {known.value for known in AuthorityScope}:
        raise RecordUnreadable(f"AuthorityScope={scope} is not a scope that this version knows")
    record = UnitRecord(
        runtime_id=_word(values, "RuntimeId"),
        kind=_word(values, "Kind"),
        engine=_word(values, "Engine"),
        build=_word(values, "Build"),
        spec_hash=_word(values, "SpecHash"),
        ports=tuple(_port(word) for word in values.get("Ports", ())),
        authority=Authority(_word(values, "AuthorityOwner"), AuthorityScope(scope), _word(values, "AuthorityGroup")),
        devices=tuple(values.get("Devices", ())),
        since=_word(values, "Since"),
        hold=_flag(values, "Hold"),
        leaving=_flag(values, "Leaving"),
        failure=_failure(values),
    )
    if not record.runtime_id or record.kind not in KINDS:
        raise RecordUnreadable(f"the {SECTION} section names no runtime or an unknown kind of unit: {record.kind!r}")
    return record


def change_record(text: str, change: Callable[[UnitRecord], UnitRecord]) -> str:
    """The same unit file with what `change` changes in its record and nothing else. Raises: RecordUnreadable."""
    record = change(parse_record(text))
    before, _, after = text.partition(f"{SECTION}\n")
    if any(line.lstrip().startswith("[") for line in after.split("\n")):
        raise RecordUnreadable(f"{SECTION} is not the last section of this unit file, so we did not write it")
    unknown = [line for line in after.rstrip("\n").split("\n") if _key_of(line) not in _KEYS]
    return before + "\n".join([*render_record(record), *unknown]) + "\n"


def _key_of(line: str) -> str:
    return line.partition("=")[0].strip()


def _read_section(text: str) -> dict[str, list[str]]:
    """Words of each known key; every key at most once, the section exactly once."""
    values: dict[str, list[str]] = {}
    inside = False
    seen = 0
    for line in text.split("\n"):  # splitlines() knows more line ends than systemd does
        stripped = line.strip()
        if stripped.startswith("["):
            inside = stripped == SECTION
            seen += inside
        elif inside and stripped and stripped[0] not in "#;":
            key = _key_of(line)
            if key in values or "=" not in line:
                raise RecordUnreadable(f"the line {line[:80]!r} of {SECTION} has no place there")
            if key in _KEYS:
                values[key] = _words(line.partition("=")[2])
    if seen != 1:
        raise RecordUnreadable(f"a unit file of ours has one {SECTION} section, this one has {seen}")
    return values


def _words(text: str) -> list[str]:
    try:
        return split_words(text)
    except WordsUnreadable as error:
        raise RecordUnreadable(error.message) from error


def _word(values: dict[str, list[str]], key: str) -> str:
    words = values.get(key, [])
    if len(words) > 1:
        raise RecordUnreadable(f"{key}= of {SECTION} holds {len(words)} words instead of one")
    return words[0] if words else ""


def _port(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 0 < int(word[:6]) < 65536 and len(word) < 6):
        raise RecordUnreadable(f"Ports= of {SECTION} holds {word[:20]!r}, which is no port")
    return int(word)


def _failure(values: dict[str, list[str]]) -> Failure | None:
    words = values.get("Failure", [])
    if not words:
        return None
    if len(words) != 2:
        raise RecordUnreadable(f"Failure= of {SECTION} holds {len(words)} words instead of a code and a message")
    return Failure(*words)


def _flag(values: dict[str, list[str]], key: str) -> bool:
    word = _word(values, key)
    if word not in ("yes", "no", ""):
        raise RecordUnreadable(f"{key}= of {SECTION} is {word!r} instead of yes or no")
    return word == "yes"
