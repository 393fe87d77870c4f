"""The sending side of a move: offers an object to another node, stops its use, and learns the outcome. Blocking.

It runs in a separate process on a node (agents/objects/object_process.py), or in ``mesh job move`` for objects of the
login processor.
"""

from __future__ import annotations

import os
import time

from agents.objects.connection import connect
from agents.objects.holder import Holder, Offer
from agents.objects.states import Event, State
from agents.wire.errors import AgentError
from agents.wire.frames import FILE, frame
from redmesh.state import StateError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Optional

    from agents.link.client import Client

#: Seconds for the other node to answer; between questions whether it has the object, doubled up to the last value.
ANSWER_S, AGAIN_S, LONGEST_AGAIN_S = 10.0, 0.05, 5.0
_PIECE = 1 << 20


class Moved:
    """The outcome of a move. ``live``: the object is on the other node; otherwise it is in doubt, and is asked
    about."""

    __slots__ = ("counter", "live", "paused_s")

    def __init__(self, counter: int, live: bool, paused_s: float) -> None:
        self.counter, self.live, self.paused_s = counter, live, paused_s


def move(
    holder: Holder, uuid: str, node: str, address: str, *,
    patience_s: float = ANSWER_S, shown: Optional[Dict[str, str]] = None,
) -> Moved:  # fmt: skip
    """Move an object to ``node``. StateError or AgentError means that it is still live here.

    ``shown``: the pass of its user for ``node``.
    """
    client = connect(address, ANSWER_S, shown)
    try:
        client.call({"op": "standing", "uuid": uuid})  # its process is there: the job pauses from now on
        began = time.monotonic()
        offer = holder.offer(uuid, node, address)
    except BaseException:
        client.close()
        raise
    try:
        with client:
            _send(client, holder, offer)
            holder.stop(offer)
            state = _take(client, holder, uuid, offer.counter)
    except BaseException as error:
        if os.path.exists(offer.job.path):  # nothing was promised, so it is live here
            offer.job.close()
            raise
        if not isinstance(error, (AgentError, OSError)):
            raise
        state = State.DOUBT
    if state is State.DOUBT:
        state = ask_until(holder, uuid, began + patience_s)
    if state is State.LIVE:
        raise StateError(f"job {uuid} is still on {holder.node}: {node} did not receive it", "try again")
    return Moved(offer.counter, state is not State.DOUBT, time.monotonic() - began)


def _send(client: Client, holder: Holder, offer: Offer) -> None:
    """Send all bytes; afterwards the receiver has them on disk. Raises AgentError or OSError."""
    what = {"uuid": offer.uuid, "counter": offer.counter}
    client.call({"op": "offer", **what, "size": offer.size, "sender": holder.node})
    import hashlib  # OpenSSL's, for a large object

    digest = hashlib.sha256()
    with open(offer.job.path, "rb") as file:
        while data := file.read(_PIECE):
            digest.update(data)
            client.sock.sendall(frame(FILE, data))
    client.call({"op": "sent", **what, "digest": digest.hexdigest()}, ANSWER_S * 6)


def _take(client: Client, holder: Holder, uuid: str, counter: int) -> State:
    mine = {"uuid": uuid, "counter": counter, "uid": os.geteuid()}  # a node believes a node about its user alone
    reply = client.call({"op": "take", **mine})
    state = holder.answered(uuid, counter, Event.TAKEN if reply.get("taken") else Event.REFUSED)
    client.tell({"op": "settled", **mine})
    return state


def ask_again(holder: Holder, uuid: str) -> State:
    """Ask the receiver of an object in doubt once more; returns the new state. Raises StateError."""
    entry = holder.entry(uuid)
    if entry.place.state is not State.DOUBT:
        return entry.place.state
    try:
        with connect(entry.address, ANSWER_S) as client:
            return _take(client, holder, uuid, entry.place.counter)
    except (AgentError, OSError):
        return State.DOUBT


def ask_until(holder: Holder, uuid: str, until: float) -> State:
    """Ask until the receiver answers, or until ``until`` (monotonic)."""
    pause_s = AGAIN_S
    while True:
        state = ask_again(holder, uuid)
        if state is not State.DOUBT or time.monotonic() + pause_s > until:
            return state
        time.sleep(pause_s)  # poll: the receiver does not report that it can be reached again
        pause_s = min(pause_s * 2, LONGEST_AGAIN_S)
