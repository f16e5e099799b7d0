"""How an answer ended and what it cost, in Anthropic's words."""

from collections.abc import Sequence

from gateway.translate.chat import Choice, Usage

Json = dict[str, object]

_REASONS = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "function_call": "tool_use"}


def read_ending(choice: Choice, stop_sequences: Sequence[str], *, has_tools: bool, refused: bool) -> Json:
    """`stop_reason` and `stop_sequence`.

    Engines that call a tool and say `stop` are believed in the former: the client would never run the tool. Which
    stop sequence it was only some engines say; where none does, the turn has ended.
    """
    finish = choice.finish_reason or "stop"
    reason = _REASONS.get(finish, "end_turn")
    if reason == "tool_use" and not has_tools:
        reason = "end_turn"
    met = next((word for word in (choice.stop_reason, choice.matched_stop) if word in stop_sequences), None)
    if reason == "end_turn":
        if has_tools:
            reason = "tool_use"
        elif refused:
            reason = "refusal"
        elif met is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": met}
    return {"stop_reason": reason, "stop_sequence": None}


def count_usage(usage: Usage | None, *, prompt: int, answer: int) -> Json:
    """Anthropic counts what came from the cache beside the rest. `prompt` and `answer` stand in for a missing count."""
    if usage is None:
        usage = Usage(prompt)
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer if usage.completion_tokens is None else usage.completion_tokens,
    }
