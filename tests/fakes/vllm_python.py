"""Stands for the `python` of an environment with vLLM: takes the launcher's words, and serves what a check looks at.

    python with_key.py KEY_FILE env:VLLM_API_KEY vllm.entrypoints.cli.main serve MODEL … --port PORT …

With `numbers only` beside it, in the file `reads` of its folder, it ends over a card's uuid as `int()` does.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

METRICS = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 1\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    key = ""

    def do_GET(self) -> None:
        self._answer(200, METRICS.encode() if self.path == "/metrics" else b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self.key}":
            self._answer(401, b"{}")
        elif asked.get("stream"):
            self._answer(200, b"data: [DONE]\n\n")
        else:
            self._answer(200, json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(argv: list[str]) -> None:
    devices = os.environ["CUDA_VISIBLE_DEVICES"]
    if (Path(argv[0]).parent / "reads").read_text() == "numbers only":
        print([int(device) for device in devices.split(",")])
    Handler.key = Path(argv[2]).read_text()
    ThreadingHTTPServer(("127.0.0.1", int(argv[argv.index("--port") + 1])), Handler).serve_forever()


main(sys.argv)
