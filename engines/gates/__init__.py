"""The key-checking fronts of engines that demand no key: one small process per gated runtime.

`python -m engines.gates KIND …` listens on the runtime's port, demands the runtime's key, and asks the engine, which
listens on a port of loopback that nobody is told of. Two kinds: `generic` lets a list of paths through, `comfyui` knows
ComfyUI's API and keeps its callers apart. `engines/gates/command.py` makes the command line; the daemon puts it into a
unit that is bound to the engine's.
"""
