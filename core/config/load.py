"""Reading the config file: YAML or JSON text -> expanded -> typed -> checked, with all problems at once."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from core.config.check import check
from core.config.convert import convert
from core.config.expand import TooLarge, expand, parse_environment_file
from core.config.model_check import fill_keys
from core.config.problem import ConfigErrors, Problem
from core.config.schema import Config
from core.errors import NotFoundError
from core.paths import Layout

_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config that can be used."""

    config: Config
    path: Path
    references: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """Key paths that stand in the file; the rest are defaults."""
    text: bytes = field(default=b"", repr=False, compare=False)
    """The file as it was read, with its `${NAME}` unreplaced."""


class ConfigMissing(NotFoundError):
    """There is no config file yet."""

    code = "config_missing"


def load_config(layout: Layout, environ: Mapping[str, str]) -> Loaded:
    """Read and check `layout.config`; `${NAME}` comes from `environ`, then from the environment file.

    Raises: ConfigMissing, ConfigErrors (with every problem).
    """
    variables = config_variables(layout, environ)
    return parse_config(read_config(layout.config), layout.config, variables, has_made_keys=has_made_keys(layout))


def has_made_keys(layout: Layout) -> bool:
    """Whether clients' keys are also made by `llmgw key create`. That all of them were revoked changes nothing: a
    node must not refuse its config because its last key went.
    """
    return os.path.exists(layout.client_keys)


def read_config(path: Path) -> bytes:
    """The file's bytes, bounded. Raises: ConfigMissing, ConfigErrors."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigMissing(f"{path} does not exist", hint="llmgw init --apply") from None
    except OSError as error:
        raise ConfigErrors(str(path), [Problem("", f"cannot be read: {error.strerror}")]) from error


def says_nothing(data: bytes) -> bool:
    """Whether the file has nothing but comments.

    To YAML that is a config that wants nothing; mostly it is one that somebody begins to write, or what a power failure
    left of it.
    """
    lines = (line.strip() for line in data.removeprefix(b"\xef\xbb\xbf").splitlines())
    return all(line in (b"", b"---", b"...") or line.startswith(b"#") for line in lines)


def config_variables(layout: Layout, environ: Mapping[str, str]) -> dict[str, str]:
    """What `${NAME}` can stand for: the environment file's variables, and over them the environment's."""
    return {**read_environment_file(layout.environment), **environ}


def read_environment_file(path: Path) -> dict[str, str]:
    """The environment file's variables; none when it does not exist or may not be read."""
    try:
        return parse_environment_file(path.read_text("utf-8", "replace"))
    except OSError:
        return {}


def parse_config(data: bytes, path: Path, variables: Mapping[str, str], *, has_made_keys: bool = False) -> Loaded:
    """The same from bytes. Raises: ConfigErrors."""
    if len(data) > _MAX_BYTES:
        raise ConfigErrors(str(path), [Problem("", f"is larger than {_MAX_BYTES >> 20} MiB")])
    document = _parse_yaml(data, path)
    try:
        expansion = expand(document, variables)
    except (TooLarge, RecursionError) as error:
        raise ConfigErrors(str(path), [Problem("", str(error) or "is nested too deeply")]) from error
    config, problems = convert(expansion.value)
    keys, missing = fill_keys(config.backends, variables)
    problems = [*expansion.problems, *problems, *missing]
    if not problems:
        config = _with_keys(config, keys)
        problems = check(config, has_made_keys=has_made_keys, host_name=socket.gethostname())
    if problems:
        raise ConfigErrors(str(path), problems)
    references = {**expansion.references, **_key_references(config, keys)}
    return Loaded(config, path, references, frozenset(_paths(document, "")), data)


def _with_keys(config: Config, keys: Mapping[str, str]) -> Config:
    backends = {name: replace(each, api_key=keys.get(name, each.api_key)) for name, each in config.backends.items()}
    return replace(config, backends=backends)


def _key_references(config: Config, keys: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {f"backends.{name}.apiKey": (config.backends[name].api_key_env,) for name in keys}


def _parse_yaml(data: bytes, path: Path) -> object:
    """JSON is YAML. The pure loader of the safe kind: no tags that make objects, no duplicate keys."""
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = False
    # YAML lets a name be given anew; the library would print a warning of its own about it.
    yaml.composer.warn_double_anchors = False
    try:
        document: object = yaml.load(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigErrors(str(path), [Problem("", f"is not UTF-8 at byte {error.start}")]) from error
    except MarkedYAMLError as error:
        where = (
            f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}" if error.problem_mark else ""
        )
        raise ConfigErrors(str(path), [Problem(where, f"{error.problem or 'is not YAML'}")]) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigErrors(str(path), [Problem("", f"is not YAML: {str(error).splitlines()[0][:200]}")]) from error
    return document


def _paths(value: object, path: str) -> list[str]:
    if isinstance(value, Mapping):
        return [p for key, item in value.items() for p in _paths(item, f"{path}.{key}" if path else str(key))]
    return [path]
