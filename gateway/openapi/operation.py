"""One operation of the gateway's API, as the table in `operations.py` tells it. Pure."""

from dataclasses import dataclass

from gateway.auth import Access

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
EVENTS = "text/event-stream"
FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Parameter:
    """In the path or in the query. `values`: the only ones that there are."""

    name: str
    text: str
    place: str = "query"
    values: tuple[str, ...] = ()
    required: bool = False
    kind: str = "string"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer that is no error; `schema` names a component, or is empty where any JSON may come."""

    status: int
    text: str
    media: tuple[str, ...] = (JSON,)
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    method: str
    path: str
    tag: str
    text: str
    access: Access
    replies: tuple[Reply, ...]
    body: str = ""
    """Names a component; empty: the request has no body."""
    body_required: bool = True
    media: str = "application/json"
    """Of the body."""
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    """Statuses beside those of every operation of its class."""
    dialect: str = "Error"
    """The component that its errors are."""

    @property
    def operation_id(self) -> str:
        """Unique, and a name in every language that clients are generated in."""
        words = [word for word in self.path.replace("{", "").replace("}", "").replace("-", "_").split("/") if word]
        return "_".join([self.method.lower(), *(word.replace(".", "_") for word in words or ["index"])])
