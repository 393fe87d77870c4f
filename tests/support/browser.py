"""Headless Chromium, driven over its debugging protocol: keys, sizes, and what a page hears on its websockets."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import patience

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_KEYS = {"enter": ("Enter", 13, "\r"), "escape": ("Escape", 27, "\x1b"), "tab": ("Tab", 9, "\t")}
#: Keeps what comes on websockets, and the sockets themselves, where a test finds them.
_HEAR = """(() => {
  const Real = WebSocket; window.__heard = ""; window.__sockets = [];
  window.WebSocket = class extends Real { constructor(...words) { super(...words); window.__sockets.push(this);
    this.addEventListener("message", async event => { let data = event.data;
      if (data instanceof Blob) data = await data.text();
      else if (data instanceof ArrayBuffer) data = new TextDecoder().decode(data);
      window.__heard = (window.__heard + data).slice(-2000000); }); } };
})()"""


class Browser:
    """One page in a browser of its own: cookies and all. Use it as an asynchronous context."""

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
        """A command of the protocol; its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": words})
        while True:
            answer = json.loads((await self._socket.receive(patience(60))).data)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    async def evaluate(self, script: str) -> Any:
        """The value of a script on the page; a promise is waited for."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return told["result"].get("value")

    async def open(self, address: str) -> None:
        """Goes to a page and clicks into its middle."""
        await self.call("Page.navigate", url=address)
        await self.wait_heard("Redmesh")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=5, y=5, button="left", clickCount=1)

    async def press(self, *keys: str) -> None:
        """Keys by their names; any other word is typed letter by letter."""
        for key in keys:
            for one in [key] if key in _KEYS else key:
                name, code, text = _KEYS[one] if one in _KEYS else (one, ord(one.upper()), one)
                down = {"key": name, "windowsVirtualKeyCode": code, "text": text}
                await self.call("Input.dispatchKeyEvent", type="keyDown", **down)
                await self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    async def resize(self, width: int, height: int) -> None:
        """Another size of the page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def heard(self) -> str:
        """What the page's websockets have brought, without the sequences that move and colour."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", str(await self.evaluate("window.__heard")))

    async def forget(self) -> None:
        """Only what comes from now on is heard."""
        await self.evaluate("window.__heard = ''")

    async def wait_heard(self, text: str) -> None:
        """Until it has come."""
        async with asyncio.timeout(patience(60)):
            while text not in await self.heard():
                await asyncio.sleep(0.1)

    async def until(self, probe: Callable[[], Any], what: str) -> None:
        """Until ``probe`` is true."""
        try:
            async with asyncio.timeout(patience(60)):
                while not probe():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not in time: {what}") from None
