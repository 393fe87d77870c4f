"""The phases of a job's owner: a state machine without I/O.

1. The owner first awaits what may still run tasks: launches of a lost owner, or a second copy of the job elsewhere.
2. Then it gives out tasks, until all have ended, or the job is to continue on another login processor.
3. At the end the launches end. The job's end is recorded once, or that it is to be resumed.
4. An owner that is fenced records nothing any more: another process has the job.
"""

from __future__ import annotations

from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Tuple


class Phase(Enum):
    """What the owner does."""

    AWAITING = "awaiting"  # it waits for the end of what may still run tasks
    SERVING = "serving"  # it gives out tasks
    MOVING = "moving"  # it gives out none: the job continues on another login processor once those that run have ended
    ENDING = "ending"  # every task has ended, and the launches of its workers end
    SUSPENDING = "suspending"  # running tasks are ended, and the job is left to be resumed
    FENCED = "fenced"  # another process has the job, or its object is gone: nothing is recorded
    OVER = "over"  # the end is recorded


class Step(Enum):
    """What changes the phase."""

    TAKE_UP = "take up"  # nothing else runs tasks: they are read from the object
    LEAVE = "leave"  # another login processor takes the job
    END = "end"
    SUSPEND = "suspend"  # the mesh or the machine goes down, or the job leaves now
    FENCE = "fence"
    CLOSE = "close"  # the end is recorded now


#: All transitions of the owner.
TRANSITIONS: Dict[Tuple[Phase, Step], Phase] = {
    (Phase.AWAITING, Step.TAKE_UP): Phase.SERVING,
    (Phase.AWAITING, Step.SUSPEND): Phase.SUSPENDING,
    (Phase.AWAITING, Step.FENCE): Phase.FENCED,
    (Phase.AWAITING, Step.CLOSE): Phase.OVER,  # a job that never begins, or whose object is full
    (Phase.SERVING, Step.LEAVE): Phase.MOVING,
    (Phase.SERVING, Step.END): Phase.ENDING,
    (Phase.SERVING, Step.SUSPEND): Phase.SUSPENDING,
    (Phase.SERVING, Step.FENCE): Phase.FENCED,
    (Phase.SERVING, Step.CLOSE): Phase.OVER,  # the object is full
    (Phase.MOVING, Step.SUSPEND): Phase.SUSPENDING,
    (Phase.MOVING, Step.FENCE): Phase.FENCED,
    (Phase.MOVING, Step.CLOSE): Phase.OVER,  # the object is full
    (Phase.ENDING, Step.SUSPEND): Phase.SUSPENDING,
    (Phase.ENDING, Step.FENCE): Phase.FENCED,
    (Phase.ENDING, Step.CLOSE): Phase.OVER,
    (Phase.SUSPENDING, Step.SUSPEND): Phase.SUSPENDING,  # a second signal
    (Phase.SUSPENDING, Step.FENCE): Phase.FENCED,
    (Phase.SUSPENDING, Step.CLOSE): Phase.OVER,
    (Phase.FENCED, Step.SUSPEND): Phase.FENCED,
    (Phase.FENCED, Step.FENCE): Phase.FENCED,
    (Phase.OVER, Step.SUSPEND): Phase.OVER,
    (Phase.OVER, Step.FENCE): Phase.FENCED,  # the last commit finds the object gone
}
#: The phases before the end has begun; those in which nothing is recorded any more.
_ACTIVE = frozenset((Phase.AWAITING, Phase.SERVING, Phase.MOVING))
_CLOSED = frozenset((Phase.FENCED, Phase.OVER))


class JobPhase:
    """The phase of one owner."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = Phase.AWAITING

    def go(self, step: Step) -> None:
        """Take a step. Raises KeyError for one that this phase does not have, which is a programming error."""
        self.now = TRANSITIONS[self.now, step]

    @property
    def active(self) -> bool:
        """True until the end of the job, or its suspension, has begun."""
        return self.now in _ACTIVE

    @property
    def closed(self) -> bool:
        """True once nothing is recorded any more."""
        return self.now in _CLOSED
