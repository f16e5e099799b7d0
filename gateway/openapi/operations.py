"""Every operation of the gateway. A test holds this table against the routes: each is here, and nothing else."""

from gateway.auth import Access
from gateway.openapi.operation import EVENTS, FORM, HTML, JSON, TEXT, Operation, Parameter, Reply

_P, _I, _A = Access.PUBLIC, Access.INFERENCE, Access.ADMIN
_BOTH, _WHOLE = (JSON, EVENTS), (JSON,)
_MODEL_ERRORS = (404, 413, 415, 429, 502, 503, 504)
_RUNTIME = Parameter("runtime_id", "The runtime's id in the config.", "path", required=True)
_GATE = Parameter("rest", "The model's id, then the path in ComfyUI's API.", "path", required=True)
_JOB = Parameter("job_id", "The job's id.", "path", required=True)


def _state(path: str, text: str, *parameters: Parameter, errors: tuple[int, ...] = (503,)) -> Operation:
    """Something that administrators look at."""
    reply = Reply(200, "What was asked for.")
    return Operation("GET", path, "administration", text, _A, (reply,), parameters=parameters, errors=errors)


def _inference(path: str, text: str, body: str, *, dialect: str = "Error", media: tuple[str, ...] = _BOTH) -> Operation:
    streams = "; a stream of events where `stream` is true" if EVENTS in media else ""
    reply = Reply(200, f"The engine's answer{streams}.", media)
    return Operation(
        "POST", path, "inference", text, _I, (reply,), body=body, errors=_MODEL_ERRORS, dialect=dialect
    )  # fmt: skip


