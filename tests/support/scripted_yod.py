"""A stand-in for yod's observer socket that sends scripted events, for events that a real launch rarely produces."""

import asyncio
from pathlib import Path
from typing import Any

from agents.wire import control, frames, messages


class ScriptedYod:
    """Serves ``yod-N.sock``: each observer gets all earlier events, then new ones. ``heard``: requests received."""

    def __init__(self, run_dir: Path, launcher: int) -> None:
        self.path = run_dir / f"yod-{launcher}.sock"
        self.launcher = launcher
        self.heard: list[dict[str, Any]] = []
        self._said = bytearray()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "ScriptedYod":
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hang_up()
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def event(self, kind: str, **facts: Any) -> None:
        """Send an event with a fixed time."""
        self._say(control.control({"event": kind, "at": 1763660000.0, **facts}))

    def hello(self, command: str, size: int) -> None:
        """Send the ``hello`` event, which is the first of a launch."""
        self.event("hello", launcher=self.launcher, command=command, size=size, user="ada", state="loading")

    def started(self, nodes: list[str]) -> None:
        """Send ``started``: one rank runs on each of ``nodes``."""
        self.event("started", ranks=[[900 + rank, node] for rank, node in enumerate(nodes)])

    def exit(self, rank: int, status: int = 0, signal: int = 0, *, node: str = "n0", by_yod: bool = False) -> None:
        """Send the exit of a rank."""
        self.event("exit", rank=rank, node=node, status=status, signal=signal, elapsed_s=1.5, by_yod=by_yod)

    def output(self, rank: int, data: bytes, kind: int = frames.STDOUT) -> None:
        """Send output of a rank."""
        self._say(frames.output(kind, rank, data))

    def raw(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        self._say(data)

    def _say(self, data: bytes) -> None:
        self._said += data
        for writer in self._writers:
            writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = frames.Decoder()
        writer.write(control.control(messages.hello("yod")))
        while data := await reader.read(65536):
            for kind, payload in decoder.feed(data):
                assert kind == frames.CONTROL
                message = control.decode(payload)
                self.heard.append(message)
                if message["op"] == "hello":
                    messages.check_hello(message)
                    continue
                messages.check(messages.YOD, message)
                if message["op"] == "attach":
                    writer.write(bytes(self._said))
                    self._writers.append(writer)
