"""A node in a booted host, as its operator and its clients see it: `llmgw` inside, HTTP to its port."""

import json
from dataclasses import dataclass
from typing import Any

from tests.hosts.harness import Completed, Host
from tests.hosts.package import wait_active
from tests.hosts.wheels import STARTER
from tests.rewriting import rewrite

PROGRAMS = ("llmgw-daemon.service", "llmgw-gateway.service")
MIRROR = "/srv/mirror"
WHEELS = f"{MIRROR}/pypi"
QUESTION = "What is the capital of France? Answer in one sentence."
_ADD_LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Engine:
    """The runtime's unit, as systemd tells."""

    runtime: str
    unit: str
    pid: int
    restarts: int


class Node:
    """What one does with the node, over and over."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def llmgw(self, *argv: str, check: bool = True, timeout_s: float = 60.0) -> Completed:
        return self.host.run("llmgw", *argv, check=check, timeout_s=timeout_s)

    def prepare(self) -> None:
        """`llmgw init --apply`, with the mirror that stands for the internet."""
        wait_active(self.host, "llmgw.target", *PROGRAMS)
        self.llmgw("init", "--apply")
        config = self.host.path("/etc/llmgw/config.yaml")
        rewrite(config, f"{config.read_text()}\noffline:\n  mirror: {MIRROR}\n")
        self.llmgw("config", "check")
        self.llmgw("reload")

    def add_starter(self) -> None:
        self.llmgw("model", "add", STARTER, timeout_s=_ADD_LIMIT_S)

    def engine(self) -> Engine:
        """The node's one runtime."""
        (status,) = json.loads(self.llmgw("runtimes", "--json").stdout)["runtimes"]
        return Engine(status["id"], status["unit"], self.main_pid(status["unit"]), status["restarts"])

    def state(self) -> str:
        """The state of the node's one runtime, in the daemon's words."""
        (status,) = json.loads(self.llmgw("runtimes", "--json").stdout)["runtimes"]
        return str(status["state"])

    def model(self) -> str:
        """The id of the one model."""
        (model,) = json.loads(self.host.run("curl", "-sS", "http://127.0.0.1:8100/v1/models").stdout)["data"]
        return str(model["id"])

    def main_pid(self, unit: str) -> int:
        return int(self.host.run("systemctl", "show", "--value", "--property=MainPID", unit).stdout)

    def chat(self, *, within_s: int = 60) -> str:
        """A whole answer; 503s (it is loading) and refusals are asked again, as a client does, for so long."""
        answer = json.loads(self._post({}, within_s))
        return str(answer["choices"][0]["message"]["content"])

    def stream(self, *, within_s: int = 60) -> tuple[str, int]:
        """A streamed answer, and in how many events it came. Asserts that it ended as it should."""
        lines = [line for line in self._post({"stream": True}, within_s).splitlines() if line]
        assert lines[-1] == "data: [DONE]", lines[-3:]
        events: list[dict[str, Any]] = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        words = [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]
        return "".join(words), len(events)

    def _post(self, more: dict[str, object], within_s: int) -> str:
        body = {
            "model": self.model(),
            "messages": [{"role": "user", "content": QUESTION}],
            "temperature": 0,
            "max_tokens": 40,
            **more,
        }
        done = self.host.run(
            *("curl", "--silent", "--show-error", "--no-buffer", "--fail-with-body", "--max-time", "60"),
            *("--retry", str(within_s), "--retry-delay", "1", "--retry-max-time", str(within_s)),
            *("--retry-connrefused", "--retry-all-errors", "--header", "content-type: application/json"),
            # To a file, which a retry begins again; on stdout the bodies of refused tries would stay before the answer.
            *("--output", "/tmp/answer", "--data", json.dumps(body), "http://127.0.0.1:8100/v1/chat/completions"),
            check=False,
            timeout_s=within_s + 70,
        )
        answer = self.host.path("/tmp/answer").read_text()
        assert done.code == 0, f"no answer within {within_s} s: {done.stderr[-500:]}\n{answer[-500:]}"
        return answer
