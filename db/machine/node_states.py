"""The states of a node and their transitions. No I/O."""

from __future__ import annotations

import enum

#: The incarnation of a node that the mesh has given up: no PCT with that boot id is accepted again.
GIVEN_UP = (1 << 31) - 1


class NodeState(enum.StrEnum):
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"
    DRAINING = "draining"
    DRAINED = "drained"


class NodeEvent(enum.StrEnum):
    REGISTERED = "registered"  # its PCT has registered (again)
    SILENT = "silent"  # the heartbeats of its PCT are late
    GONE = "gone"  # its PCT is dead, or has been silent for too long
    FAILED = "failed"  # a load failed because of the node
    DRAIN = "drain"  # an administrator takes the node out of service
    EMPTIED = "emptied"  # nothing runs on the node any more
    RESUME = "resume"  # an administrator returns the node to service, and its PCT is there
    RESUME_ABSENT = "resume_absent"  # an administrator returns the node to service, and its PCT is not there


_S, _E = NodeState, NodeEvent

#: Other pairs leave the state unchanged: an administrator's decision has priority over what the node does.
TRANSITIONS: dict[tuple[NodeState, NodeEvent], NodeState] = {
    (_S.UP, _E.SILENT): _S.SUSPECT,
    (_S.UP, _E.GONE): _S.DOWN,
    (_S.UP, _E.FAILED): _S.DOWN,
    (_S.UP, _E.DRAIN): _S.DRAINING,
    (_S.SUSPECT, _E.REGISTERED): _S.UP,
    (_S.SUSPECT, _E.GONE): _S.DOWN,
    (_S.SUSPECT, _E.FAILED): _S.DOWN,
    (_S.SUSPECT, _E.DRAIN): _S.DRAINING,
    (_S.DOWN, _E.REGISTERED): _S.UP,
    (_S.DOWN, _E.DRAIN): _S.DRAINING,
    (_S.DRAINING, _E.EMPTIED): _S.DRAINED,
    (_S.DRAINING, _E.RESUME): _S.UP,
    (_S.DRAINING, _E.RESUME_ABSENT): _S.DOWN,
    (_S.DRAINED, _E.RESUME): _S.UP,
    (_S.DRAINED, _E.RESUME_ABSENT): _S.DOWN,
}


def after(state: NodeState, event: NodeEvent) -> NodeState:
    """The state of a node in ``state`` after ``event``."""
    return TRANSITIONS.get((state, event), state)


def is_late(known_boot: str, known_incarnation: int, boot_id: str, incarnation: int, event: NodeEvent) -> bool:
    """True if an RCA's report is about an earlier boot or incarnation of the node than the database knows.

    A node registers under any boot id (it has booted), or under the same boot id and the same or a later incarnation. A
    report that it fell silent or is gone counts only for the known boot id and incarnation.
    """
    if event is NodeEvent.REGISTERED:
        return boot_id == known_boot and incarnation < known_incarnation
    return (boot_id, incarnation) != (known_boot, known_incarnation)
