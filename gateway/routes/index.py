"""`GET /`: a small page for a person who opens the port in a browser. Public; it names no model and no host."""

from falcon import MEDIA_HTML, MEDIA_TEXT
from falcon.asgi import Request, Response

_ENDPOINTS = (
    ("POST /v1/chat/completions", "chat, OpenAI's API, streaming and not"),
    ("POST /v1/completions", "text completion"),
    ("POST /v1/embeddings", "embeddings"),
    ("GET /v1/models", "what can be asked for"),
    ("GET /health", "is the gateway alive"),
    ("GET /health/ready", "does it know its models"),
    ("GET /gateway/status", "runtimes and configuration (admin)"),
    ("GET /gateway/node", "this node (admin)"),
)
_TEXT = "llmgw\n\n" + "".join(f"{endpoint:28} {purpose}\n" for endpoint, purpose in _ENDPOINTS)
_ROWS = "".join(f"<tr><td><code>{endpoint}</code></td><td>{purpose}</td></tr>" for endpoint, purpose in _ENDPOINTS)
_HTML = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>llmgw</title>'
    "<style>body{font-family:sans-serif;margin:2em}td{padding:.2em 1em .2em 0}</style>"
    f"<h1>llmgw</h1><table>{_ROWS}</table></html>\n"
)


class Index:
    """HTML for browsers, text for everybody else."""

    async def on_get(self, req: Request, resp: Response) -> None:
        is_browser = "text/html" in (req.accept or "")
        resp.content_type = MEDIA_HTML if is_browser else MEDIA_TEXT
        resp.text = _HTML if is_browser else _TEXT
        resp.set_header("x-frame-options", "DENY")
        resp.set_header(
            "content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        )
        resp.set_header("referrer-policy", "same-origin")

    on_head = on_get
