"""A real browser, steered by its DevTools protocol: Debian's `chromium-headless-shell`, which `make test` installs.

async with browser(tmp_path) as chrome, chrome.tab() as tab:
    await tab.open(url)
    await tab.until("document.title === 'x'")
    assert tab.complaints == []
"""

import asyncio
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

PROGRAM = shutil.which("chromium-headless-shell")
STEP_S = 30.0
_FLAGS = (
    "--no-sandbox", "--remote-debugging-port=0", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "about:blank",
)  # fmt: skip

Json = dict[str, object]


class Browser:
    """One browser process, and the connection to it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._tabs: dict[str, Tab] = {}

    async def listen(self) -> None:
        """Hand out answers and events until the connection ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            waiting = self._answers.pop(said.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
            elif said.get("sessionId") in self._tabs:
                self._tabs[said["sessionId"]].hear(said["method"], said["params"])

    async def call(self, method: str, session: str = "", **parameters: object) -> Json:
        number = next(self._numbers)
        request: Json = {"id": number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(request)
        async with asyncio.timeout(STEP_S):
            said = await answer
        assert "error" not in said, said
        result = said["result"]
        assert isinstance(result, dict)
        return result

    @asynccontextmanager
    async def tab(self, width: int = 1200, height: int = 900) -> AsyncIterator["Tab"]:
        """A new tab with nothing remembered: a context of its own."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = str((await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"])
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")
        await tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        try:
            yield tab
        finally:
            await self.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        """Exceptions, errors on the console, and what a policy forbade."""
        self.asked: list[str] = []
        """Every URL that was asked for."""

    def hear(self, method: str, what: Json) -> None:
        if method == "Network.requestWillBeSent":
            request = what["request"]
            assert isinstance(request, dict)
            self.asked.append(str(request["url"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"]))
        elif method == "Log.entryAdded":
            entry = what["entry"]
            assert isinstance(entry, dict)
            if entry["level"] == "error":
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    async def call(self, method: str, **parameters: object) -> Json:
        return await self._browser.call(method, self._session, **parameters)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> object:
        """The value of an expression of the page's."""
        said = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in said, said
        result = said["result"]
        assert isinstance(result, dict)
        return result.get("value")

    async def until(self, expression: str, timeout_s: float = STEP_S) -> None:
        """Return once it holds; where it never does, the page's text is in the error."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if await self.evaluate(expression):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"never: {expression}\n{text}\n{self.complaints}") from None

    async def text(self, selector: str) -> str:
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def click(self, selector: str) -> None:
        """As a hand does: where the thing is, if it can be seen."""
        place = await self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width]; })()"
        )
        assert isinstance(place, list) and place[2] > 0, f"{selector} cannot be seen"
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    async def type(self, selector: str, text: str) -> None:
        await self.click(selector)
        await self.call("Input.insertText", text=text)


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Browser]:
    """A browser with a profile of its own; it is gone with the block."""
    assert PROGRAM is not None
    profile = directory / "profile"
    process = await asyncio.create_subprocess_exec(
        PROGRAM, f"--user-data-dir={profile}", *_FLAGS,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        url = await _find_url(profile)
        async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
            chrome = Browser(socket)
            listening = asyncio.create_task(chrome.listen())
            try:
                yield chrome
            finally:
                listening.cancel()
    finally:
        # Its helpers would live on for a while.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _find_url(profile: Path) -> str:
    """Port and path, which the browser writes into its profile when it listens."""
    file = profile / "DevToolsActivePort"
    async with asyncio.timeout(STEP_S):
        while True:
            lines = file.read_text().split() if file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.02)
