"""A real headless Chromium, controlled over the DevTools protocol: what a person sees and does on a page."""

import json
import os
import re
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.eventually import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium (Debian, Ubuntu: apt-get install chromium)"
)

START_WITHIN_S = 60.0
_OPTIONS = (
    "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--window-size=1280,900", "--lang=en-US",
)  # fmt: skip
_CENTER = """one => {
  one.scrollIntoView();
  const at = one.getBoundingClientRect();
  return [at.x + at.width / 2, at.y + at.height / 2];
}"""
# A click may navigate to another page; the window's name survives that.
_NOTE_CLICK = """(one, name) => {
  one.addEventListener('click', () => { window.name = name; }, { once: true, capture: true });
  return one;
}"""
_ENTER = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
_TAB = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
_LISTENING = re.compile(r"DevTools listening on (ws://\S+)")


class BrowserPage:
    """One tab.

    Attributes:
        accepts_dialogs: Whether to confirm the page's dialogs.
        errors: Uncaught exceptions, and what the console or the browser reported as an error, such as a blocked script.
    """

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._last_id = 100
        self._last_click = 0
        self.accepts_dialogs = True
        self.errors: list[str] = []

    async def open(self, url: str) -> None:
        """Open an address and wait until the page has loaded."""
        await self._call("Page.navigate", url=url)
        await eventually(lambda: self.evaluate("document.readyState === 'complete'"))

    async def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever the page returns
        """Return the value of an expression in the page. A promise is awaited.

        Raises:
            AssertionError: The expression raised. `eventually` retries, because the page may not be ready yet.
        """
        answer = await self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self, selector: str = "body") -> str:
        """Return the visible text of an element; "" if there is none."""
        return str(
            await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        )

    async def wait_for_text(self, text: str, selector: str = "body") -> str:
        """Wait until an element shows a text; return the element's whole text."""
        return await eventually(lambda: self.text(selector), lambda shown: text in shown)

    async def click(self, label: str, within: str = "body") -> None:
        """Click with the mouse on the button or link with this label, once it can be clicked.

        If the page redraws or moves it before the click arrives, click again, as a person would.
        """
        find = (
            f"[...document.querySelectorAll({json.dumps(f'{within} button, {within} a')})]"
            f".find(one => one.innerText.trim() === {json.dumps(label)}"
            " && getComputedStyle(one).pointerEvents !== 'none')"
        )

        async def is_clicked() -> bool:
            self._last_click += 1
            await self._press_mouse(
                *await self.evaluate(f"({_CENTER})(({_NOTE_CLICK})({find}, '{self._last_click}'))")
            )
            return bool(await self.evaluate(f"window.name === '{self._last_click}'"))

        await eventually(is_clicked)

    async def click_twice(self, label: str, within: str = "body") -> None:
        """Click like an impatient person: again at the same place, 180 ms later, whatever is there now."""
        find = (
            f"[...document.querySelectorAll({json.dumps(f'{within} button, {within} a')})]"
            f".find(one => one.innerText.trim() === {json.dumps(label)})"
        )
        place = await eventually(lambda: self.evaluate(f"({_CENTER})({find})"))
        await self._press_mouse(*place)
        await anyio.sleep(0.18)
        await self._press_mouse(*place)

    async def point_at(self, selector: str) -> None:
        """Move the mouse over an element."""
        find = f"document.querySelector({json.dumps(selector)})"
        x, y = await eventually(lambda: self.evaluate(f"({_CENTER})({find})"))
        await self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def _press_mouse(self, x: float, y: float) -> None:
        await self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            await self._call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def type(self, text: str) -> None:
        """Enter a text where the cursor is."""
        await self._call("Input.insertText", text=text)

    async def press_enter(self) -> None:
        """Press the Enter key."""
        for kind in ("keyDown", "keyUp"):
            await self._call("Input.dispatchKeyEvent", type=kind, **_ENTER)

    async def press(self, key: str) -> None:
        """Press a key that does not type text, such as ArrowDown."""
        for kind in ("keyDown", "keyUp"):
            await self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    async def press_tab(self) -> None:
        """Press the Tab key."""
        for kind in ("keyDown", "keyUp"):
            await self._call("Input.dispatchKeyEvent", type=kind, **_TAB)

    async def resize(self, width: int, height: int) -> None:
        """Show the page in a window of this size, as a phone does."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        await self._call("Emulation.setDeviceMetricsOverride", **size)

    async def prefer_color(self, scheme: str) -> None:
        """Emulate the system setting that prefers `light` or `dark` pages."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._call("Emulation.setEmulatedMedia", features=features)

    async def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies of the page's address, including those that scripts cannot read."""
        return list((await self._call("Network.getCookies"))["cookies"])

    async def screenshot(self, file: Path) -> None:
        """Write what is visible as a PNG file."""
        answer = await self._call("Page.captureScreenshot", format="png")
        await anyio.Path(file).write_bytes(b64decode(answer["data"]))

    async def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._last_id += 1
        call = {
            "id": self._last_id,
            "method": method,
            "params": parameters,
            "sessionId": self._session,
        }
        await self._socket.send(json.dumps(call))
        while True:
            message = json.loads(await self._socket.recv())
            await self._on_event(message)
            if message.get("id") == self._last_id:
                assert "error" not in message, message
                return dict(message["result"])

    async def _on_event(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(
                    f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
                )
            case "Page.javascriptDialogOpening":
                accept = {
                    "id": 1,
                    "method": "Page.handleJavaScriptDialog",
                    "params": {"accept": self.accepts_dialogs},
                }
                await self._socket.send(json.dumps({**accept, "sessionId": self._session}))


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncIterator[BrowserPage]:
    """Start Chromium with a new profile in `folder`. It confirms the dialogs that pages open."""
    assert CHROMIUM is not None, "chromium is not installed"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # required as root
    command = [
        CHROMIUM,
        *_OPTIONS,
        *sandbox,
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    async with await anyio.open_process(command, env=environment, stdout=None) as process:
        try:
            with anyio.fail_after(START_WITHIN_S):
                address = await _find_address(process)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_drain, process)
                async with connect(address, max_size=None, proxy=None) as socket:
                    yield await _open_page(socket)
                tasks.cancel_scope.cancel()
        finally:
            process.kill()


async def _find_address(process: anyio.abc.Process) -> str:
    said = ""
    assert process.stderr is not None
    async for piece in process.stderr:
        said += piece.decode(errors="replace")
        if found := _LISTENING.search(said):
            return found[1]
    message = f"chromium ended: {said[-2000:]}"
    raise AssertionError(message)


async def _drain(process: anyio.abc.Process) -> None:
    """Read Chromium's output, so that it never blocks on a full pipe."""
    assert process.stderr is not None
    async for _ in process.stderr:
        pass


async def _open_page(socket: ClientConnection) -> BrowserPage:
    async def call(number: int, method: str, **parameters: object) -> dict[str, Any]:
        await socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await socket.recv())
            if message.get("id") == number:
                return dict(message["result"])

    target = (await call(1, "Target.createTarget", url="about:blank"))["targetId"]
    attached = await call(2, "Target.attachToTarget", targetId=target, flatten=True)
    page = BrowserPage(socket, attached["sessionId"])
    for domain in ("Page", "Runtime", "Log"):
        await page._call(f"{domain}.enable")
    return page
