"""``mesh console`` as it is, with a socket where the monkey asks whether it answers and what its screen should show.

A connection asks one thing. ``beat``: the reply comes through the queues of the application and of its screen. ``look
FILE``: once everything is painted, a fresh paint is written to the file, and the event loop is held until the
connection says ``fresh FILE`` (a paint for which every widget renders anew) or ends. ``clock S``: the console's clock
is S seconds ahead from now on.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from textual._context import visible_screen_stack
from textual.app import ScreenStackError

from console.tui import app as console_app
from console.tui.terminal import suspend
from console.tui.terminal.compositor import PromptScreen
from tests.monkey.coverage import Recorder

#: Set by the monkey: the socket, the most seconds that a comparison waits, the file of the coverage.
_SOCKET, _PATIENCE, _COVERAGE = "MONKEY_SOCKET", "MONKEY_PATIENCE_S", "MONKEY_COVERAGE"
_SLOW_S = 1.0  # a heartbeat that takes longer says where the console is


class Hook:
    """Serves the socket in a thread of its own."""

    def __init__(self, app: Any, seen: Recorder) -> None:
        self._app = app
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._patience_s = float(os.environ[_PATIENCE])
        self._orders: queue.Queue[str] = queue.Queue()
        self._replies: queue.Queue[str] = queue.Queue()
        self.lent = False
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.environ[_SOCKET])
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            # who asked may have given up, because the console was stopped; and the loop of one that ends is closed
            with contextlib.suppress(OSError, RuntimeError), connection, connection.makefile("rw") as stream:
                for line in stream:
                    word, _, path = line.strip().partition(" ")
                    stream.write(f"{self._answer(word, path)}\n")
                    stream.flush()
            self._orders.put("go")

    def _answer(self, word: str, path: str) -> str:
        if self.lent:
            return "lent"
        if self._loop.is_closed():
            raise ConnectionResetError
        if word == "clock":
            return set_clock(float(path))
        with contextlib.suppress(ScreenStackError):  # it is ending
            self._seen.screen(self._app.screen)
        if word == "beat":
            return self._beat()
        if word == "look":
            self._orders, self._replies = queue.Queue(), queue.Queue()
            asyncio.run_coroutine_threadsafe(self._look(path, self._orders, self._replies), self._loop)
        else:
            self._orders.put(f"{word} {path}")
        while not self.lent:  # a key that was on its way may still lend the terminal
            with contextlib.suppress(queue.Empty):
                return self._replies.get(timeout=0.2)
        return "lent"

    # The heartbeat

    def _beat(self) -> str:
        began, where = time.monotonic(), ""
        done = asyncio.run_coroutine_threadsafe(self._through_queues(), self._loop)
        while not done.done():
            time.sleep(0.005)
            if self.lent:
                return "lent"
            if not where and time.monotonic() - began > _SLOW_S:
                where = "".join(traceback.format_stack(sys._current_frames().get(self._main)))
        return f"{time.monotonic() - began:.3f} {where!r}"

    async def _through_queues(self) -> None:
        passed: set[object] = set()
        app = self._app
        app.call_later(lambda: passed.add(app))
        screen = app.screen
        screen.call_later(lambda: passed.add(screen))
        while app not in passed or (screen not in passed and app.screen is screen and screen.is_attached):
            await asyncio.sleep(0.002)

    # The comparison

    async def _look(self, path: str, orders: queue.Queue[str], replies: queue.Queue[str]) -> None:
        try:
            with self._app._context():  # where styles find the theme
                await self._compare(path, orders, replies)
        except Exception:  # of a screen that has gone meanwhile, or of this module
            replies.put(f"failed {traceback.format_exc()!r}")

    async def _compare(self, path: str, orders: queue.Queue[str], replies: queue.Queue[str]) -> None:
        until = time.monotonic() + self._patience_s
        while moving := self._moving():
            if time.monotonic() > until:
                replies.put(f"moving {moving}")
                return
            await asyncio.sleep(0.003)
        # nothing is awaited from here on: no data, no timer and no key come between the paints
        Path(path).write_text(self._paint())
        app = self._app
        app._driver.write(f"\x1b]2;{Path(path).stem}\x07")
        app._driver.flush()
        replies.put(f"{app.size.width} {app.size.height} {type(app.screen).__name__}")
        while True:
            word, _, fresh = orders.get().partition(" ")  # comes at the latest when the connection ends
            if word != "fresh":
                return
            for widget in app.screen.walk_children(with_self=True):
                widget._set_dirty()  # not refresh(): the look would mend what it has found
                widget._rich_style_cache.clear()
            Path(fresh).write_text(self._paint())
            replies.put("fresh")

    def _moving(self) -> str:
        """What is not painted yet; empty if the terminal shows the present state."""
        app = self._app
        if app._batch_count or app._driver is None or app._driver._writer_thread is None:
            return "no terminal"
        for screen in (app.screen, *app._background_screens):
            if moving := self._moving_on(screen):
                return f"{screen!r}: {moving}"
        return ""

    def _moving_on(self, screen: Any) -> str:
        app, compositor = self._app, screen._compositor
        if screen.size != app.size:
            return "its size"
        busy = next((one for one in [app, *screen.walk_children(with_self=True)] if one.message_queue_size), None)
        if busy is not None:
            return f"messages of {busy!r}"
        if screen is not app.screen:
            return ""  # the screen in front paints for it
        if isinstance(screen, PromptScreen) and compositor.put_off:
            return "put off"
        if screen._dirty_widgets or compositor._dirty_regions:
            return "dirty"
        if compositor._full_map_invalidated:
            return "the places of its widgets"
        # the flags of a widget that is not displayed may stay as they are
        for widget in [screen, *compositor.visible_widgets]:
            if widget._layout_required or widget._scroll_required or widget._repaint_required:
                return f"to be painted: {widget!r}"
        return ""

    def _paint(self) -> str:
        app = self._app
        visible_screen_stack.set(app._background_screens)
        lines = app.screen._compositor.render_strips()
        return "".join(f"\x1b[{y + 1};1H\x1b[0m{strip.render(app.console)}" for y, strip in enumerate(lines))


_now, _ahead_s = time.time, 0.0


def set_clock(ahead_s: float) -> str:
    """Set the console's clock, as somebody who sets the machine's does."""
    global _ahead_s
    _ahead_s = ahead_s
    return "set"


def install() -> None:
    """Have every console of this process serve the socket."""
    mounted, lend, run_action = console_app.ConsoleApp.on_mount, suspend.lend, console_app.ConsoleApp.run_action
    hooks: list[Hook] = []
    seen = Recorder(os.environ[_COVERAGE])

    def on_mount(self: console_app.ConsoleApp) -> None:
        mounted(self)
        hooks.append(Hook(self, seen))

    async def counted(self: console_app.ConsoleApp, action: Any, default_namespace: Any = None, **words: Any) -> bool:
        done = await run_action(self, action, default_namespace, **words)
        if done:
            seen.action(default_namespace or self, str(action))
        return done

    def lent(*words: Any) -> str:
        hooks[0].lent = True
        try:
            return lend(*words)
        finally:
            hooks[0].lent = False

    console_app.ConsoleApp.on_mount = on_mount  # type: ignore[method-assign]
    console_app.ConsoleApp.run_action = counted  # type: ignore[method-assign]
    time.time = lambda: _now() + _ahead_s
    vars(console_app)["lend"] = lent


if __name__ == "__main__":
    from redmesh.start_command import run_command

    faulthandler.register(signal.SIGUSR2, open(os.environ["MONKEY_STACKS"], "a"))  # noqa: SIM115
    install()
    sys.argv = ["mesh", "console", *sys.argv[1:]]
    sys.exit(run_command("mesh"))
