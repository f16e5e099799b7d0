"""A program that reads what an engine tells of its prefix cache, as JSON lines; run by the engine's own interpreter,
which has ZeroMQ and msgpack.

    kv_subscriber.py follow ENDPOINT    every batch from now on, for ever; the line `ready` comes first
    kv_subscriber.py replay ADDRESS     every batch that it still has
"""

import json
import sys

import msgspec
import zmq  # type: ignore[import-not-found]  # it is in the environments of engines only

_END = (-1).to_bytes(8, "big", signed=True)


def follow(endpoint: str) -> None:
    """Print what is published."""
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.subscribe(b"")
    print(json.dumps("ready"), flush=True)
    while True:
        _, number, payload = socket.recv_multipart()
        tell(number, payload)


def replay(address: str) -> None:
    """Ask for everything since the first one, and print it."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(address)
    socket.send_multipart([b"", (0).to_bytes(8, "big")])
    while True:
        *_, number, payload = socket.recv_multipart()
        if number == _END:
            return
        tell(number, payload)


def tell(number: bytes, payload: bytes) -> None:
    """One batch: its number, and the events in it."""
    _, events, *_ = msgspec.msgpack.decode(payload)
    print(json.dumps({"number": int.from_bytes(number, "big"), "events": events}, default=str), flush=True)


if __name__ == "__main__":
    {"follow": follow, "replay": replay}[sys.argv[1]](sys.argv[2])
