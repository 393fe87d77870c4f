"""The console's connection to a yod's socket for observers (docs/protocol.md, "yod and its observers")."""

from __future__ import annotations

import asyncio
import contextlib
import time

from agents.wire import control, frames, messages
from agents.wire.errors import AgentError
from console.errors import ConsoleError

_READ = 64 << 10  # bytes read before keys are handled; they take about 2 ms
_PATIENCE_S = 5.0


class AttachError(ConsoleError):
    """A launch cannot be attached to."""


class Attachment:
    """A connection to a yod. Frames come in batches, at a pace that keeps the screen responsive."""

    def __init__(self, path: str, launcher: int) -> None:
        self._path = path
        self._launcher = launcher
        self._decoder = frames.Decoder()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, *, replay: bool = True) -> None:
        """Connect and request the event stream. Raises AttachError if it is unreachable, or another user's."""
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
        """The next frames; an empty list at the end of the stream. Raises AttachError for invalid data."""
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
        """Send a signal to some ranks, or to all. Raises AttachError if the connection is lost."""
        await self._send({"op": "signal", "signal": number, "ranks": ranks})

    async def input(self, text: str) -> None:
        """Send text to the ranks' standard input. Raises AttachError if the connection is lost."""
        await self._send({"op": "input", "data": text})

    async def end_input(self) -> None:
        """End the ranks' standard input. Raises AttachError if the connection is lost."""
        await self._send({"op": "eof"})

    async def release(self) -> None:
        """Release held ranks. Raises AttachError if the connection is lost."""
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
        """Disconnect; the launch continues."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


class Pace:
    """Limits a busy reader to half of the loop's time; yod skips output for slow observers and never waits."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @staticmethod
    async def nap() -> None:
        """Sleep for a moment."""
        await asyncio.sleep(0.02)

    async def rest(self) -> None:
        """Sleep as long as the work since the last call took, at most 50 ms."""
        worked = time.monotonic() - self._began
        await asyncio.sleep(min(worked, 0.05) if worked > 0.002 else 0)
        self._began = time.monotonic()
