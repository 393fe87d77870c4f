"""The console in a browser: textual-serve behind a token, on the loopback interface only.

textual-serve has no authentication, and everybody who reaches it can launch programs as the user who runs it. So every
route, including the websocket's, requires a cookie, which only a request with the token receives. Requests must also
name 127.0.0.1 as their host, so that a foreign web page cannot reach the server under its own name (DNS rebinding).
"""

from __future__ import annotations

import hmac
import logging
import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware
from textual_serve.server import Server

from console.errors import ConsoleError
from redmesh.start_command import start_command

HOST = "127.0.0.1"
_MOST_VISITORS = 8
#: The page's terminal has the keyboard from the beginning, and again when its tab comes back; textual-serve waits for a
#: click. The button of a session that has ended keeps it.
_TAKE_KEYS = """<script>
(() => {
  const take = () => {
    const terminal = document.querySelector(".xterm-helper-textarea");
    if (terminal && !document.body.classList.contains("-closed")) terminal.focus({preventScroll: true});
    return terminal;
  };
  const wait = new MutationObserver(() => { if (take()) wait.disconnect(); });
  wait.observe(document.getElementById("terminal"), {childList: true, subtree: true});
  addEventListener("focus", take);
  addEventListener("pageshow", take);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) take(); });
})();
</script>
"""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GuardedServer(Server):
    """Serves one command to users with the token."""

    def __init__(self, command: str, port: int) -> None:
        super().__init__(command, host=HOST, port=port, title="Redmesh")
        self.token = secrets.token_urlsafe(24)
        self._visit = secrets.token_urlsafe(24)  # the cookie's value, which is not the token itself
        self._cookie = f"redmesh-{port}"
        self._visitors = 0

    @property
    def address(self) -> str:
        """The address to open in the browser."""
        return f"{self.public_url}/?token={self.token}"

    def initialize_logging(self) -> None:
        """Log only problems, and never an address, because it may contain the token."""
        logging.basicConfig(level=logging.ERROR, format="mesh serve: %(message)s", stream=sys.stderr)
        logging.getLogger("aiohttp.access").disabled = True

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard())
        return app

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """The page, whose terminal takes the keyboard."""
        response = await super().handle_index(request)
        if isinstance(response, web.Response):
            response.text = (response.text or "").replace("</body>", f"{_TAKE_KEYS}</body>")
        return response

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: the address is printed when the server listens."""

    def serve(self, debug: bool = False) -> None:
        """Serve until ^C or SIGTERM. Raises OSError if the port is in use."""
        self.debug = debug
        self.initialize_logging()
        web.run_app(self._make_app(), host=self.host, port=self.port, access_log=None, print=self._say)

    def _say(self, *_: object) -> None:
        print(self.address, flush=True)
        print("mesh serve: open this in a browser on this machine; ^C ends it", file=sys.stderr, flush=True)

    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._refusal(request)
            if refused:
                return web.Response(status=403, text=f"{refused}\n", headers=_HEADERS)
            if not self._known(request):
                return self._welcome(request)
            if request.path == "/ws":
                return await self._one_more(request, handler)
            response = await handler(request)
            if not response.prepared:
                response.headers.update(_HEADERS)
                response.headers["Content-Security-Policy"] = self._policy
            return response

        return guard

    def _refusal(self, request: web.Request) -> str:
        """Why the request is refused; empty if it is permitted."""
        here = f"{HOST}:{self.port}"
        if request.headers.get("Host", "") != here:
            return f"this is http://{here} and nothing else"
        origin = request.headers.get("Origin")
        if origin is None and request.path == "/ws":
            return "a websocket needs an origin"
        if origin is not None and origin != f"http://{here}":
            return "requests of other pages are refused"
        if request.method not in ("GET", "HEAD"):
            return "there is nothing to be written here"
        return ""

    def _known(self, request: web.Request) -> bool:
        return hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._visit.encode())

    def _welcome(self, request: web.Request) -> web.Response:
        given = request.query.get("token", "")
        if request.path != "/" or not hmac.compare_digest(given.encode(), self.token.encode()):
            return web.Response(
                status=403, text="the address that mesh serve printed has a token in it\n", headers=_HEADERS
            )
        # Redirect to an address without the token, so that the token is not in the browser's history.
        response = web.Response(status=303, headers={**_HEADERS, "Location": "/"})
        response.set_cookie(self._cookie, self._visit, httponly=True, samesite="Strict", path="/")
        return response

    async def _one_more(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._visitors >= _MOST_VISITORS:
            return web.Response(status=503, text=f"{_MOST_VISITORS} consoles are open already\n", headers=_HEADERS)
        self._visitors += 1
        try:
            return await handler(request)
        finally:
            self._visitors -= 1

    @property
    def _policy(self) -> str:
        here = f"{HOST}:{self.port}"
        return (
            "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'self'"
            f" 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src ws://{here} http://{here};"
            " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )


_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def serve_console(port: int, *, config: str, read_only: bool) -> int:
    """Serve until ^C or SIGTERM; returns the exit status. Raises ConsoleError if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConsoleError(f"port {port}: {error.strerror}", "mesh serve --port N takes another") from None
    words = start_command("mesh")
    words += ["--config", config] if config else []
    words += ["console", *(["--read-only"] if read_only else [])]
    GuardedServer(f"exec {shlex.join(words)}", port).serve()
    return 0
