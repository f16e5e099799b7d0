"""Which of our paths a backend may be asked for. Pure; `gateway.table` has the same ones."""

OPENAI_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
)
"""What a backend serves unless it says otherwise. `/v1/responses` is none of them: many services do not have it, and
where it is not listed it is translated to chat completions, which all of them have."""

KNOWN_ROUTES = (
    *OPENAI_ROUTES,
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/rerank",
    "/v1/score",
)
