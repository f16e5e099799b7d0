"""`POST /v1/audio/transcriptions`, `/v1/images/edits` and their like: forms with files, passed through as they arrive.

Up to 512 MiB, of which no more is held than the early part in which the model's name stands. A target is chosen when
that is known. Another is asked only where it could not be reached: what has been sent on cannot be sent again.
Everything else is as for every inference path.
"""

from falcon.asgi import Request, Response

from core.api import RouteTarget
from core.http.asgi import Headers
from core.http.exchange import exchange
from core.http.incoming import BodyRefused, Incoming, whole_body
from core.http.plan import Attempt
from core.http.pool import Target
from core.http.verdict import Ended
from gateway.edited import EditedAnswer
from gateway.ending import RequestRecord
from gateway.errors import ApiError, cut
from gateway.forms import MAX_EARLY_BYTES, Field, FormReader, read_boundary
from gateway.incoming import read_class
from gateway.late_errors import find_dialect
from gateway.relay import InferencePlan, explain_failure
from gateway.renamed import Renaming
from gateway.routes.inference import Inference, find_client, read_body
from gateway.table import ModelEntry


class EarlyPart:
    """What has come of a form: bytes, and the fields that matter."""

    def __init__(self, data: bytes, model: Field, stream: bool) -> None:
        self.data = data
        self.model = model.value.decode("utf-8", "replace").strip()
        self.stream = stream
        self._begin = model.begin
        self._end = model.begin + len(model.value)

    def under(self, name: str) -> bytes:
        """The same bytes with another name for the model."""
        if name == self.model:
            return self.data
        return self.data[: self._begin] + name.encode("utf-8", "replace") + self.data[self._end :]


class FormRest:
    """What follows the early part (`core.http.exchange.Rest`)."""

    def __init__(self, incoming: Incoming, early_bytes: int) -> None:
        self.length = None if incoming.length is None else incoming.length - early_bytes
        self.size_bytes = early_bytes
        self._incoming = incoming

    async def read(self) -> bytes:
        try:
            part = await self._incoming.read()
        except BodyRefused as error:
            raise _refused(error) from None
        self.size_bytes += len(part)
        return part


class FormAnswer(EditedAnswer):
    """An answer to a form."""

    def __init__(self, plan: InferencePlan, entry: ModelEntry, early: EarlyPart, rest: FormRest, path: bytes) -> None:
        super().__init__(plan, Renaming(plan.record, entry, early.model, b"", path))
        self._entry = entry
        self._early = early
        self._rest = rest
        self._path = path

    def _ask(self, target: Target, route: RouteTarget, headers: Headers) -> exchange:
        body = self._early.under(self._entry.upstream_name(route))
        lines = self._plan.request_lines()
        return exchange(
            target, method=b"POST", path=self._path, headers=headers, body=body, added=lines, rest=self._rest,
            between_bytes_timeout_s=self._plan.between_bytes_timeout_s,
        )  # fmt: skip


class FormPlan(InferencePlan):
    """Names no other target once one has been sent something."""

    __slots__ = ()

    def next_target(self, failed: Attempt | None) -> Target | None:
        if failed is not None and failed.ended is not Ended.CONNECT_FAILED:
            self._next = len(self._candidates)
        return super().next_target(failed)


class Forms(Inference):
    """One path that takes forms."""

    plan_type = FormPlan

    async def _serve(self, req: Request, resp: Response, fields: dict[bytes, bytes], record: RequestRecord) -> None:
        client = find_client(req.scope)
        peer = record.client = self._guard.address_of(req.scope.get("client"), req.scope["headers"])
        routes, grant = self._guard.admit_work(fields, peer)
        record.key = grant.name
        boundary = read_boundary(fields.get(b"content-type", b""))
        if client is not None and client.incoming is not None:
            incoming = client.incoming
        else:
            incoming = whole_body(client.body if client is not None else await read_body(req))
        early = await read_early(incoming, boundary)
        record.model, record.stream = cut(early.model), early.stream
        if grant.limits is not None:
            # What is refused anyway takes nothing.
            self._find(routes, grant, early.model, record)
            record.place = self._dispatcher.limiter.take(grant, self._words)
        dialect = find_dialect(record)
        if client is not None and dialect is not None:
            client.expect_events(dialect)
        rest = FormRest(incoming, len(early.data))
        plan, entry = await self._plan(early.model, b"", fields, peer, read_class(fields), record)
        try:
            outcome = await FormAnswer(plan, entry, early, rest, self.raw_path).respond(req, resp)
            if outcome is not None:
                raise explain_failure(outcome, record.model)
        except ApiError as error:
            if error.http_status == 413:
                record.ended = "refused"
            raise
        finally:
            record.request_bytes = rest.size_bytes
            plan.close()


async def read_early(incoming: Incoming, boundary: bytes) -> EarlyPart:
    """As much of the form as is needed to know its model. Raises: ApiError."""
    reader, data = FormReader(boundary), bytearray()
    stream = False
    while True:
        try:
            part = await incoming.read()
        except BodyRefused as error:
            raise _refused(error) from None
        data += part
        while (field := reader.next_field(data)) is not None:
            if field.name == b"stream":
                stream = field.value.strip().lower() in (b"true", b"1")
            elif field.name == b"model" and field.value.strip():
                return EarlyPart(bytes(data), field, stream)
        if not part or reader.is_over:
            raise ApiError(400, "missing_model", "The form does not say which `model` it is for.")
        if len(data) > MAX_EARLY_BYTES:
            message = "The form's `model` must stand before its files where they are larger than 64 MiB."
            raise ApiError(400, "missing_model", message)


def _refused(error: BodyRefused) -> ApiError:
    return ApiError(error.refusal.status, error.refusal.code, f"The request was refused: {error.refusal.message}.")
