"""Watching one launch: its attachment feeds its :class:`Run` whether or not anybody looks at it."""

from __future__ import annotations

from collections.abc import Callable

from agents.wire import control, frames, messages
from agents.wire.errors import AgentError
from console.launch.sanitise import clean
from console.tui.attachment import AttachError, Attachment, Pace
from console.tui.run import Run


class Watch:
    """A run and the connection it is fed by. ``trouble`` says why there is none."""

    def __init__(self, run: Run, path: str) -> None:
        self.run = run
        self.trouble = ""
        self._path = path
        self._attachment: Attachment | None = None

    async def follow(self, changed: Callable[[], None]) -> None:
        """Feeds the run until its stream ends; ``changed`` is called when its phase does."""
        run = self.run
        attachment = self._attachment = Attachment(self._path, run.launcher)
        try:
            self.trouble = ""
            await attachment.open()
            pace = Pace()
            while batch := await attachment.batch():
                before = run.phase
                for kind, payload in batch:
                    self._take(kind, payload)
                if run.phase is not before:
                    changed()
                await pace.rest()
        except (AttachError, AgentError) as error:
            self.trouble = clean(f"{error.message} ({error.hint})" if error.hint else error.message)
        finally:
            attachment.close()
            self._attachment = None
            run.disconnected()
            changed()

    def _take(self, kind: int, payload: bytes) -> None:
        if kind in (frames.STDOUT, frames.STDERR):
            rank, data = frames.split_output(payload)
            self.run.output.feed(rank, kind, data)
        elif kind == frames.CONTROL:
            message = control.decode(payload)
            if message.get("op") == "hello":
                messages.check_hello(message)
            elif "error" in message:
                raise AgentError.from_message(message["error"])
            else:
                self.run.take(message)

    async def signal(self, number: int, ranks: list[int] | None) -> None:
        """Sends a signal through yod. AttachError when it is out of reach."""
        if self._attachment is None:
            raise AttachError(f"launcher {self.run.launcher} is out of reach", "it may have ended")
        await self._attachment.signal(number, ranks)

    def close(self) -> None:
        """Lets go; the launch goes on."""
        if self._attachment is not None:
            self._attachment.close()
