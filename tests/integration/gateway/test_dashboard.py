"""The dashboard in a real browser: what it shows, does, keeps and refuses to run; and how it is served without one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from core.api import ErrorBody, NodeState, RuntimeStatus
from core.hardware import Finding
from gateway.dashboard.page import build_page
from gateway.openapi.operations import OPERATIONS
from tests.integration.daemon.stack import Stack, running
from tests.integration.gateway.browser import PROGRAM, Tab, browser
from tests.integration.gateway.harness import gateway, raw_request, serve_app
from tests.unit.gateway.tables import key, model, table, target

needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="apt-get install chromium-headless-shell (make test, as root)"
)
SOURCES = Path(__file__).parents[3] / "gateway/dashboard"
ROW = "#runtimes tr[data-id='r']"
SEEN = "document.getElementById('%s').checkVisibility()"
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@asynccontextmanager
async def tab(directory: Path, **size: int) -> AsyncIterator[Tab]:
    async with browser(directory) as chrome, chrome.tab(**size) as page:
        yield page


@asynccontextmanager
async def node(directory: Path, config: str) -> AsyncIterator[tuple[str, Stack]]:
    """A real daemon with a simulated engine, and the gateway in front of it."""
    directory.mkdir()
    async with running(directory, config) as stack, serve_app(directory) as (host, port):
        yield f"http://{host}:{port}", stack


def read_address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


CONFIG = "models: [{id: m, runtime: r}]\nruntimes: {r: {engine: sim, keepWarm: true, maxConcurrency: 3}}\n"


@needs_browser
async def test_it_shows_the_node_and_its_buttons_stop_and_start_a_real_runtime(tmp_path: Path) -> None:
    async with node(tmp_path / "n", CONFIG) as (url, stack), tab(tmp_path) as page:
        await stack.until_runtime("r", "running")
        await page.open(f"{url}/")
        await page.until(f"document.querySelector({json.dumps(ROW)})?.cells[1].innerText === 'running'")
        assert [await page.evaluate(SEEN % part) for part in ("ask", "main", "forget")] == [False, True, False]
        assert "0 of 3" in await page.text(ROW)
        assert "m" in await page.text("#models tbody") and "sim" in await page.text(ROW)
        assert "GiB of" in await page.text("#machine")

        asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        assert (await raw_request(read_address(url), "/v1/chat/completions", asked)).status == 200
        await page.open(f"{url}/")
        await page.until("document.querySelector('#usage tbody tr')?.cells[2].innerText === '1'")

        await page.click(f"{ROW} [data-action=stop]")
        assert "sure?" in await page.text(f"{ROW} [data-action=stop]")
        assert (await stack.client.state()).runtimes[0].state == "running", "one click asks, and does nothing"
        await page.click(f"{ROW} [data-action=stop]")
        await stack.until_runtime("r", "stopped")
        await page.until(f"document.querySelector({json.dumps(ROW)}).cells[1].innerText.startsWith('stopped')")

        await page.click(f"{ROW} [data-action=start]")
        await stack.until_runtime("r", "running")
        await page.until(f"document.querySelector({json.dumps(ROW)}).cells[1].innerText === 'running'")
        assert await page.text("#told") == ""
        assert {asked.partition("?")[0].removeprefix(url) for asked in page.asked if not asked.startswith("data:")} <= {
            "/", "/gateway/node", "/gateway/status", "/gateway/doctor", "/gateway/usage", "/gateway/runtimes/r/start",
            "/gateway/runtimes/r/stop",
        }  # fmt: skip
    assert page.complaints == []


@needs_browser
async def test_a_key_is_asked_for_kept_in_the_tab_alone_and_can_be_forgotten(tmp_path: Path) -> None:
    secret = "sk-admin-secret"
    routes = table(model("m", target()), keys=(key("user"), key(secret, "admin")), allow_missing_auth=False)
    async with gateway(tmp_path / "g", routes) as gw, browser(tmp_path) as chrome, chrome.tab() as page:
        await page.open(f"{gw.url}/")
        await page.until(SEEN % "ask")
        assert await page.evaluate(SEEN % "main") is False
        await enter(page, "user")
        await page.until("document.getElementById('refused').innerText !== ''")
        await enter(page, secret)
        await page.until("document.querySelector('#runtimes tbody tr')?.cells[0].innerText === 'r1'")
        assert [await page.evaluate(SEEN % part) for part in ("ask", "main", "forget")] == [False, True, True]
        assert await page.evaluate("sessionStorage.getItem('llmgw.key')") == secret
        assert await page.evaluate("document.cookie + localStorage.length + location.href") == f"0{gw.url}/"
        assert not [asked for asked in page.asked if secret in asked]
        assert secret not in str(await page.evaluate("document.documentElement.outerHTML"))
        async with chrome.tab() as other:
            await other.open(f"{gw.url}/")
            await other.until(SEEN % "ask")
        await page.click("#forget")
        await page.until("document.readyState === 'complete' && " + SEEN % "ask")
        assert await page.evaluate("sessionStorage.length") == 0


async def enter(page: Tab, text: str) -> None:
    await page.type("#key", text)
    await page.click("#ask button")


def hostile(state: NodeState) -> NodeState:
    runtime = RuntimeStatus(id=EVIL, state="failed", reason=EVIL, engine=EVIL, models=[EVIL], build=EVIL)
    config = msgspec.structs.replace(state.config, error=EVIL)
    return msgspec.structs.replace(state, node=EVIL, version=EVIL, runtimes=[runtime], config=config)


@needs_browser
async def test_names_and_reasons_are_shown_and_never_run(tmp_path: Path) -> None:
    async with gateway(tmp_path / "g", table(model(EVIL, target()))) as gw, tab(tmp_path) as page:
        gw.daemon.state = hostile(gw.daemon.state)
        finding = Finding(check=EVIL, status="blocks", found=EVIL, remedy=EVIL)
        gw.daemon.report = msgspec.structs.replace(gw.daemon.report, ok=False, blockers=1, findings=[finding])
        await page.open(f"{gw.url}/")
        await page.until("document.querySelector('#doctor tbody tr') !== null")
        assert await page.text("#node") == EVIL
        assert EVIL in await page.text("#runtimes tbody") and EVIL in await page.text("#doctor tbody")
        assert EVIL in await page.text("#models tbody")
        # The policy holds even where the page itself were at fault.
        await page.evaluate("try { document.body.innerHTML += '<p onclick=1>' } catch { window.typed = 1 }")
        await page.evaluate(
            "try { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
            " document.body.append(s) } catch {}"
        )
        assert await page.evaluate("window.hacked ?? null") is None
        assert await page.evaluate("window.typed") == 1
        left = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')"
        assert await page.evaluate(left) == "blocked"
    assert any("Content Security Policy" in complaint for complaint in page.complaints)


@needs_browser
async def test_what_is_old_says_so_and_it_comes_back_by_itself(tmp_path: Path) -> None:
    async with gateway(tmp_path / "g", table(model("m", target()))) as gw, tab(tmp_path) as page:
        await page.open(f"{gw.url}/")
        await page.until("document.querySelector('#runtimes tbody tr') !== null")
        await gw.daemon.stop()
        await page.until("document.getElementById('age').className === 'old'")
        assert "daemon" in await page.text("#age") and "ago" in await page.text("#age")
        assert "r1" in await page.text("#runtimes tbody"), "what was seen last stays"
        await gw.daemon.start()
        await page.until("document.getElementById('age').className === ''")


@needs_browser
async def test_a_refusal_is_shown_in_the_daemons_words(tmp_path: Path) -> None:
    async with gateway(tmp_path / "g", table(model("m", target()))) as gw, tab(tmp_path) as page:
        stopped = RuntimeStatus(id="r1", state="stopped", engine="sim", models=["m"])
        gw.daemon.state = msgspec.structs.replace(gw.daemon.state, runtimes=[stopped])
        await page.open(f"{gw.url}/")
        await page.until("document.querySelector('#runtimes tbody tr') !== null")
        gw.daemon.refusal = (429, ErrorBody(code="no_room", message="31 GiB are free"))
        await page.click("#runtimes [data-action=start]")
        await page.until("document.getElementById('told').innerText.includes('31 GiB are free')")


@needs_browser
@pytest.mark.parametrize("width", [320, 390, 1200])
async def test_it_fits_a_phone(tmp_path: Path, width: int) -> None:
    routes = table(model("org/" + "long-" * 20, target()))
    async with gateway(tmp_path / "g", routes) as gw, tab(tmp_path, width=width, height=700) as page:
        await page.open(f"{gw.url}/")
        await page.until("document.querySelector('#models tbody tr') !== null")
        wide = await page.evaluate("document.documentElement.scrollWidth")
    assert isinstance(wide, int) and wide <= width


async def test_browsers_get_the_page_and_others_the_list_of_routes(tmp_path: Path) -> None:
    async with gateway(
        tmp_path, table(model("secret-model", target()), keys=(key("k"),), allow_missing_auth=False)
    ) as gw:
        page = await raw_request((gw.host, gw.port), "/", headers={"accept": "text/html,*/*"}, method="GET")
        text = await raw_request((gw.host, gw.port), "/", method="GET")
    assert (page.status, text.status) == (200, 200)
    assert page.headers["content-type"].startswith("text/html") and text.headers["content-type"].startswith(
        "text/plain"
    )
    assert all(f"{operation.method} {operation.path}" in text.body.decode() for operation in OPERATIONS)
    assert b"secret-model" not in page.body + text.body


def test_the_page_loads_nothing_and_every_part_of_it_is_in_its_policy() -> None:
    page = build_page()
    html = page.html.decode()
    assert "/* page." not in html, "a part is missing"
    assert "http:" not in html and "https:" not in html and "//cdn" not in html
    assert html.count("<script") == html.count("<style") == 1
    assert "unsafe" not in page.policy and "default-src 'none'" in page.policy


def test_the_script_is_valid_and_builds_no_markup_from_text() -> None:
    script = (SOURCES / "page.js").read_text()
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "localStorage",
        "cookie =",
    ):
        assert forbidden not in script
