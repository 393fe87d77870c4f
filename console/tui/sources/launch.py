"""Watches a launch: its stream feeds its :class:`Run` whether or not it is on the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from agents.wire import control, frames, messages
from agents.wire.errors import AgentError
from console.launch.daemons.connect import yod_socket
from console.launch.events.spool import is_held, spool_path
from console.tui.model.launch import Phase, Run
from console.tui.sources.spool import Archive
from console.tui.sources.yod import AttachError, Attachment, Pace
from redmesh.sanitise import clean

_BACK_S = 5.0  # a removed socket is created again (console/launch/attach/client.py)
_SOCKET_S = 1.0  # a launch opens its socket a moment after its start
_PIECE = 64 << 10  # bytes read from the spool before keys are handled


class Watch:
    """A launch's model and its sources: yod's socket for observers; after yod's exit, the spool for what was not read.

    ``trouble`` says why there is neither; ``archive`` has lines that were dropped from memory.
    """

    def __init__(self, run: Run, run_dir: str, state_dir: str) -> None:
        self.run = run
        self.trouble = ""
        self.saw_it_run = False  # the launch ran while the console was attached: report its end
        self.bad_exits_told = 0  # announcements that were shown in a note
        self.changes = 0  # how often the model, or ``trouble``, may have changed
        self._socket = yod_socket(run_dir, run.launcher)
        self._spool = spool_path(state_dir, run.launcher)
        self._attachment: Attachment | None = None
        self._spooled = False  # the spool has the same bytes at the same offsets as the stream
        self._past = 0  # bytes of the stream that existed when the console attached
        self.archive = Archive(self._spool)
        self._received = 0  # bytes of the stream: the offset at which the spool continues

    async def follow(self, changed: Callable[[], None]) -> None:
        """Feed the model until its stream ends; ``changed`` is called at a new phase, and when ranks fail."""
        self.run.restart()
        self.changes += 1
        self.trouble = ""
        self._received = 0
        self.archive.clear()
        self._spooled = os.path.exists(self._spool)
        self._past = os.path.getsize(self._spool) if self._spooled else 0
        if self._spooled:
            self.archive.reached(0, self.run.output)
        try:
            try:
                await self._follow_socket(changed)
            except AttachError as error:
                if not os.path.exists(self._spool):
                    self.trouble = clean(f"{error.message} ({error.hint})" if error.hint else error.message)
            if self.run.phase is not Phase.ENDED:
                self.run.past = not is_held(self._spool)
                await self._follow_spool(changed)
        except AgentError as error:
            self.trouble = clean(error.message)
        finally:
            self.run.disconnected()
            self.changes += 1
            changed()

    async def _follow_socket(self, changed: Callable[[], None]) -> None:
        attachment = self._attachment = Attachment(self._socket, self.run.launcher)
        try:
            await self._open(attachment)
            pace = Pace()
            while batch := await attachment.batch():
                self._feed(batch, changed)
                await pace.rest()
        finally:
            attachment.close()
            self._attachment = None

    async def _open(self, attachment: Attachment) -> None:
        runs = is_held(self._spool)
        deadline = time.monotonic() + (_BACK_S if runs else _SOCKET_S)
        while True:
            try:
                return await attachment.open()
            except AttachError:
                if (os.path.exists(self._spool) and not runs) or time.monotonic() > deadline:
                    raise
            await Pace.nap()

    async def _follow_spool(self, changed: Callable[[], None]) -> None:
        """Read the rest of a stream from the spool, if the launch ended before the console attached, or meanwhile."""
        try:
            file = os.open(self._spool, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            decoder, pace = frames.Decoder(), Pace()
            while data := os.pread(file, _PIECE, self._received + decoder.pending):
                self._feed(decoder.feed(data), changed)
                await pace.rest()
        finally:
            os.close(file)

    def _feed(self, batch: list[frames.Frame], changed: Callable[[], None]) -> None:
        self.changes += 1
        self.saw_it_run = self.saw_it_run or (self.run.live and self._attachment is not None)
        before = (self.run.phase, self.run.held, self.run.bad_exits)
        self._stamp()
        for kind, payload in batch:
            self._take(kind, payload)
        if before != (self.run.phase, self.run.held, self.run.bad_exits):
            changed()

    def _take(self, kind: int, payload: bytes) -> None:
        run = self.run
        if kind in (frames.STDOUT, frames.STDERR):
            rank, data = frames.split_output(payload)
            run.output.feed(rank, kind, data)
        elif kind == frames.CONTROL:
            message = control.decode(payload)
            if message.get("op") == "hello":
                messages.check_hello(message)
                return
            if message.get("event") == "moved":  # the spool was rewritten: count from here
                self._received = int(message["offset"])
                self.archive.clear()
                return
            run.take(message)
        self._received += frames.HEADER_SIZE + len(payload)
        if self._spooled:
            self.archive.reached(self._received, run.output)

    def _stamp(self) -> None:
        """Set the time for new lines; lines that were written before the console attached have none."""
        self.run.output.now = time.time() if self._received >= self._past else 0.0

    def _attached(self) -> Attachment:
        if self._attachment is None:
            raise AttachError(f"launcher {self.run.launcher} is out of reach", "it may have ended")
        return self._attachment

    async def signal(self, number: int, ranks: list[int] | None) -> None:
        """Send a signal through yod. Raises AttachError if it is unreachable."""
        await self._attached().signal(number, ranks)

    async def input(self, text: str | None) -> None:
        """Send text to the ranks' standard input; None ends it. Raises AttachError if yod is unreachable."""
        attachment = self._attached()
        await (attachment.end_input() if text is None else attachment.input(text))

    async def release(self) -> None:
        """Release held ranks. Raises AttachError if yod is unreachable."""
        await self._attached().release()

    def close(self) -> None:
        """Disconnect; the launch continues."""
        if self._attachment is not None:
            self._attachment.close()
