"""How a person asks a model for the first time: with which line, and whether with a key. Pure."""

from core.config.check import is_loopback
from core.config.schema import Config

_ASKED = {
    "chat": ("/v1/chat/completions", '"messages": [{"role": "user", "content": "Name the capital of France."}]'),
    "embedding": ("/v1/embeddings", '"input": "Paris is the capital of France."'),
}


def needs_key(config: Config) -> bool:
    """Whether a client on this machine must bring one."""
    return not config.security.allow_missing_auth or not is_loopback(config.server.host)


def kind_of(config: Config, model_id: str) -> str:
    """What the model is for."""
    return next((entry.kind for entry in config.models if entry.id == model_id), "chat")


def curl_line(url: str, model: str, *, with_key: bool, kind: str = "chat") -> str:
    """A command that a person can paste to get an answer."""
    key = ' -H "Authorization: Bearer $LLMGW_KEY"' if with_key else ""
    asked = _ASKED.get(kind)
    if asked is None:  # what makes images wants a workflow, which is no line
        return f"curl {url}/v1/models{key}"
    path, rest = asked
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")
    body = f'{{"model": "{escaped}", {rest}}}'
    return f"curl {url}{path}{key} -H 'Content-Type: application/json' -d '{body}'"
