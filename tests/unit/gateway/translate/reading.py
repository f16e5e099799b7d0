"""Reads a translated stream as a client would, and holds it to the rules that clients rely on."""

import json
from dataclasses import dataclass, field

Event = dict[str, object]


@dataclass
class ReadMessage:
    """What a client has at the end of a stream."""

    blocks: list[Event] = field(default_factory=list)
    """As a whole Message has them."""
    stop_reason: object = None
    stop_sequence: object = None
    usage: dict[str, int] = field(default_factory=dict)
    is_whole: bool = False
    error: str = ""


def parse_events(data: bytes) -> list[Event]:
    """Events whose name is their type."""
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, _, payload = block.partition("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}", block
        events.append(event)
    return events


def read_stream(data: bytes) -> ReadMessage:
    """Every index is opened once, in order, one at a time, and closed once; one stop reason; nothing after the end."""
    message = ReadMessage()
    events = [event for event in parse_events(data) if event["type"] != "ping"]
    if not events:
        return message
    first = events[0]
    if first["type"] == "error":
        message.error = str(first["error"])
        return message
    assert first["type"] == "message_start"
    start = first["message"]
    assert isinstance(start, dict) and start["content"] == [] and start["stop_reason"] is None
    message.usage = dict(start["usage"])
    pieces: list[str] = []
    is_open = False
    for number, event in enumerate(events[1:], 1):
        match event:
            case {"type": "content_block_start", "index": index, "content_block": dict(block)}:
                assert not is_open and index == len(message.blocks) and message.stop_reason is None
                is_open = True
                pieces = []
                message.blocks.append(dict(block))
            case {"type": "content_block_delta", "index": index, "delta": dict(delta)}:
                assert is_open and index == len(message.blocks) - 1
                _add(message.blocks[-1], delta, pieces)
            case {"type": "content_block_stop", "index": index}:
                assert is_open and index == len(message.blocks) - 1
                is_open = False
                if message.blocks[-1]["type"] == "tool_use" and pieces:
                    message.blocks[-1]["input"] = json.loads("".join(pieces))
            case {"type": "message_delta", "delta": dict(delta), "usage": dict(usage)}:
                assert not is_open and message.stop_reason is None and delta["stop_reason"]
                message.stop_reason, message.stop_sequence = delta["stop_reason"], delta["stop_sequence"]
                message.usage.update(usage)
            case {"type": "message_stop"}:
                assert message.stop_reason is not None and number == len(events) - 1
                message.is_whole = True
            case {"type": "error", "error": error}:
                assert number == len(events) - 1
                message.error = str(error)
            case _:
                raise AssertionError(event)
    return message


def _add(block: Event, delta: Event, pieces: list[str]) -> None:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block["text"] = str(block["text"]) + text
        case {"type": "thinking_delta", "thinking": str(text)}:
            block["thinking"] = str(block["thinking"]) + text
        case {"type": "signature_delta", "signature": str(text)}:
            block["signature"] = text
        case {"type": "input_json_delta", "partial_json": str(text)}:
            assert block["type"] == "tool_use"
            pieces.append(text)
        case _:
            raise AssertionError(delta)
