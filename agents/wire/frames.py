"""Frames: one byte of kind, four bytes of length (big-endian), then the payload. Sans-IO.

Source: docs/protocol.md. :meth:`Decoder.feed` takes bytes and returns complete frames; :func:`frame` and :func:`output`
make frames to send.
"""

from __future__ import annotations

import struct

from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple, Union

    Frame = Tuple[int, bytes]
else:
    Frame = tuple

CONTROL, STDIN, STDOUT, STDERR, COMMON, IMAGE, FILE = range(7)
KINDS = frozenset(range(7))

#: The largest payload in bytes, by kind: a plan for 10,368 ranks is well under 1 MiB, an environment under 2 MiB.
MAX_CONTROL = 8 << 20
MAX_DATA = 1 << 20
LIMITS = {CONTROL: MAX_CONTROL, COMMON: MAX_CONTROL, **dict.fromkeys((STDIN, STDOUT, STDERR, IMAGE, FILE), MAX_DATA)}

_HEADER = struct.Struct("!BI")
_RANK = struct.Struct("!I")
HEADER_SIZE = _HEADER.size


def frame(kind: int, payload: bytes) -> bytes:
    """Encode a frame. Raises WireError if the payload exceeds the limit of its kind."""
    if len(payload) > LIMITS[kind]:
        raise WireError(f"a frame of {len(payload)} bytes is over the limit of {LIMITS[kind]} for its kind {kind}")
    return _HEADER.pack(kind, len(payload)) + payload


def output(kind: int, rank: int, data: bytes) -> bytes:
    """Encode a STDOUT or STDERR frame: the rank (4 bytes), then its output."""
    return _HEADER.pack(kind, 4 + len(data)) + _RANK.pack(rank) + data


def split_output(payload: bytes) -> Tuple[int, bytes]:
    """The rank and output in a STDOUT or STDERR payload."""
    if len(payload) < 4:
        raise WireError("an output frame without a rank")
    return _RANK.unpack_from(payload)[0], payload[4:]


_OP = b'{"op":"'
_BEGINNING = 40  # enough bytes for the longest operation name at the start of a payload


def _operation(said: bytes) -> str:
    """The operation at the start of a control payload; "" if the payload starts with another key."""
    name, quote, _ = said[len(_OP) :].partition(b'"')
    return name.decode("ascii", "replace") if said.startswith(_OP) and quote else ""


class Decoder:
    """Decodes a byte stream into frames, one decoder for each connection. After a WireError, close the connection.

    ``limit`` caps every payload below the limit of its kind, for peers that are not yet authenticated.
    """

    __slots__ = ("_buffer", "_larger", "_limit")

    def __init__(self, limit: int = MAX_CONTROL) -> None:
        self._buffer = bytearray()
        self._limit = limit
        self._larger: Optional[Dict[str, int]] = None

    def limit(self, limit: int, larger: Dict[str, int]) -> None:
        """Cap the payloads that follow. Control frames of the operations in ``larger`` have the caps given there."""
        self._limit, self._larger = limit, larger

    def feed(self, data: bytes) -> List[Frame]:
        """Feed bytes and return the frames that are now complete, in order."""
        if not self._buffer:
            frames, start = self._split(data)
            if start < len(data):
                self._buffer += memoryview(data)[start:]
            return frames
        self._buffer += data
        with memoryview(self._buffer) as view:  # the view must be released before the buffer can shrink
            frames, start = self._split(view)
        del self._buffer[:start]
        return frames

    def _split(self, buffer: Union[bytes, memoryview]) -> Tuple[List[Frame], int]:
        frames: List[Frame] = []
        start = 0
        while len(buffer) - start >= HEADER_SIZE:
            kind, length = _HEADER.unpack_from(buffer, start)
            if kind not in KINDS:
                raise WireError(f"no frame begins with byte {kind}: the peer does not speak this protocol")
            end = start + HEADER_SIZE + length
            if length > LIMITS[kind] or length > self._limit:
                said = bytes(buffer[start + HEADER_SIZE : start + HEADER_SIZE + _BEGINNING])
                if self._larger and len(said) < _BEGINNING and length <= max(self._larger.values()):
                    break  # the operation is not known yet
                if kind != CONTROL or not self._larger or length > self._larger.get(_operation(said), 0):
                    raise WireError(f"a frame of {length} bytes of kind {kind} is over the limit")
            if len(buffer) < end:
                break
            frames.append((kind, bytes(buffer[start + HEADER_SIZE : end])))
            start = end
        return frames, start

    def clear(self) -> None:
        """Discard buffered bytes, because no more will come."""
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """The number of buffered bytes of an incomplete frame."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """How many bytes the buffered frame still lacks; 0 if its length is not known yet."""
        if len(self._buffer) < HEADER_SIZE:
            return 0
        return HEADER_SIZE + int(_HEADER.unpack_from(self._buffer)[1]) - len(self._buffer)
