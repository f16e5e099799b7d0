"""Which classes of nodes callers may use, read from ComfyUI's own `/object_info`. Pure.

A workflow is a program, and its nodes are what it can do. Allowed is what ComfyUI brings itself (`nodes`,
`comfy_extras`), less what reads or writes where the gate cannot keep callers apart; what the operator added (custom
nodes) or what calls paid services is refused unless the operator names the class. Judged by what a class says of
itself, so that a newer ComfyUI needs no newer table:

- its file inputs are uploads (`image_upload`, …): they are moved into the caller's folder; read from other folders: no
- it is an output and takes no `filename_prefix`, nor only shows a preview: it would write somewhere shared
- it loads something that is neither an upload nor a model (`Load…`), or names folders and data sets: it would read them
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from core.errors import DependencyError

_OWN_MODULES = re.compile(r"nodes|comfy_extras(\..+)?")
_SHARED = re.compile(r"Load(?!er)|.*(Folder|Data[Ss]et|Webcam|Directory|FromPath|FromURL)")
_PREFIX = "filename_prefix"


class NodesUnreadable(DependencyError):
    """ComfyUI's description of its nodes is not one."""

    code = "workflow_nodes_unreadable"


class _Info(msgspec.Struct):
    """Of one class, what is read."""

    input: dict[str, object] = {}
    python_module: str = ""
    output_node: bool = False


@dataclass(frozen=True, slots=True)
class NodeClass:
    """What the gate knows of one class."""

    refusal: str = ""
    """Why callers may not use it; empty: they may."""
    uploads: frozenset[str] = frozenset()
    """Inputs that name an uploaded file."""


_classes = msgspec.json.Decoder(dict[str, msgspec.Raw])
_info = msgspec.json.Decoder(_Info)
_raw = msgspec.json.Decoder(dict[str, object])


def read_nodes(object_info: bytes, allowed: Collection[str]) -> dict[str, NodeClass]:
    """Class -> what holds for it. `allowed`: classes that the operator lets callers use. Raises: NodesUnreadable."""
    try:
        classes = _classes.decode(object_info)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NodesUnreadable(f"ComfyUI's /object_info cannot be read: {error}") from error
    return {name: _read_class(name, described, name in allowed) for name, described in classes.items()}


def show_nodes(object_info: bytes, nodes: Mapping[str, NodeClass]) -> dict[str, msgspec.Raw]:
    """`/object_info` for callers: without what they may not use, and without the names of others' files."""
    shown = {}
    for name, described in _classes.decode(object_info).items():
        known = nodes.get(name)
        if known is None or known.refusal:
            continue
        info = _raw.decode(described)
        for inputs in _sections(info.get("input")):
            for key in known.uploads & inputs.keys():
                inputs[key] = _without_names(inputs[key])
        shown[name] = msgspec.Raw(msgspec.json.encode(info))
    return shown


def _read_class(name: str, described: msgspec.Raw, is_allowed: bool) -> NodeClass:
    """One class that describes itself oddly must not take the others away."""
    try:
        return _judge(name, _info.decode(described), is_allowed)
    except (msgspec.MsgspecError, RecursionError):
        return NodeClass("it does not say what it is")


def _judge(name: str, info: _Info, is_allowed: bool) -> NodeClass:
    uploads: set[str] = set()
    foreign = False
    names: set[str] = set()
    for inputs in _sections(info.input):
        names.update(inputs)
        for key, spec in inputs.items():
            options = _options(spec)
            if any(word.endswith("_upload") and value for word, value in options.items()):
                uploads.add(key)
            foreign = foreign or options.get("image_folder", "input") != "input"
    found = frozenset(uploads)
    if is_allowed:
        return NodeClass("", found)
    if not _OWN_MODULES.fullmatch(info.python_module):
        return NodeClass("it is not part of ComfyUI; the operator may allow it (options.allowNodes)", found)
    if foreign:
        return NodeClass("it reads the results of others", found)
    if info.output_node and _PREFIX not in names and "Preview" not in name:
        return NodeClass("it writes where callers are not kept apart", found)
    if _SHARED.match(name) and not found:
        return NodeClass("it reads files that are not yours", found)
    return NodeClass("", found)


def _sections(described: object) -> list[dict[str, object]]:
    """`required` and `optional`; what is `hidden` is ComfyUI's own."""
    if not isinstance(described, dict):
        return []
    return [section for key in ("required", "optional") if isinstance(section := described.get(key), dict)]


def _options(spec: object) -> dict[str, object]:
    if isinstance(spec, list) and len(spec) > 1 and isinstance(spec[1], dict):
        return spec[1]
    return {}


def _without_names(spec: object) -> object:
    if not isinstance(spec, list) or not spec:
        return spec
    first = [] if isinstance(spec[0], list) else spec[0]
    options = {**_options(spec), "options": []} if "options" in _options(spec) else _options(spec)
    return [first, options]
