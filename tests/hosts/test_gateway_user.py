"""What the gateway does as its own user, in its own sandbox: keep jobs, drive runtimes, and count what is asked."""

import json
import stat
import time
from pathlib import Path

from tests.hosts.harness import Host
from tests.hosts.package import installed_host, wait_active
from tests.rewriting import rewrite

CONFIG = """models: [{id: m, runtime: demo}]
runtimes: {demo: {engine: sim, keepWarm: true}}
"""
TLS = Path(__file__).parents[1] / "data" / "tls"
_ASK = '{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}'
_PATIENCE_S = 60.0


def ask(host: Host, method: str, path: str, body: str = "") -> dict[str, object]:
    line = ["curl", "-sS", "--max-time", "60", "-X", method, "-H", "content-type: application/json"]
    done = host.run(*line, *(["-d", body] if body else []), f"http://127.0.0.1:8100{path}")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def wait_job(host: Host, job_id: object, state: str) -> dict[str, object]:
    began_s = time.monotonic()
    while (job := ask(host, "GET", f"/v1/jobs/{job_id}"))["state"] != state:
        assert time.monotonic() - began_s < _PATIENCE_S, f"{job}\n{host.journal('-u', 'llmgw-gateway')[-3000:]}"
        time.sleep(0.2)
    return job


def test_jobs_are_kept_in_the_sandbox_outlive_a_restart_and_runtimes_obey_the_gateways_user() -> None:
    with installed_host("node") as host:
        rewrite(host.path("/etc/llmgw/config.yaml"), CONFIG)
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, "llmgw-daemon.service", "llmgw-gateway.service")

        made = ask(host, "POST", "/v1/jobs", f'{{"path": "/v1/chat/completions", "body": {_ASK}}}')
        wait_job(host, made["id"], "done")
        owner = host.run("stat", "-c", "%U %a", "/var/lib/llmgw/gateway/jobs/jobs.db").stdout.split()
        assert (owner[0], int(owner[1], 8)) == ("llmgw", stat.S_IRUSR | stat.S_IWUSR)
        host.run("systemctl", "restart", "llmgw-gateway.service")
        wait_active(host, "llmgw-gateway.service")
        assert wait_job(host, made["id"], "done")["result"]

        stopped = ask(host, "POST", "/gateway/runtimes/demo/stop")
        assert stopped["stopped"] is True, stopped
        assert host.run("systemctl", "is-active", "llmgw-engine-demo.service", check=False).stdout.strip() != "active"
        started = ask(host, "POST", "/gateway/runtimes/demo/start")
        assert started["started"] is True, started
        assert "llmgw" in host.run("curl", "-sS", "-H", "accept: text/html", "http://127.0.0.1:8100/").stdout
        refused = host.run(
            *("setpriv", "--reuid=llmgw", "--regid=llmgw", "--clear-groups", "curl", "-sS", "-X", "POST"),
            *("--unix-socket", "/run/llmgw/daemon.sock", "http://daemon/v1/reload"),
        )
        assert "caller_refused" in refused.stdout


def test_what_requests_cost_is_counted_shown_and_kept_over_restarts() -> None:
    with installed_host("node") as host:
        rewrite(host.path("/etc/llmgw/config.yaml"), CONFIG)
        host.run("systemctl", "restart", "llmgw-daemon.service")
        wait_active(host, "llmgw-daemon.service", "llmgw-gateway.service")
        spent = ask(host, "POST", "/v1/chat/completions", _ASK)["usage"]
        assert isinstance(spent, dict) and spent["completion_tokens"] == 5
        ask(host, "POST", "/v1/messages", _ASK)
        wait_usage(host, requests=2, completion_tokens=10)
        told = host.run("curl", "-sS", "http://127.0.0.1:8100/metrics").stdout
        assert "llmgw_requests_total{" in told and 'model="m"' in told
        for unit in ("llmgw-daemon.service", "llmgw-gateway.service"):
            host.run("systemctl", "restart", unit)
            wait_active(host, unit)
        wait_usage(host, requests=2, completion_tokens=10)
        assert "llmgw_requests_total" in host.run("curl", "-sS", "http://127.0.0.1:8100/metrics").stdout


def test_in_the_sandbox_certificates_are_taken_up_a_broken_one_is_not_and_traces_can_be_made() -> None:
    with installed_host("node") as host:
        place(host, "first")
        files = "{certFile: /etc/ssl/gateway/cert.pem, keyFile: /etc/ssl/gateway/key.pem}"
        tracing = 'tracing: {endpoint: "http://127.0.0.1:9", headers: {authorization: "Bearer token-of-the-host"}}\n'
        rewrite(host.path("/etc/llmgw/config.yaml"), f"{CONFIG}server: {{tls: {files}}}\n{tracing}")
        host.run("systemctl", "reload", "llmgw-daemon.service")
        wait_shown(host, "first")
        place(host, "second", "first")
        wait_said(host, "NOT as the config says")
        host.run("systemctl", "reload", "llmgw-gateway.service")
        wait_shown(host, "first")
        place(host, "second")
        wait_shown(host, "second")
        kept = host.run("stat", "-c", "%U %G %a", "/run/llmgw/keys/tracing.headers").stdout.split()
        assert kept == ["root", "llmgw", "640"]
        journal = host.journal("-u", "llmgw-gateway")
        assert "tracing_on collector=http://127.0.0.1:9/v1/traces" in journal, journal[-3000:]
        assert "tracing_headers_unusable" not in journal and "token-of-the-host" not in journal


def place(host: Host, name: str, key_name: str = "") -> None:
    """Certificate and key, readable by the gateway's user as certificates' keys are made to be."""
    folder = host.path("/etc/ssl/gateway")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cert.pem").write_bytes((TLS / f"{name}.pem").read_bytes())
    (folder / "key.pem").write_bytes((TLS / f"{key_name or name}-key.pem").read_bytes())
    host.run("chown", "-R", "root:llmgw", "/etc/ssl/gateway")
    host.run("chmod", "0640", "/etc/ssl/gateway/key.pem")


def wait_shown(host: Host, name: str) -> None:
    """Until a client that trusts this certificate alone is answered."""
    host.path("/root/trusted.pem").write_bytes((TLS / f"{name}.pem").read_bytes())
    line = ["curl", "-sS", "--cacert", "/root/trusted.pem", "https://127.0.0.1:8100/health"]
    began_s = time.monotonic()
    while (done := host.run(*line, check=False)).code != 0:
        assert time.monotonic() - began_s < _PATIENCE_S, f"{done}\n{host.journal('-u', 'llmgw-gateway')[-3000:]}"
        time.sleep(0.2)


def wait_said(host: Host, words: str) -> None:
    """Until `llmgw status` says so."""
    began_s = time.monotonic()
    while words not in (said := host.run("llmgw", "status", check=False).stdout):
        assert time.monotonic() - began_s < _PATIENCE_S, f"{said}\n{host.journal('-u', 'llmgw-gateway')[-3000:]}"
        time.sleep(0.2)


def wait_usage(host: Host, *, requests: int, completion_tokens: int) -> None:
    """Until the ledger says so: workers hand in what they counted each second."""
    began_s = time.monotonic()
    while True:
        total = json.loads(host.run("llmgw", "usage", "--json").stdout)["total"]
        if (total.get("requests"), total.get("completionTokens")) == (requests, completion_tokens):
            return
        assert time.monotonic() - began_s < _PATIENCE_S, total
        time.sleep(0.2)
