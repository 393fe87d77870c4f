"""Headless Chromium, driven over its debugging protocol: presses keys, resizes, reads a page's websockets."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_KEYS = {"enter": ("Enter", 13, "\r"), "escape": ("Escape", 27, "\x1b"), "tab": ("Tab", 9, "\t")}
#: JavaScript that stores the page's websockets, and what they receive, in variables of the page.
_HEAR = """(() => {
  const Real = WebSocket; window.__heard = ""; window.__sockets = [];
  window.WebSocket = class extends Real { constructor(...words) { super(...words); window.__sockets.push(this);
    this.addEventListener("message", async event => { let data = event.data;
      if (data instanceof Blob) data = await data.text();
      else if (data instanceof ArrayBuffer) data = new TextDecoder().decode(data);
      window.__heard = (window.__heard + data).slice(-2000000); }); } };
})()"""
#: JavaScript: the escape sequences for position and colour.
_SEQUENCE = r"/\x1b\[[0-9;?]*[A-Za-z]/g"


class Browser:
    """One page in a browser process with its own profile (cookies included). An asynchronous context manager."""

    def __init__(self, width: int = 1200, height: int = 800) -> None:
        self._size = width, height
        self._number = 0

    async def __aenter__(self) -> Browser:
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        width, height = self._size
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._http = aiohttp.ClientSession()
        file = Path(self._folder.name, "DevToolsActivePort")
        await self.until(lambda: file.exists() and file.read_text().strip(), "the browser's port")
        port = file.read_text().split()[0]
        async with self._http.get(f"http://127.0.0.1:{port}/json") as reply:
            [page] = [one for one in await reply.json() if one["type"] == "page"]
        self._socket = await self._http.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=_HEAR)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        await self._http.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._folder.cleanup()

    async def call(self, method: str, **words: Any) -> dict[str, Any]:
        """Send a command of the debugging protocol; return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": words})
        while True:
            answer = json.loads((await self._socket.receive(PATIENCE_S)).data)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    async def evaluate(self, script: str) -> Any:
        """Run a script on the page and return its value; if the value is a promise, wait for it."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return told["result"].get("value")

    async def open(self, address: str) -> None:
        """Open a page, and wait until it has received "Redmesh"."""
        await self.call("Page.navigate", url=address)
        await self.wait_heard("Redmesh")

    async def press(self, *keys: str) -> None:
        """Press keys given by name (``enter``, ``escape``, ``tab``); type any other word letter by letter."""
        for key in keys:
            for one in [key] if key in _KEYS else key:
                name, code, text = _KEYS[one] if one in _KEYS else (one, _code(one), one)
                down = {"key": name, "windowsVirtualKeyCode": code, "text": text}
                await self.call("Input.dispatchKeyEvent", type="keyDown", **down)
                await self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    async def resize(self, width: int, height: int) -> None:
        """Resize the page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def forget(self) -> None:
        """Discard what the websockets have received so far."""
        await self.evaluate("window.__heard = ''")

    async def wait_heard(self, text: str) -> None:
        """Wait until the page's websockets have received ``text``, with escape sequences in it or without."""
        heard = f"window.__heard.replaceAll({_SEQUENCE}, '').includes({json.dumps(text)})"
        async with asyncio.timeout(PATIENCE_S):
            while not await self.evaluate(heard):  # the page looks: what it has heard is up to 2 MB
                await asyncio.sleep(0.1)

    async def until(self, probe: Callable[[], Any], what: str) -> None:
        """Wait until ``probe`` returns a true value; raise AssertionError naming ``what`` on a timeout."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not probe():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not in time: {what}") from None


def _code(letter: str) -> int:
    """The virtual key code; 0 for signs, whose code points are the codes of other keys (a full stop's is Delete's)."""
    return ord(letter.upper()) if letter.isalnum() else 0
