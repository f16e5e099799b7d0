"""`GET /`: the dashboard for browsers, a list of routes for all others. Public; it names no model and no host."""

from falcon import MEDIA_HTML, MEDIA_TEXT
from falcon.asgi import Request, Response

from gateway.auth import Access
from gateway.dashboard.page import build_page
from gateway.openapi.operations import OPERATIONS


def list_routes() -> str:
    """A line for each operation, as `curl` shows it."""
    rows = [
        (
            f"{operation.method} {operation.path}",
            operation.text + (" (admin)" if operation.access is Access.ADMIN else ""),
        )
        for operation in OPERATIONS
    ]
    width = max(len(name) for name, _ in rows)
    return "llmgw\n\n" + "".join(f"{name:{width}}  {text}\n" for name, text in rows)


class Index:
    """Which of the two, by the `Accept` header."""

    def __init__(self) -> None:
        self._page = build_page()
        self._text = list_routes()

    async def on_get(self, req: Request, resp: Response) -> None:
        if "text/html" in (req.accept or ""):
            resp.content_type = MEDIA_HTML
            resp.data = self._page.html
        else:
            resp.content_type = MEDIA_TEXT
            resp.text = self._text
        resp.set_header("vary", "accept")
        resp.set_header("cache-control", "no-cache")
        resp.set_header("content-security-policy", self._page.policy)
        resp.set_header("x-frame-options", "DENY")
        resp.set_header("x-content-type-options", "nosniff")
        resp.set_header("referrer-policy", "same-origin")
        resp.set_header("cross-origin-opener-policy", "same-origin")
        resp.set_header("cross-origin-resource-policy", "same-origin")

    on_head = on_get
