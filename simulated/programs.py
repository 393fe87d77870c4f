"""The behaviour of a simulated rank, derived from its program and arguments. No I/O."""

from __future__ import annotations

import os

TYPE_CHECKING = False

#: The longest sleep in seconds.
MOST_S = 30 * 86400.0


class Behaviour:
    """A rank runs for ``seconds``, writes ``output`` and exits with the wait status ``status``."""

    __slots__ = ("output", "seconds", "status")

    def __init__(self, seconds: float = 0.0, output: bytes = b"", status: int = 0) -> None:
        self.seconds, self.output, self.status = seconds, output, status


def behaviour(path: bytes, argv: list[bytes], node: str) -> Behaviour:
    """Return a program's behaviour: ``sleep``, ``hostname``, ``echo`` and ``false`` are imitated; others exit 0."""
    name = os.path.basename(path)
    if name == b"sleep":
        return Behaviour(sum(map(_seconds, argv[1:])))
    if name == b"hostname":
        return Behaviour(0.0, node.encode() + b"\n")
    if name == b"echo":
        return Behaviour(0.0, b" ".join(argv[1:]) + b"\n")
    return Behaviour(0.0, b"", 1 << 8 if name == b"false" else 0)


def _seconds(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return min(max(0.0, value), MOST_S) if value == value else 0.0
