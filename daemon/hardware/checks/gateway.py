"""Who answers where clients come in: our gateway, somebody else, or nobody?"""

from collections.abc import Iterator

from core.hardware import Finding
from daemon.hardware.checks.finding import blocks, ok, warning
from daemon.hardware.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    for complaint in facts.gateway_complaints:
        yield warning(
            "gateway", f"the gateway does not serve as the config says: {complaint}", "see server.tls in the config"
        )
    gateway = facts.gateway
    if gateway is None:
        return
    where = f"port {gateway.port} on {gateway.host}"
    who = f"ss -ltnp 'sport = :{gateway.port}'"
    if gateway.state == "ours":
        yield ok("gateway", f"the gateway answers on {where}")
    elif gateway.state == "other":
        yield blocks("gateway", f"another program answers on {where}", f"{who} names it: stop it, or set server.port")
    elif gateway.state == "silent":
        remedy = f"{who} names who holds it; journalctl -u llmgw-gateway when that is the gateway"
        yield blocks("gateway", f"{where} is taken, and nobody answers", remedy)
    else:
        remedy = "systemctl start llmgw-gateway.socket, or llmgw up where there is no systemd"
        yield blocks("gateway", f"nobody listens on {where}", remedy)
