"""The first config of a machine: what is found, in a file that says what it is. Pure."""

from ruamel.yaml.comments import CommentedMap

from cli.machine import Machine
from cli.views import mebibytes
from core.config.write import Document


def first_config(document: Document, machine: Machine, *, host: str, port: int) -> None:
    """Fill an empty document. Comments that stand in the file already stay on top of it."""
    document.clear()
    document["server"] = {"host": host, "port": port}
    document["cluster"] = {"nodeId": machine.hostname}
    if isinstance(document, CommentedMap):
        document.yaml_set_start_comment("\n".join(_comment(machine)))


def _comment(machine: Machine) -> list[str]:
    return [
        "What this machine serves. `llmgw config check` checks it, `llmgw reload` applies it,",
        "`llmgw model add` adds to it; llmgw-config(5) explains every key.",
        f"Found here: {facts(machine)}.",
    ]


def facts(machine: Machine) -> str:
    """The machine in a line."""
    cards = f"{machine.nvidia_cards} NVIDIA cards" if machine.nvidia_cards else "no NVIDIA card (models run on the CPU)"
    return f"{machine.cpu_count} CPUs, {mebibytes(machine.memory_mib)} of memory, {cards}"
