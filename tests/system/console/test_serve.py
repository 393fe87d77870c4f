"""``mesh serve``: the console in a browser; who has no token, another host name or another page gets nothing."""

import asyncio
import base64
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.addresses import held_port
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def served(mesh: MakeMesh) -> Iterator[tuple[PrivateMesh, int, str]]:
    """A mesh, the port, the token."""
    small = mesh(processors=4, nodes=2)
    with held_port() as port:
        server = small.start("mesh", "serve", "--port", str(port), stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline()
        token = re.fullmatch(rf"http://127\.0\.0\.1:{port}/\?token=([\w-]{{32}})\n", address)
        assert token, address
        yield small, port, token[1]
        server.send_signal(signal.SIGTERM)
        assert server.wait() in (0, -signal.SIGTERM)


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read().decode("utf-8", "replace") if answer.status != 101 else ""
    finally:
        connection.close()


def test_nobody_without_the_token_gets_anything(served: tuple[PrivateMesh, int, str]) -> None:
    _, port, token = served
    here = f"http://127.0.0.1:{port}"
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": base64.b64encode(os.urandom(16)).decode(),
    }
    for path in ("/", "/?token=", "/?token=" + "x" * 32, "/static/js/textual.js", "/download/x", "/nothing"):
        assert ask(port, path)[0] == 403, path
    assert ask(port, "/ws", Origin=here, **upgrade)[0] == 403
    assert ask(port, f"/ws?token={token}", Origin=here, **upgrade)[0] == 403
    status, headers, _ = ask(port, f"/?token={token}")
    assert status == 303 and headers["location"] == "/" and token not in str(headers)
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    known = {"Cookie": cookie.partition(";")[0]}
    status, headers, page = ask(port, "/", **known)
    assert status == 200 and "textual.js" in page and token not in page
    assert "default-src 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
    # with the cookie, but by another name (DNS rebinding), from another page, or to change something
    assert ask(port, "/", **{**known, "Host": f"evil.example:{port}"})[0] == 403
    assert ask(port, "/", **{**known, "Host": f"localhost:{port}"})[0] == 403
    assert ask(port, "/", "POST", **known)[0] == 403
    assert ask(port, "/ws", **known, **upgrade)[0] == 403
    assert ask(port, "/ws", Origin="http://evil.example", **known, **upgrade)[0] == 403
    assert ask(port, "/ws", Origin="null", **known, **upgrade)[0] == 403
    assert ask(port, "/ws", Origin=here, **known, **upgrade)[0] == 101
    with pytest.raises(OSError):
        http.client.HTTPConnection(_own_address(), port, timeout=2).connect()


def _own_address() -> str:
    """An address of this machine that is not the one served; 127.0.0.2 always is one."""
    return "127.0.0.2"


def test_a_taken_port_is_told(mesh: MakeMesh) -> None:
    small = mesh(processors=1, nodes=1, up=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = small.run("mesh", "serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode != 0 and "--port" in done.stderr and "Traceback" not in done.stderr


class Browser:
    """A headless Chromium on one page, by its debugging protocol."""

    def __init__(self, page: aiohttp.ClientWebSocketResponse) -> None:
        self._page = page
        self._number = 0

    async def tell(self, method: str, **params: Any) -> Any:
        """A command; its result."""
        self._number += 1
        await self._page.send_json({"id": self._number, "method": method, "params": params})
        while True:
            told = await self._page.receive_json(timeout=PATIENCE_S)
            if told.get("id") == self._number:
                return told.get("result")

    async def value(self, expression: str) -> Any:
        """What a script's expression is."""
        return (await self.tell("Runtime.evaluate", expression=expression))["result"].get("value")

    async def press(self, key: str) -> None:
        """A key that is a letter."""
        await self.tell("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.tell("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode((await self.tell("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def browsing(address: str, folder: Path) -> AsyncIterator[Browser]:
    """A browser that has opened an address."""
    words = ("--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,600", f"--user-data-dir={folder}")
    chromium = subprocess.Popen(
        ["chromium", *words, "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        port_file = folder / "DevToolsActivePort"
        await asyncio.to_thread(wait_until, lambda: port_file.exists() and port_file.read_text(), "the browser")
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            pages = await (await session.get(f"http://127.0.0.1:{port}/json")).json()
            [page] = [one["webSocketDebuggerUrl"] for one in pages if one["type"] == "page"]
            async with session.ws_connect(page, max_msg_size=0) as connection:
                browser = Browser(connection)
                await browser.tell("Page.navigate", url=address)
                yield browser
    finally:
        os.killpg(chromium.pid, signal.SIGKILL)
        chromium.wait()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium here")
async def test_the_console_is_used_in_a_browser(served: tuple[PrivateMesh, int, str], tmp_path: Path) -> None:
    small, port, token = served

    def consoles() -> list[int]:
        return [pid for pid, line in small.processes().items() if "start_command.py mesh console" in line]

    async with browsing(f"http://127.0.0.1:{port}/?token={token}", tmp_path / "profile") as browser:
        deadline = time.monotonic() + PATIENCE_S
        while not await browser.value("document.body.classList.contains('-first-byte')"):
            assert time.monotonic() < deadline, "nothing was drawn"
            await asyncio.sleep(0.2)
        assert "token" not in await browser.value("location.href")
        assert len(consoles()) == 1
        before = await browser.picture()
        await browser.press("n")
        while len(after := await browser.picture()) == len(before):
            assert time.monotonic() < deadline, "the key changed nothing"
            await asyncio.sleep(0.2)
        (tmp_path / "launch.png").write_bytes(after)
    await asyncio.to_thread(wait_until, lambda: not consoles(), "it goes with the browser")
