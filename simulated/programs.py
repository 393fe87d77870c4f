"""What a simulated rank does instead of running its program. No I/O."""

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
    """``sleep S`` takes S seconds, ``hostname`` and ``echo`` write, ``false`` fails; everything else succeeds at
    once."""
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
