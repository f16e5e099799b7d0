"""Builds the document from the table. Pure."""

from collections.abc import Iterable

from gateway.auth import Access
from gateway.openapi.operation import JSON, Operation, Parameter, Reply
from gateway.openapi.schemas import SCHEMAS

Json = dict[str, object]
_KEYS: list[Json] = [{"bearer": []}, {"xApiKey": []}]
_MEANINGS = {
    400: "The request is wrong.",
    401: "A key is needed.",
    403: "This may not be done from here, or not with this key.",
    404: "There is no such thing.",
    405: "Not with this method.",
    409: "Its state forbids this.",
    413: "The body is too large, or would take more room than one may have.",
    415: "The body is of a kind that cannot be read.",
    429: "Too much at once; `Retry-After` says when to come back.",
    500: "A fault of the gateway.",
    502: "The engine failed.",
    503: "Not now; with `Retry-After` where waiting helps.",
    504: "It took too long.",
    507: "There is no room for more files.",
}


def build_document(operations: Iterable[Operation], version: str) -> Json:
    """OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llmgw",
            "version": version,
            "summary": "Models of this node, behind OpenAI's and Anthropic's API.",
            "description": "Routes for inference take a key; where the gateway listens on loopback and the config "
            "allows it, none. Routes below `/gateway/` take an administrator's.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "xApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": SCHEMAS,
        },
    }


def _operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.operation_id,
        "summary": operation.text,
        "tags": [operation.tag],
        "security": [] if operation.access is Access.PUBLIC else _KEYS,
        "responses": _responses(operation),
    }
    if operation.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        content = {operation.media: {"schema": _reference(operation.body)}}
        described["requestBody"] = {"required": operation.body_required, "content": content}
    return described


def _parameter(parameter: Parameter) -> Json:
    schema: Json = {"type": parameter.kind}
    if parameter.values:
        schema["enum"] = list(parameter.values)
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.text,
        "schema": schema,
    }


def _responses(operation: Operation) -> Json:
    responses: Json = {str(reply.status): _reply(reply) for reply in operation.replies}
    statuses = {*operation.errors, 500}
    if operation.access is not Access.PUBLIC:
        statuses.add(401)
    if operation.access is Access.ADMIN:
        statuses.add(403)
    if operation.body:
        statuses.add(400)
    for status in sorted(statuses):
        content = {JSON: {"schema": _reference(operation.dialect)}}
        responses[str(status)] = {"description": _MEANINGS[status], "content": content}
    return responses


def _reply(reply: Reply) -> Json:
    described: Json = {"description": reply.text}
    if reply.media:
        schema = _reference(reply.schema) if reply.schema else {}
        described["content"] = {media: {"schema": schema} if media == JSON else {} for media in reply.media}
    return described


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