def _form(path: str, text: str) -> Operation:
    reply = Reply(200, "The engine's answer.", (JSON, TEXT, EVENTS))
    return Operation(
        "POST", path, "inference", text, _I, (reply,), body="Form", media=FORM, errors=_MODEL_ERRORS
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/", "pages", "The dashboard for browsers, a list of routes for others.", _P,
              (Reply(200, "The page.", (HTML, TEXT)),)),
    Operation("GET", "/openapi.json", "pages", "This document.", _P, (Reply(200, "OpenAPI 3.1."),)),
    Operation("GET", "/health", "health", "Whether the process lives.", _P, (Reply(200, "It does.", schema="Health"),)),
    Operation("GET", "/health/ready", "health", "Whether it knows what to serve.", _P,
              (Reply(200, "It does.", schema="Ready"),), errors=(503,)),
    Operation("GET", "/v1/models", "models",
              "The models; in Anthropic's shape for a client that sends `anthropic-version`.", _I,
              (Reply(200, "The list.", schema="ModelList"),), errors=(400, 503),
              parameters=(Parameter("limit", "Anthropic's: models on a page, 1 to 1000.", kind="integer"),
                          Parameter("after_id", "Anthropic's: the page after this model."),
                          Parameter("before_id", "Anthropic's: the page before this model."))),
    Operation("GET", "/v1/models/{model_id}", "models", "One model, by id or alias; an id may contain slashes.", _I,
              (Reply(200, "The model.", schema="Model"),), errors=(404, 503),
              parameters=(Parameter("model_id", "An id or an alias.", "path", required=True),)),
    _inference("/v1/chat/completions", "OpenAI's chat completions.", "ChatRequest"),
    _inference("/v1/completions", "OpenAI's text completions.", "CompletionRequest"),
    _inference("/v1/embeddings", "OpenAI's embeddings.", "EmbeddingRequest", media=_WHOLE),
    _inference("/v1/rerank", "Documents by how well they answer a query.", "ModelRequest", media=_WHOLE),
    _inference("/v1/score", "How well texts fit each other.", "ModelRequest", media=_WHOLE),
    _inference("/v1/audio/speech", "OpenAI's speech of a text.", "ModelRequest", media=("audio/*",)),
    _form("/v1/audio/transcriptions", "OpenAI's text of speech."),
    _form("/v1/audio/translations", "OpenAI's English text of speech."),
    _inference("/v1/images/generations", "OpenAI's images of a text.", "ModelRequest"),
    _form("/v1/images/edits", "OpenAI's changes to images."),
    _form("/v1/images/variations", "OpenAI's variations of an image."),
    _inference("/tokenize", "A text as a model's tokens.", "ModelRequest", media=_WHOLE),
    _inference("/detokenize", "Tokens of a model as text.", "ModelRequest", media=_WHOLE),
    _inference("/v1/responses", "OpenAI's Responses. Nothing is stored.", "ResponsesRequest"),
    _inference("/v1/messages", "Anthropic's Messages.", "MessagesRequest", dialect="AnthropicError"),
    _inference("/v1/messages/count_tokens", "How many tokens a request of Anthropic's Messages has.",
               "MessagesRequest", dialect="AnthropicError", media=_WHOLE),
    _inference("/v1/workflows", "A ComfyUI workflow, answered at its end.", "WorkflowRequest", media=_WHOLE),
    Operation("GET", "/v1/comfyui/{rest}", "comfyui", "ComfyUI's own API, for one's own work; a websocket at `ws`.", _I,
              (Reply(200, "What the model's gate answers.", (JSON, "application/octet-stream")),),
              errors=(400, 403, 404, 429, 502, 503), parameters=(_GATE,)),
    Operation("POST", "/v1/comfyui/{rest}", "comfyui", "Likewise: prompts, uploads, and ending what runs or waits.", _I,
              (Reply(200, "What the model's gate answers."),), errors=(400, 404, 409, 413, 429, 502, 503, 507),
              body="ComfyUiBody", body_required=False, parameters=(_GATE,)),
    Operation("DELETE", "/v1/comfyui/{rest}", "comfyui", "Throw one of one's own files away (`view`).", _I,
              (Reply(204, "It is gone.", ()),), errors=(400, 404, 405, 429, 502, 503), parameters=(_GATE,)),
    Operation("POST", "/v1/jobs", "jobs", "Have a request done in its turn.", _I,
              (Reply(202, "The job; `Location` names it.", schema="Job"),), body="JobRequest",
              errors=(400, 403, 404, 413, 415, 429, 503)),
    Operation("GET", "/v1/jobs", "jobs", "The key's own jobs, the newest first.", _I,
              (Reply(200, "The list.", schema="JobList"),), errors=(400, 403, 503),
              parameters=(Parameter("limit", "1 to 1000; 100 where it is left out.", kind="integer"),)),
    Operation("GET", "/v1/jobs/{job_id}", "jobs", "How a job stands, and its result where that is JSON.", _I,
              (Reply(200, "The job.", schema="Job"),), errors=(403, 404, 503), parameters=(_JOB,)),
    Operation("DELETE", "/v1/jobs/{job_id}", "jobs", "Cancel a job, or forget one that is finished.", _I,
              (Reply(200, "It is cancelled.", schema="Job"), Reply(204, "It was finished, and is forgotten.", ())),
              errors=(403, 404, 503), parameters=(_JOB,)),
    Operation("GET", "/v1/jobs/{job_id}/result", "jobs", "The answer itself; a failed job answers its error.", _I,
              (Reply(200, "What the job's path would have answered.", (JSON, "application/octet-stream")),),
              errors=(400, 403, 404, 409, 502, 503), parameters=(_JOB,)),
    Operation("GET", "/gateway/security", "administration", "Which keys are asked for.", _P,
              (Reply(200, "The rules.", schema="Security"),), errors=(503,)),
    _state("/gateway/node", "This node: models, runtimes, hardware, firewall and telemetry."),
    _state("/gateway/cluster", "Every node of the cluster; of others what the config says."),
    _state("/gateway/status", "The node and this gateway."),
    _state("/gateway/doctor", "What is wrong with the node, looked at now."),
    _state("/gateway/models", "Every model, hidden ones and aliases too."),
    _state("/gateway/engines", "Builds of engines on this machine."),
    _state("/gateway/usage", "What requests have cost on this node.",
           Parameter("from", "The first day, `YYYY-MM-DD`."), Parameter("to", "The last day."),
           Parameter("key", "Of this key alone."), Parameter("model", "Of this model alone."),
           Parameter("by", "Rows for each of these, with commas between: `day`, `key`, `model`."), errors=(400, 503)),
    Operation("GET", "/metrics", "administration", "What is counted over all processes, for Prometheus.", _A,
              (Reply(200, "Families of samples.", (TEXT, "application/openmetrics-text")),), errors=(503,)),
    _state("/gateway/metrics", "What is counted of requests and targets, over all processes.",
           Parameter("model", "Of this model alone.")),
    _state("/gateway/routing", "Each model's targets: their load, and what is held against them."),
    _state("/gateway/runtimes/plan", "What loading a runtime would take.",
           Parameter("runtime", "The runtime's id.", required=True), errors=(400, 404, 503)),
    Operation("POST", "/gateway/runtimes/{runtime_id}/{action}", "administration",
              "Start, stop, restart or warm up a runtime, or have it admitted.", _A,
              (Reply(200, "It was done; for `admit` the plan.", schema="RuntimeDone"),),
              body="RuntimeAction", body_required=False, errors=(400, 404, 409, 429, 502, 503, 504),
              parameters=(_RUNTIME, Parameter("action", "What is to be done.", "path",
                                              ("start", "stop", "restart", "warmup", "admit"), required=True))),
    Operation("POST", "/gateway/runtimes/stop-all", "administration",
              "Free every engine, and serve nothing until `keep-warm`.", _A, (Reply(200, "They are being stopped."),),
              errors=(503,)),
    Operation("POST", "/gateway/runtimes/keep-warm", "administration", "Serve again; pinned runtimes are started.", _A,
              (Reply(200, "The node serves."),), errors=(503,)),
)  # fmt: skip
