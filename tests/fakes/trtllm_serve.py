"""A `trtllm-serve` for tests: takes its command line, serves chat without a key, and lets anybody manage it."""

import argparse

from aiohttp import web


async def chat(request: web.Request) -> web.Response:
    body = await request.json()
    leaked = request.headers.get("authorization", "")
    message = {"role": "assistant", "content": f"from trtllm{leaked}"}
    return web.json_response(
        {"model": body.get("model"), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )


async def well(request: web.Request) -> web.Response:
    return web.json_response({})


async def managed(request: web.Request) -> web.Response:
    return web.Response(text="reached")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("weights")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    for flag in ("--backend", "--tp_size", "--pp_size", "--max_batch_size"):
        parser.add_argument(flag)
    given = parser.parse_args()
    app = web.Application()
    app.router.add_get("/health", well)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/load_weights", managed)
    web.run_app(app, host=given.host, port=given.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
