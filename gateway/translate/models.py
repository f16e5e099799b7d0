"""The list of models in Anthropic's shape, page by page. Pure.

What we do not know is null, as their API allows; when a model was released is the epoch, their word for unknown.
"""

from collections.abc import Sequence

from core.api import RouteModel
from gateway.errors import ApiError

Json = dict[str, object]
DEFAULT_LIMIT = 20
MAX_LIMIT = 1000
_UNKNOWN_DATE = "1970-01-01T00:00:00Z"


def describe_model(model: RouteModel, asked: str = "") -> Json:
    """One model, under the id that was asked for."""
    id_ = asked or model.id
    return {
        "type": "model",
        "id": id_,
        "display_name": model.id,
        "created_at": _UNKNOWN_DATE,
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": model.context_window,
        "max_tokens": None,
        "capabilities": None,
    }


def list_page(models: Sequence[RouteModel], *, limit: str, after_id: str, before_id: str) -> Json:
    """One page: the models after `after_id`, or those right before `before_id`. An id that is not there is no page.

    Raises: ApiError (400) for a limit that is none, and for both ids at once.
    """
    count = _read_limit(limit)
    if after_id and before_id:
        raise ApiError(400, "invalid_request", "`after_id` and `before_id` exclude each other.")
    ids = [model.id for model in models]
    if before_id:
        end = ids.index(before_id) if before_id in ids else 0
        begin = max(end - count, 0)
        has_more = begin > 0
    else:
        begin = 0 if not after_id else ids.index(after_id) + 1 if after_id in ids else len(ids)
        end = min(begin + count, len(ids))
        has_more = end < len(ids)
    page = [describe_model(model) for model in models[begin:end]]
    return {
        "data": page,
        "has_more": has_more,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _read_limit(limit: str) -> int:
    if not limit:
        return DEFAULT_LIMIT
    if limit.isascii() and limit.isdigit() and len(limit) <= len(str(MAX_LIMIT)) and 1 <= int(limit) <= MAX_LIMIT:
        return int(limit)
    raise ApiError(400, "invalid_request", f"`limit` is a number from 1 to {MAX_LIMIT}.")
