"""The client-facing program: a Falcon (ASGI) app that authenticates, chooses a target and relays.

It holds no privilege: what it must know comes from the daemon as a `RouteTable`, and what changes the machine is
asked of the daemon. Begin with `app.py` (what exists), then `routes/inference.py` (one request from head to log
line). `table.py`, `auth.py`, `origin.py`, `decode.py`, `router.py`, `turns.py`, `readiness.py` and `rewrite.py` decide
and do nothing; `relay.py`, `slots.py` (over the workers' shared `board.py`), `state.py` and `wake.py` do.
"""
