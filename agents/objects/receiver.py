"""Fetches an object from the node that holds it to a login processor, to which no node can connect. Blocking.

The steps and the table of states are those of a move that the sender begins. If the connection is lost between two
steps, the next fetch continues.
"""

from __future__ import annotations

from agents.objects.arrival import Arrival
from agents.objects.connection import connect
from agents.objects.holder import Holder
from agents.objects.sender import ANSWER_S
from agents.objects.states import Action
from agents.wire.control import Message, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, FILE

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from agents.link.client import Client

_LONGEST_S = ANSWER_S * 6


def fetch(holder: Holder, uuid: str, address: str, sender: str) -> int:
    """Fetch the object from the node ``sender`` at ``address``; returns its counter. AgentError, StateError."""
    while True:
        with connect(address, _LONGEST_S) as client:
            reply = _given(client, holder, uuid, sender)
            counter = int(
                reply["doubt"]
            )  # the node has stopped using it: from now on the object is live here, or this attempt is refused for ever
            taken = holder.take(uuid, counter) in (Action.ADOPT, Action.SAY_TAKEN)
            client.call({"op": "answer", "uuid": uuid, "counter": counter, "taken": taken})
            if taken:
                holder.settled(uuid, counter)
                return counter


def _given(client: Client, holder: Holder, uuid: str, sender: str) -> Message:
    """The node's message that it has stopped using the object, whose bytes are on this disk now or since earlier."""
    client.tell({"op": "give", "id": 0, "uuid": uuid, "receiver": holder.node})
    message, arrival = client.receive(), None
    try:
        while True:
            if "error" in message:
                raise AgentError.from_message(message["error"])
            if "doubt" in message:
                return message
            if message.get("op") == "offer" and arrival is None:
                arrival = Arrival(holder, {**message, "sender": sender})
            elif "digest" in message and arrival is not None:
                arrival.finish(message, holder.node)
                if holder.store(uuid, arrival.counter, arrival.path, sender) is not Action.KEEP:
                    raise AgentError(f"a later state of job {uuid} is known here", "mesh job show", code="state")
                return client.call({"op": "confirm", "uuid": uuid, "counter": arrival.counter})
            else:
                raise WireError("an answer that has neither an object nor a state")
            message = _bytes(client, arrival)
    except OSError as error:
        told = f"{holder.directory}: {error.strerror or error}"
        raise AgentError(told, f"the object is still on {sender}", code="disk") from None
    finally:
        if arrival is not None:
            arrival.close()


def _bytes(client: Client, arrival: Arrival) -> Message:
    """Write received bytes until a message arrives; returns the message."""
    while True:
        kind, payload = client.receive_frame()
        if kind == FILE:
            arrival.write(payload)
        elif kind == CONTROL:
            return decode(payload)
        else:
            raise WireError(f"a frame of kind {kind} where an object was expected")
