"""Stands for the `python` of an environment with vLLM: takes the launcher's words, and serves what we ask of it.

    python with_key.py KEY_FILE env:VLLM_API_KEY vllm.entrypoints.cli.main serve MODEL … --port PORT …

With `numbers only` beside it, in the file `reads` of its folder, it ends over a card's uuid as `int()` does.

LoRA adapters are loaded and unloaded as by vLLM 0.32.0, in its words; `tests/engines/test_vllm.py` holds the same
against the real one. An adapter is a folder with `adapter_config.json`; its answers are `as NAME`. What happens to each
is written, a line of JSON each, to `adapters.log` in the engine's home: `{"did", "adapter", "held", "in_use"}`. A file
`slow` in an adapter's folder says how many seconds its load takes; one in the home, how many each answer takes. While
there is a file `hold` in the home, no answer ends.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

METRICS = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total 1\n"
Answer = tuple[int, bytes]


class Adapters:
    """What the engine has, and who uses it."""

    def __init__(self, argv: list[str]) -> None:
        self.served = [word.partition("=")[2] for word in argv if word.startswith("--served-model-name=")]
        if "--served-model-name" in argv:
            after = argv[argv.index("--served-model-name") + 1 :]
            self.served = after[: next((i for i, word in enumerate(after) if word.startswith("--")), len(after))]
        ranks = [int(word.partition("=")[2]) for word in argv if word.startswith("--max-lora-rank=")]
        self.max_rank = ranks[0] if ranks else 16
        self.is_enabled = "--enable-lora" in argv and os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "True"
        self.held: dict[str, str] = {}
        self.in_use: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.home = Path(os.environ["HOME"])

    def cards(self) -> bytes:
        cards: list[dict[str, str | None]] = [{"id": name, "parent": None} for name in self.served]
        with self.lock:
            cards += [{"id": name, "root": path, "parent": self.served[0]} for name, path in self.held.items()]
        return json.dumps({"object": "list", "data": cards}).encode()

    def load(self, asked: dict[str, str]) -> Answer:
        name, path = asked.get("lora_name"), asked.get("lora_path")
        if not name or not path:
            return refusal(400, "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self.held:
            return refusal(400, f"The lora adapter '{name}' has already been loaded. If you want to load the adapter …")
        try:
            rank = json.loads((Path(path) / "adapter_config.json").read_text())["r"]
        except OSError:
            return refusal(404, f"Loading lora {name} failed: No adapter found for {path}")
        slow = Path(path) / "slow"
        time.sleep(float(slow.read_text()) if slow.exists() else 0)
        if rank > self.max_rank:
            words = f"Call to add_lora method failed: LoRA rank {rank} is greater than max_lora_rank {self.max_rank}."
            return refusal(500, words)
        with self.lock:
            self.held[name] = path
            self.note("load", name)
        return 200, f"Success: LoRA adapter '{name}' added successfully.".encode()

    def unload(self, asked: dict[str, str]) -> Answer:
        name = asked.get("lora_name", "")
        with self.lock:
            if name not in self.held:
                return refusal(404, f"The lora adapter '{name}' cannot be found.")
            del self.held[name]
            self.note("unload", name)
        return 200, f"Success: LoRA adapter '{name}' removed successfully.".encode()

    def answer(self, asked: dict[str, object]) -> Answer:
        """A chat, under the model's name, an adapter's, or none of them."""
        model = str(asked.get("model", ""))
        with self.lock:
            is_adapter = model in self.held
            if self.served and model not in self.served and not is_adapter:
                return refusal(404, f"The model `{model}` does not exist.")
            self.in_use[model] += 1
        slow, hold = self.home / "slow", self.home / "hold"
        time.sleep(float(slow.read_text()) if slow.exists() else 0)
        while hold.exists():
            time.sleep(0.02)
        with self.lock:
            self.in_use[model] -= 1
        words = f"as {model}" if is_adapter else "yes"
        if asked.get("stream"):
            chunk = json.dumps({"model": model, "choices": [{"index": 0, "delta": {"content": words}}]})
            return 200, f"data: {chunk}\n\ndata: [DONE]\n\n".encode()
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, json.dumps({"model": model, "choices": [{"message": {"content": words}}], "usage": usage}).encode()

    def note(self, did: str, name: str) -> None:
        line = {"did": did, "adapter": name, "held": sorted(self.held), "in_use": self.in_use[name]}
        with open(self.home / "adapters.log", "a") as log:
            log.write(json.dumps(line) + "\n")


def refusal(status: int, message: str) -> Answer:
    kind = {400: "InvalidUserInput", 404: "NotFoundError", 500: "InternalServerError"}[status]
    error = {"message": message, "type": kind, "param": None, "code": status}
    return status, json.dumps({"error": error}).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    key = ""
    adapters: Adapters

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._answer(*((200, self.adapters.cards()) if self._is_known() else (401, b"{}")))
        else:
            self._answer(200, METRICS.encode() if self.path == "/metrics" else b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._is_known():
            self._answer(401, b"{}")
        elif self.path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            call = self.adapters.load if self.path == "/v1/load_lora_adapter" else self.adapters.unload
            self._answer(*(call(asked) if self.adapters.is_enabled else refusal(404, "Not Found")))
        else:
            self._answer(*self.adapters.answer(asked))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own name
        """The engine's log is not for every request."""

    def _is_known(self) -> bool:
        return self.headers["Authorization"] == f"Bearer {self.key}"

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        is_stream = body.startswith(b"data:")
        self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 128


def main(argv: list[str]) -> None:
    devices = os.environ["CUDA_VISIBLE_DEVICES"]
    reads = Path(argv[0]).parent / "reads"
    if reads.exists() and reads.read_text() == "numbers only":
        print([int(device) for device in devices.split(",")])
    Handler.key = Path(argv[2]).read_text().strip()
    Handler.adapters = Adapters(argv)
    Server(("127.0.0.1", int(argv[argv.index("--port") + 1])), Handler).serve_forever()


main(sys.argv)
