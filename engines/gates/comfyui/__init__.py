"""ComfyUI's gate: many callers share one ComfyUI, and each sees, stops and reads its own work only.

ComfyUI has no users: whoever reaches it sees everybody's workflows, reads everybody's pictures and may stop them. The
gate is the only one that talks to it. It names every prompt and keeps on disk whose it is (`ledger.py`), rewrites what
a prompt may write and read (`graph.py`), follows the work over a websocket of its own (`desk.py`), answers from what it
knows, and lets each caller hear of its own work on websockets (`sockets.py`). Callers are told apart by the mark that
the gateway sends (`core/caller.py`).
"""
