"""The requests of a PMI client, for both versions."""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict


class Verb(Enum):
    """The kind of a request."""

    INIT, FULLINIT, MAXES, UNIVERSE, APPNUM, KVSNAME, JOBID = range(7)
    PUT, GET, FENCE, GET_JOB, GET_NODE, PUT_NODE = range(7, 13)
    PUBLISH, UNPUBLISH, LOOKUP, SPAWN, ABORT, FINALIZE = range(13, 19)


class PmiError(Exception):
    """A client sent invalid PMI; the message has the details."""


class Request:
    """A command with its keys and values."""

    __slots__ = ("members", "verb")

    def __init__(self, verb: Verb, members: "Dict[str, str]") -> None:
        self.verb, self.members = verb, members

    def get(self, name: str, default: str = "") -> str:
        """The value of ``name``."""
        return self.members.get(name, default)
