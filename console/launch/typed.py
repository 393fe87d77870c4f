"""Standard input that observers send: for launches whose own yod reads none (``yod --detach --input=all``)."""

from __future__ import annotations

import codecs
import os

from agents.wire.errors import WireError
from agents.wire.frames import STDIN, frame
from console.errors import ConsoleError
from console.launch.access import yod_owner, yod_socket
from console.launch.feeder import CREDIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from console.launch.engine import Engine

#: Bytes that wait for ranks that do not read; more is refused.
_HELD = 256 << 10
_PIECE = 16 << 10
_ANSWER_S = 5.0


class TypedInput:
    """Stands where a launch's :class:`console.launch.feeder.Feeder` would: on credit, in the order it came."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._credit = CREDIT
        self._waiting = bytearray()
        self._open = True

    def give(self, data: bytes) -> None:
        """More from an observer. WireError when it has ended, or when the ranks read too slowly to take it."""
        if not self._open:
            raise WireError("standard input has ended")
        if len(self._waiting) + len(data) > _HELD:
            raise WireError("the ranks do not read what they were sent")
        self._waiting += data
        self._pass_on()

    def credit(self, amount: int) -> None:
        """The ranks have taken so many bytes."""
        self._credit += amount
        self._pass_on()

    def close(self) -> None:
        """No more."""
        self._open = False

    def _pass_on(self) -> None:
        count = min(len(self._waiting), self._credit)
        if count > 0:
            self._send(bytes(self._waiting[:count]))
            del self._waiting[:count]
            self._credit -= count


def typed(engine: Engine, data: bytes) -> None:
    """What an observer sends to the ranks' standard input. WireError where yod reads its own, or no rank reads any."""
    if engine._feeder is None and engine._on_running is not None and engine._request.input != "none":
        engine._feeder = TypedInput(lambda piece: engine._raw_down(frame(STDIN, piece)))
    if not isinstance(engine._feeder, TypedInput):
        raise WireError("this launch takes no input from observers: yod --detach --input=all does")
    engine._feeder.give(data)
    engine.stream.emit({"event": "typed", "bytes": len(data)})


def feed(run_dir: str, launcher: int, file: int) -> None:
    """Send what can be read from a descriptor, as UTF-8, then its end. ConsoleError when the launch takes none."""
    from agents.link.client import Client, Unreachable
    from console.launch.attach import reach_launch

    reach = reach_launch(run_dir, launcher)
    if reach is not None:
        reach.close()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    path = yod_socket(run_dir, launcher)
    try:
        with Client(path, "observer", _ANSWER_S, yod_owner(path)) as client:
            client.tell({"op": "attach", "replay": False, "output": False})
            while data := os.read(file, _PIECE):
                client.tell({"op": "input", "data": decoder.decode(data)})
                while client.receive().get("event") != "typed":
                    pass
            client.tell({"op": "eof"})
    except Unreachable:
        raise ConsoleError(
            f"launcher {launcher} takes no input",
            "only what began with yod --detach --input=all (or shared, or a rank) does",
        ) from None
