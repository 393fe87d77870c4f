"""The console's end of a yod's observers' socket (docs/protocol.md, "yod and its observers")."""

from __future__ import annotations

import asyncio
import contextlib
import time

from agents.wire import control, frames, messages
from agents.wire.errors import AgentError
from console.errors import ConsoleError

_READ = 64 << 10  # what is taken in before a key is looked at again: some 2 ms of lines
_PATIENCE_S = 5.0


class AttachError(ConsoleError):
    """The launch cannot be attached to."""


class Attachment:
    """One connection to one yod. Frames come in batches, at a pace that leaves the screen alive."""

    def __init__(self, path: str, launcher: int) -> None:
        self._path = path
        self._launcher = launcher
        self._decoder = frames.Decoder()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, *, replay: bool = True) -> None:
        """Connects and asks for the event stream. AttachError when nobody answers there, or it is not ours."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=_READ)
                self._writer.write(control.control(messages.hello("observer", "console")))
                self._writer.write(control.control({"op": "attach", "replay": replay, "output": True}))
                await self._writer.drain()
        except (FileNotFoundError, ConnectionError):
            raise AttachError(
                f"launcher {self._launcher} takes no observers (any more)",
                "it has ended, or it runs on another login processor",
            ) from None
        except PermissionError:
            raise AttachError(
                f"launcher {self._launcher} belongs to somebody else", "only its user can attach to it"
            ) from None
        except (OSError, TimeoutError) as error:
            raise AttachError(f"launcher {self._launcher} does not answer: {error or 'time is up'}") from None

    async def batch(self) -> list[frames.Frame]:
        """The next frames; an empty list when the stream has ended. AttachError when it is not understood."""
        if self._reader is None:
            return []
        while True:
            try:
                data = await self._reader.read(_READ)
                if not data:
                    return []
                ready = self._decoder.feed(data)
            except OSError:
                return []
            except AgentError as error:
                raise AttachError(f"launcher {self._launcher}: {error.message}", error.hint) from None
            if ready:
                return ready

    async def signal(self, number: int, ranks: list[int] | None = None) -> None:
        """Sends a signal to some ranks, or to all of them. AttachError when the connection is gone."""
        await self._send({"op": "signal", "signal": number, "ranks": ranks})

    async def input(self, text: str) -> None:
        """Sends text to the ranks' standard input. AttachError when the connection is gone."""
        await self._send({"op": "input", "data": text})

    async def end_input(self) -> None:
        """Ends the ranks' standard input. AttachError when the connection is gone."""
        await self._send({"op": "eof"})

    async def release(self) -> None:
        """Lets held ranks run. AttachError when the connection is gone."""
        await self._send({"op": "release"})

    async def _send(self, message: control.Message) -> None:
        if self._writer is None or self._writer.is_closing():
            raise AttachError(f"launcher {self._launcher} is out of reach")
        try:
            self._writer.write(control.control(message))
            async with asyncio.timeout(_PATIENCE_S):
                await self._writer.drain()
        except (OSError, TimeoutError):
            raise AttachError(f"launcher {self._launcher} is out of reach") from None

    def close(self) -> None:
        """Lets go; the launch goes on."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


class Pace:
    """Keeps one busy reader to half of the loop's time: what is late is skipped by yod, never waited for."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @staticmethod
    async def nap() -> None:
        """A moment, for what is about to be there."""
        await asyncio.sleep(0.02)

    async def rest(self) -> None:
        """Sleeps as long as the work since the last call took, at most 50 ms."""
        worked = time.monotonic() - self._began
        await asyncio.sleep(min(worked, 0.05) if worked > 0.002 else 0)
        self._began = time.monotonic()
