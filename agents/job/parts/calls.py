"""The data of functions called through ``redmesh.Executor``, on their way to workers and back.

Nothing is unpickled here; only the program and its workers interpret a call.
"""

from __future__ import annotations

import base64
import binascii
import struct

from agents.wire.errors import WireError
from agents.wire.frames import FILE, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from agents.link.link import Link

#: A call: number, length of its data (0: the program has cancelled it). A result: number, whether it failed, length.
#: See docs/protocol.md, *Workers*.
_CALL, _RESULT = struct.Struct("!II"), struct.Struct("!IBI")
#: How a call ended: with a result, with an exception, or lost, with the reason.
RETURNED, RAISED, LOST = 0, 1, 2
_MOST = 512 << 10  # bytes of results in one frame, unless a single one is larger


class Calls:
    """The calls of one program on its connection."""

    def __init__(self) -> None:
        self.client: Optional[Link] = None
        self.open = True  # more calls may come
        self.inputs: Dict[int, str] = {}  # base64, until the calls have ended
        self.received = self.submitted = 0  # the last call that was sent, and the last that the program has
        self.unwanted: Set[int] = set()  # what workers are asked to give back, because the program has cancelled it
        self._results: List[bytes] = []
        self._size = 0

    def add(self, payload: bytes) -> List[Tuple[int, int, bool]]:
        """Add the calls of a frame; returns ranges of their numbers, each with True if the program has cancelled it."""
        at = 0
        ranges: List[Tuple[int, int, bool]] = []
        while at < len(payload):
            try:
                number, length = _CALL.unpack_from(payload, at)
            except struct.error:
                raise WireError("not a call of a function") from None
            at += _CALL.size
            if number != self.received + 1 or at + length > len(payload):
                raise WireError("calls of functions are numbered one after another")
            self.received, cancelled = number, not length
            if not cancelled:
                self.inputs[number] = base64.b64encode(payload[at : at + length]).decode()
            at += length
            if ranges and ranges[-1][2] == cancelled:
                ranges[-1] = (ranges[-1][0], number, cancelled)
            else:
                ranges.append((number, number, cancelled))
        return ranges

    @property
    def unsent(self) -> Optional[Tuple[int, int]]:
        """The first and last call that the program has not sent yet; None if it has sent all."""
        return (self.received + 1, self.submitted) if self.submitted > self.received else None

    def ended(self, number: int, status: int, cause: str, data: str) -> None:
        """A call has ended; :meth:`flush` sends its result."""
        self.inputs.pop(number, None)
        self.unwanted.discard(number)
        try:
            told = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            told = b""
        kind = LOST if not told else RAISED if status else RETURNED
        told = told or (cause or f"status {status}").encode()
        self._results.append(_RESULT.pack(number, kind, len(told)) + told)
        self._size += len(told)
        if self._size > _MOST:
            self.flush()

    def drop(self, ranges: List[Tuple[int, int]]) -> None:
        """Tell the program which calls no worker will get, because it has asked for that."""
        for first, last in ranges:
            for number in range(first, last + 1):
                self.inputs.pop(number, None)
                self.unwanted.discard(number)
        if self.client is not None and ranges:
            self.client.send({"op": "dropped", "ranges": ranges})

    def keep(self, numbers: Set[int]) -> None:
        """Tell the program which calls it cannot cancel: they have begun, or their worker does not answer."""
        self.unwanted -= numbers
        if self.client is not None and numbers:
            self.client.send({"op": "kept", "numbers": sorted(numbers)})

    def cancel(self, reason: str, error: str = "") -> None:
        """Tell the program why calls without a result will have none. ``error``: an exception, pickled, as base64."""
        if self.client is not None:
            self.client.send({"op": "cancelled", "reason": reason, **({"error": error} if error else {})})

    def flush(self) -> None:
        """Send results to the program."""
        if self._results and self.client is not None:
            self.client.send_raw(frame(FILE, b"".join(self._results)))
        self._results.clear()
        self._size = 0
