"""Queries about the state objects of a node: the local answer, and requests to other machines."""

from __future__ import annotations

import os

from agents.objects.changes import wait_for_change
from agents.objects.connection import connect
from agents.objects.http_query import Answer, answer, refused
from agents.objects.states import State
from agents.wire.address import SCHEME
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import FILE
from redmesh.state import StateError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    from agents.objects.holder import Holder

#: The longest time that a watcher may wait for a change.
LONGEST_WAIT_S = 60.0
#: How many nodes are asked for one object, each named by the one before.
MOST_HOPS = 5
_ANSWER_S = 10.0
#: How often an object is looked for, because it may be moved meanwhile.
_LOOKS = 5


def ask(holder: Holder, uuid: str, what: str, query: Dict[str, str], known: str = "", wait_s: float = 0.0) -> Answer:
    """The answer about a local object or copy; 301 with the node and address where it went, otherwise 404."""
    try:
        for _ in range(_LOOKS):
            path = holder.answering(uuid)
            if path:
                if known and wait_s > 0:
                    try:
                        wait_for_change(path, known, min(wait_s, LONGEST_WAIT_S))
                    except StateError:
                        pass  # the answer says what is wrong
                    path = holder.answering(uuid) or path
                told = answer(path, what, query, known)
                if told.status != 404 or holder.answering(uuid) == path:
                    return told  # otherwise the file was renamed under us
            entry = holder.entry(uuid)
            if entry.place.state not in (State.LIVE, State.DOUBT):
                break
            # It arrived between the two checks; the next check finds it.
    except (StateError, OSError) as error:
        return refused(404, getattr(error, "message", str(error)), getattr(error, "hint", ""))
    if entry.forwards:
        moved = refused(301, f"job {uuid} has moved to {entry.other}", entry.address)
        where = {"X-Redmesh-Node": entry.other, "X-Redmesh-Counter": str(entry.place.counter)}
        return Answer(301, {**moved.headers, **where, "Location": entry.address}, moved.body)
    if entry.place.state is State.GONE and entry.other and not entry.address:
        why = f"job {uuid} has moved to {entry.other}, to which nobody can connect"
        return refused(404, why, "ask on that login processor")
    return refused(404, f"no job {uuid} is on {holder.node}", "mesh job show asks where it is")


class Question:
    """A query about an object, wherever it is."""

    __slots__ = ("known", "query", "uuid", "wait_s", "what")

    def __init__(
        self, uuid: str, what: str = "", query: "Optional[Dict[str, str]]" = None, known: str = "", wait_s: float = 0.0
    ) -> None:
        self.uuid, self.what, self.query, self.known, self.wait_s = uuid, what, query or {}, known, wait_s

    def ask(self, address: str) -> Answer:
        """The answer of the node at ``address``. Raises AgentError."""
        with connect(address, _ANSWER_S) as client:
            reply = client.call(
                {"op": "ask", "uuid": self.uuid, "what": self.what, "query": self.query, "known": self.known,
                 "wait_s": self.wait_s}, _ANSWER_S + self.wait_s,
            )  # fmt: skip
            body, size = b"", int(reply["size"])
            while len(body) < size:
                kind, payload = client.receive_frame()
                if kind != FILE:
                    raise WireError(f"a frame of kind {kind} where an answer was expected")
                body += payload
        return Answer(int(reply["status"]), dict(reply["headers"]), body)

    def follow(self, address: str) -> "Tuple[Answer, str]":
        """Query the node at ``address`` and follow redirections; also returns the address of the node that answered.

        Each node must show a certificate of this mesh in its own name before the query is sent. Raises AgentError.
        """
        for _ in range(MOST_HOPS + 1):
            told = self.ask(address)
            if told.status != 301:
                return told, address
            there = str(told.headers.get("Location", ""))
            if not there.startswith(SCHEME) and os.path.dirname(there) != os.path.dirname(address):
                raise AgentError(
                    f"{address} refers to {there[:100]!r}, which is not a node of this mesh", code="denied"
                )
            address = there
        raise AgentError(
            f"job {self.uuid} has moved {MOST_HOPS} times while it was searched for", "ask again", code="state"
        )
