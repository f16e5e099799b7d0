"""What a client wants done: `{"path": "/v1/…", "body": {…}}`. Pure.

The body is kept byte for byte as the client wrote it, and is judged by the path's own route when the job's turn comes;
here only what would be wrong for ever is refused at once.
"""

import msgspec

from gateway.decode import Asked, read_asked
from gateway.errors import ApiError, cut
from gateway.table import INFERENCE_PATHS, TRANSLATED

JOB_PATHS = frozenset({*INFERENCE_PATHS, *TRANSLATED})


class JobRequest(msgspec.Struct, frozen=True):
    """As it is posted."""

    path: str
    body: msgspec.Raw


_decoder = msgspec.json.Decoder(JobRequest)


def read_job_request(data: bytes) -> tuple[str, bytes, Asked]:
    """Path, body, and what the router reads of it. Raises: ApiError (400)."""
    try:
        request = _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", f"A job is a `path` and a `body`: {error}.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ApiError(400, "invalid_json", f"The request's body is not valid JSON: {error}.") from None
    except RecursionError:
        raise ApiError(400, "invalid_json", "The request's body is nested too deeply.") from None
    if request.path not in JOB_PATHS:
        raise ApiError(400, "job_path_unknown", f"'{cut(request.path)}' is no path that a job can ask.")
    body = bytes(request.body)
    asked = read_asked(body)
    if asked.stream is True:
        raise ApiError(400, "invalid_request", "A job has no stream: leave `stream` out.")
    return request.path, body, asked
