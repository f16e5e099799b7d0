"""Refusals that the server makes by itself, before any application sees the request.

They carry the same envelope as every other error that a client can meet, so that one parser is enough.
"""

import json
from dataclasses import dataclass

from core.http.date import date_line
from core.http.status import STATUS_LINES


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not taken. The connection ends with it: the framing can no longer be trusted."""

    status: int
    code: str
    message: str

    def render(self, *, head_only: bool = False) -> bytes:
        """The whole response."""
        kind = "api_error" if self.status >= 500 else "invalid_request_error"
        error = {"message": self.message, "type": kind, "code": self.code}
        body = json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode()
        head = b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (
            STATUS_LINES[self.status],
            date_line(),
            len(body),
        )
        return head if head_only else head + body


MALFORMED = Refusal(400, "malformed_request", "the request is not valid HTTP/1.1")
HEAD_TOO_LARGE = Refusal(431, "head_too_large", "the request's headers are too large")
BODY_TOO_LARGE = Refusal(413, "body_too_large", "the request's body is too large")
HEAD_TIMED_OUT = Refusal(408, "request_timed_out", "the request did not arrive in time")
NO_HOST = Refusal(400, "bad_host", "an HTTP/1.1 request carries exactly one Host header")
BAD_FRAMING = Refusal(400, "bad_framing", "the length of the request's body is not clear")
UNKNOWN_CODING = Refusal(501, "unknown_transfer_coding", "chunked is the only transfer coding that is understood")
UNKNOWN_EXPECTATION = Refusal(417, "unknown_expectation", "100-continue is the only expectation that is understood")
UNKNOWN_VERSION = Refusal(505, "unknown_http_version", "HTTP/1.0 and HTTP/1.1 are served")
NO_TUNNELS = Refusal(405, "method_not_allowed", "this is not a proxy for other hosts")
BAD_TARGET = Refusal(400, "bad_request_target", "the request's target is not a path")
PIPELINE_TOO_LONG = Refusal(400, "pipeline_too_long", "too many requests were sent before their answers were read")
APPLICATION_FAILED = Refusal(500, "internal_error", "the request could not be processed")
