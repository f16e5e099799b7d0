"""The document's components: what the gateway itself reads and answers. Pure data.

Of a request for inference only what the gateway reads is named; everything else is the engine's, and is passed on.
"""

Json = dict[str, object]


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    """Unknown fields are allowed everywhere: they survive in requests, and may be added to answers."""
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _text(text: str = "") -> Json:
    return {"type": "string", "description": text} if text else {"type": "string"}


def _maybe(kind: str, text: str = "") -> Json:
    schema: Json = {"type": [kind, "null"]}
    return schema | {"description": text} if text else schema


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


_BOOLEAN: Json = {"type": "boolean"}
_INTEGER: Json = {"type": "integer"}
_ANY: Json = {}
_MODEL = _text("The id or an alias of a model of `/v1/models`.")
_STREAM: Json = {"type": ["boolean", "null"], "default": False}
_MESSAGES = _array(_object(("role",), role=_text(), content=_ANY))
_JOB_STATES: Json = {"type": "string", "enum": ["queued", "running", "done", "failed", "cancelled"]}


def _error(inside: Json, **beside: Json) -> Json:
    return _object(("error", *beside), error=inside, **beside)


_INSIDE = _object(
    ("message", "type", "code"),
    message=_text(),
    type=_text("OpenAI's coarse word."),
    code=_text("Stable: llmgw-errors(7) lists them all."),
    model=_text(),
    state=_text("Of the model's runtime."),
    reason=_text(),
)

SCHEMAS: dict[str, Json] = {
    "Error": _error(_INSIDE),
    "AnthropicError": _error(_INSIDE, type={"const": "error"}),
    "Health": _object(("ok", "name", "pid"), ok=_BOOLEAN, name=_text(), pid=_INTEGER),
    "Ready": _object(("ok",), ok=_BOOLEAN, routes=_object(version=_INTEGER, epoch=_text())),
    "Model": _object(
        ("id",),
        id=_text(),
        object={"const": "model"},
        created=_INTEGER,
        owned_by=_text(),
        parent=_text("The model that this one is a LoRA adapter for."),
        metadata=_object(kind=_text(), endpoints=_array(_text()), contextWindow=_INTEGER),
    ),
    "ModelList": _object(("data",), object={"const": "list"}, data=_array({"$ref": "#/components/schemas/Model"})),
    "ChatRequest": _object(("model", "messages"), model=_MODEL, messages=_MESSAGES, stream=_STREAM),
    "CompletionRequest": _object(("model",), model=_MODEL, prompt=_ANY, stream=_STREAM),
    "EmbeddingRequest": _object(("model", "input"), model=_MODEL, input=_ANY),
    "ResponsesRequest": _object(("model",), model=_MODEL, input=_ANY, stream=_STREAM),
    "MessagesRequest": _object(
        ("model", "messages"), model=_MODEL, messages=_MESSAGES, max_tokens=_INTEGER, stream=_STREAM
    ),
    "WorkflowRequest": _object(
        ("model", "prompt"),
        model=_MODEL,
        prompt={"type": "object", "description": "A graph in ComfyUI's API format: nodes by id."},
    ),
    "ComfyUiBody": {"description": "What ComfyUI's API takes there."},
    "ModelRequest": _object(("model",), model=_MODEL),
    "Form": _object(("model",), model=_MODEL, file=_text("A file; its name in the form is as OpenAI has it.")),
    "JobRequest": _object(
        ("path", "body"),
        path=_text("A route for inference."),
        body={"type": "object", "description": "What would be sent there, without `stream`."},
    ),
    "Job": _object(
        ("id", "object", "state", "path", "model"),
        id=_text(),
        object={"const": "job"},
        state=_JOB_STATES,
        path=_text(),
        model=_text(),
        ahead=_maybe("integer", "Jobs for the same model that wait before it."),
        node=_maybe("string", "Where it runs."),
        target=_maybe("string", "What runs it."),
        step=_maybe("string", "What is being done, or what it waits for."),
        percent=_maybe("number", "How much is done, where the engine says so."),
        tries=_INTEGER,
        created_at=_INTEGER,
        started_at=_maybe("integer"),
        finished_at=_maybe("integer"),
        expires_at=_maybe("integer", "When it is forgotten."),
        error={"anyOf": [_INSIDE, {"type": "null"}]},
        result_url=_maybe("string"),
        result_bytes=_maybe("integer"),
        result={"description": "The answer, of a job that is done, where it is JSON."},
    ),
    "JobList": _object(("data",), object={"const": "list"}, data=_array({"$ref": "#/components/schemas/Job"})),
    "Security": _object(
        ("loopback", "authRequired", "adminAuthRequired"),
        loopback=_BOOLEAN,
        bindHost=_text(),
        allowMissingAuth=_BOOLEAN,
        allowRemoteAdmin=_BOOLEAN,
        allowNonLoopbackBind=_BOOLEAN,
        authRequired=_BOOLEAN,
        adminAuthRequired=_BOOLEAN,
        inferenceKeysConfigured=_BOOLEAN,
        adminKeysConfigured=_BOOLEAN,
        publicTelemetry=_BOOLEAN,
    ),
    "RuntimeAction": _object(
        wait={"type": "boolean", "default": True, "description": "`start`: answer when it serves or has failed."},
        apply={"type": "boolean", "default": False, "description": "`admit`: carry the plan out."},
        yes={"type": "boolean", "default": False, "description": "`admit`: wanted beside `apply`."},
    ),
    "RuntimeDone": _object(("ok",), ok=_BOOLEAN, runtimeId=_text(), runtime={"type": "object"}),
}
