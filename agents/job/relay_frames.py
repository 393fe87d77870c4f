"""Frames between the owner of a job and the yods of its workers (docs/protocol.md, *Workers*). Pure."""

from __future__ import annotations

import struct

from agents.wire.frames import FILE, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Tuple

    class Asked(NamedTuple):
        """A worker's request: ``number`` 0 says that its connection was closed."""

        channel: Tuple[int, int]
        number: int
        node: str
        data: bytes

else:
    from collections import namedtuple

    Asked = namedtuple("Asked", "channel number node data")

#: The operations of the control messages that a relay begins with, and ends with when the ranks have ended.
HELLO, OVER = "workers", "over"
_REQUEST = struct.Struct("!IIIH")  # place of the node, channel there, number, bytes of the node's name
_ANSWER = struct.Struct("!I")


def pack(channel: "Tuple[int, int]", number: int, node: str, data: bytes) -> bytes:
    """A request as a frame."""
    name = node.encode()
    return frame(FILE, _REQUEST.pack(*channel, number, len(name)) + name + data)


def parse(payload: bytes) -> Asked:
    """The inverse of :func:`pack`. struct.error or UnicodeError for what is not a request."""
    place, channel, number, length = _REQUEST.unpack_from(payload)
    start = _REQUEST.size + length
    return Asked((place, channel), number, payload[_REQUEST.size : start].decode(), payload[start:])


def pack_answer(number: int, data: bytes) -> bytes:
    """An answer as a frame."""
    return frame(FILE, _ANSWER.pack(number) + data)


def parse_answer(payload: bytes) -> "Tuple[int, bytes]":
    """Number and data. struct.error for what is not an answer."""
    return _ANSWER.unpack_from(payload)[0], payload[_ANSWER.size :]
