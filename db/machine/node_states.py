"""The states of a node, and what moves it from one to another. Pure."""

from __future__ import annotations

import enum

#: The incarnation of a life that the mesh has given up: no PCT under that boot id is taken again.
GIVEN_UP = (1 << 31) - 1


class NodeState(enum.StrEnum):
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"
    DRAINING = "draining"
    DRAINED = "drained"


class NodeEvent(enum.StrEnum):
    REGISTERED = "registered"  # its PCT is there (again)
    SILENT = "silent"  # its PCT's beats are late
    GONE = "gone"  # its PCT is dead, or silent for too long
    FAILED = "failed"  # a load failed because of it
    DRAIN = "drain"  # an administrator takes it out of service
    EMPTIED = "emptied"  # nothing runs there any more
    RESUME = "resume"  # an administrator puts it back, and its PCT is there
    RESUME_ABSENT = "resume_absent"  # the same, and its PCT is not there


_S, _E = NodeState, NodeEvent

#: Whatever is not here leaves the state as it is: an administrator's word outlives what the node does.
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
    """The state of a node once ``event`` happened to it in ``state``."""
    return TRANSITIONS.get((state, event), state)


def is_late(known_boot: str, known_incarnation: int, boot_id: str, incarnation: int, event: NodeEvent) -> bool:
    """Whether what an RCA tells is about an earlier life of the node than the database knows of.

    A node registers under any boot id (it has booted) and under the same or a later incarnation; that it fell
    silent or went counts only for the life that is known.
    """
    if event is NodeEvent.REGISTERED:
        return boot_id == known_boot and incarnation < known_incarnation
    return (boot_id, incarnation) != (known_boot, known_incarnation)
