"""Frames between the owner of a job and the yods of its workers (docs/protocol.md, *Workers*). No I/O."""

from __future__ import annotations

import struct

from agents.wire.frames import FILE, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Tuple

    class Asked(NamedTuple):
        """A worker's request; ``number`` 0 reports that its connection was closed."""

        channel: Tuple[int, int]
        number: int
        node: str
        data: bytes

else:
    from collections import namedtuple

    Asked = namedtuple("Asked", "channel number node data")

#: The operations of the first control message of a relay, and of the last one, when the ranks have ended.
HELLO, OVER = "workers", "over"
_REQUEST = struct.Struct("!IIIH")  # place of the node, channel there, number, bytes of the node's name
_ANSWER = struct.Struct("!I")


def pack(channel: "Tuple[int, int]", number: int, node: str, data: bytes) -> bytes:
    """A request as a frame."""
    name = node.encode()
    return frame(FILE, _REQUEST.pack(*channel, number, len(name)) + name + data)


def parse(payload: bytes) -> Asked:
    """Parse a request. Raises struct.error or UnicodeError."""
    place, channel, number, length = _REQUEST.unpack_from(payload)
    start = _REQUEST.size + length
    return Asked((place, channel), number, payload[_REQUEST.size : start].decode(), payload[start:])


def pack_answer(number: int, data: bytes) -> bytes:
    """An answer as a frame."""
    return frame(FILE, _ANSWER.pack(number) + data)


def parse_answer(payload: bytes) -> "Tuple[int, bytes]":
    """Parse an answer: number and data. Raises struct.error."""
    return _ANSWER.unpack_from(payload)[0], payload[_ANSWER.size :]
