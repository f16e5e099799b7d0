"""A caller's workflow, judged and rewritten before ComfyUI sees it. Pure.

What passes is the graph (classes and inputs), the nodes that are wanted of it, and the workflow that is written into
pictures. Everything else a caller could say stays behind: ids of prompts, places in the queue. A client's id stays with
the gate, too: it says which of the caller's websockets hears of the prompt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from core.errors import UsageError
from engines.gates.comfyui.nodes import NodeClass
from engines.gates.comfyui.places import FileRefused, own_input, own_prefix

MAX_NODES = 2000
CLIENT = re.compile(r"[A-Za-z0-9._:@+=-]{1,128}")
"""How a caller may call its own websocket."""
_PREFIX = "filename_prefix"


class WorkflowRefused(UsageError):
    """The workflow is none, or asks for what no caller may do."""

    code = "workflow_refused"


class GraphNode(msgspec.Struct, frozen=True):
    """One node of a graph in ComfyUI's API format."""

    class_type: str
    inputs: dict[str, object] = {}


class Extra(msgspec.Struct, frozen=True):
    extra_pnginfo: dict[str, object] | None = None


class PromptBody(msgspec.Struct, frozen=True):
    """What is read of `POST /prompt` and of `POST /v1/workflows`."""

    prompt: dict[str, GraphNode]
    extra_data: Extra | None = None
    partial_execution_targets: list[str] | None = None
    client_id: str | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Workflow:
    """What ComfyUI is asked to do."""

    graph: dict[str, GraphNode]
    targets: list[str] | None = None
    extra: Extra | None = None
    client: str = ""
    """The websocket of the caller that hears of it; empty: all that have no name."""

    def encode(self, prompt_id: str, client_id: str) -> bytes:
        """The body of `POST /prompt`."""
        body: dict[str, object] = {"prompt": self.graph, "prompt_id": prompt_id, "client_id": client_id}
        if self.targets is not None:
            body["partial_execution_targets"] = self.targets
        if self.extra is not None and self.extra.extra_pnginfo is not None:
            body["extra_data"] = {"extra_pnginfo": self.extra.extra_pnginfo}
        return msgspec.json.encode(body)


_decoder = msgspec.json.Decoder(PromptBody)


def read_body(body: bytes) -> PromptBody:
    """Raises: WorkflowRefused."""
    try:
        asked = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise WorkflowRefused(f"the workflow cannot be read: {error}") from None
    except RecursionError:
        raise WorkflowRefused("the workflow is nested too deeply") from None
    if not asked.prompt:
        raise WorkflowRefused("the workflow has no nodes", hint="`prompt` is a graph in ComfyUI's API format")
    if len(asked.prompt) > MAX_NODES:
        raise WorkflowRefused(f"the workflow has {len(asked.prompt)} nodes; {MAX_NODES} are allowed")
    if asked.client_id and not CLIENT.fullmatch(asked.client_id):
        raise WorkflowRefused("client_id may have up to 128 letters, digits and any of . _ : @ + = -")
    return asked


def own_workflow(asked: PromptBody, caller: str, nodes: Mapping[str, NodeClass]) -> Workflow:
    """The workflow as this caller may have it run. Raises: WorkflowRefused, FileRefused."""
    graph = {node_id: _own_node(node_id, node, caller, nodes) for node_id, node in asked.prompt.items()}
    return Workflow(graph, asked.partial_execution_targets, asked.extra_data, asked.client_id or "")


def _own_node(node_id: str, node: GraphNode, caller: str, nodes: Mapping[str, NodeClass]) -> GraphNode:
    where = f"node {node_id[:40]!r} ({node.class_type[:80]!r})"
    known = nodes.get(node.class_type)
    if known is None:
        raise WorkflowRefused(f"{where}: there is no such class of nodes")
    if known.refusal:
        raise WorkflowRefused(f"{where} may not be used: {known.refusal}")
    inputs = dict(node.inputs)
    if _PREFIX in inputs:
        inputs[_PREFIX] = own_prefix(caller, _literal(inputs[_PREFIX], f"{where}: {_PREFIX}"))
    for key in known.uploads & inputs.keys():
        try:
            inputs[key] = own_input(caller, _literal(inputs[key], f"{where}: {key[:40]}"))
        except FileRefused as error:
            raise FileRefused(f"{where}: {error.message}") from None
    return GraphNode(node.class_type, inputs)


def _literal(value: object, what: str) -> str:
    """A text that stands in the workflow: what another node computes is known only when it is too late to judge."""
    if not isinstance(value, str):
        raise WorkflowRefused(f"{what} must be a text, not the output of a node or anything else")
    return value
