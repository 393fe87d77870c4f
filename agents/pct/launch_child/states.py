"""The states of a launch child, without sockets and processes.

``handle`` takes an event and returns actions; agents/pct/launch_child/child.py carries them out.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Tuple


class State(Enum):
    """The state of a launch on one node."""

    LOADING = "loading"  # waiting for the load
    STARTING = "starting"  # ranks are being forked, children are being connected
    HELD = "held"  # every process of the subtree is stopped before its first instruction
    RUNNING = "running"
    SWEEPING = "sweeping"  # killing all processes that are left on this node
    WAITING = "waiting"  # this node is clean, the subtree not yet
    FINISHED = "finished"  # reported to the parent
    ABANDONED = "abandoned"  # sweeping, with no parent left
    OVER = "over"


class Event(Enum):
    """An event of a launch."""

    LOADED = "loaded"
    ALL_HELD = "all held"
    FAILED = "failed"  # a rank on this node or below cannot start
    GO = "go"
    DRAINED = "drained"  # every rank on this node has exited, and its output has been sent
    KILL = "kill"
    SWEPT = "swept"  # no process of the launch is left on this node
    TREE_FINISHED = "tree finished"  # every child has finished or is lost
    DONE = "done"
    LINK_LOST = "link lost"  # the link to the parent is lost
    EXPIRED = "expired"  # GO did not come in time


class Action(Enum):
    """An action of the launch child."""

    START = "start"
    REPORT_READY = "report ready"
    REPORT_FAILED = "report failed"
    RELEASE = "release"
    KILL_TREE = "kill tree"  # have the children kill theirs
    SWEEP = "sweep"  # kill all processes on this node, until none is left
    REPORT_FINISHED = "report finished"
    FORWARD_DONE = "forward done"
    DROP_TREE = "drop tree"  # close the children's links: they sweep by themselves
    END = "end"


S, E, A = State, Event, Action
if TYPE_CHECKING:
    Actions = Tuple[Action, ...]

_STOP: Actions = (A.KILL_TREE, A.SWEEP)
_FAIL: Actions = (A.REPORT_FAILED, A.KILL_TREE, A.SWEEP)
_ABANDON: Actions = (A.DROP_TREE, A.SWEEP)
_DISMISS: Actions = (A.FORWARD_DONE, A.SWEEP)

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Actions]] = {
    (S.LOADING, E.LOADED): (S.STARTING, (A.START,)),
    (S.LOADING, E.FAILED): (S.WAITING, (A.REPORT_FAILED,)),
    (S.LOADING, E.KILL): (S.OVER, (A.END,)),
    (S.LOADING, E.DONE): (S.OVER, (A.END,)),
    (S.LOADING, E.LINK_LOST): (S.OVER, (A.END,)),
    (S.LOADING, E.EXPIRED): (S.OVER, (A.END,)),
    (S.STARTING, E.ALL_HELD): (S.HELD, (A.REPORT_READY,)),
    (S.STARTING, E.FAILED): (S.SWEEPING, _FAIL),
    (S.STARTING, E.KILL): (S.SWEEPING, _STOP),
    (S.STARTING, E.DONE): (S.ABANDONED, _DISMISS),
    (S.STARTING, E.LINK_LOST): (S.ABANDONED, _ABANDON),
    (S.STARTING, E.EXPIRED): (S.ABANDONED, _ABANDON),
    (S.HELD, E.GO): (S.RUNNING, (A.RELEASE,)),
    (S.HELD, E.FAILED): (S.SWEEPING, _FAIL),
    (S.HELD, E.KILL): (S.SWEEPING, _STOP),
    (S.HELD, E.DONE): (S.ABANDONED, _DISMISS),
    (S.HELD, E.LINK_LOST): (S.ABANDONED, _ABANDON),
    (S.HELD, E.EXPIRED): (S.ABANDONED, _ABANDON),
    (S.RUNNING, E.DRAINED): (S.SWEEPING, (A.SWEEP,)),
    (S.RUNNING, E.KILL): (S.SWEEPING, _STOP),
    (S.RUNNING, E.DONE): (S.ABANDONED, _DISMISS),
    (S.RUNNING, E.LINK_LOST): (S.ABANDONED, _ABANDON),
    (S.SWEEPING, E.SWEPT): (S.WAITING, ()),
    (S.SWEEPING, E.KILL): (S.SWEEPING, (A.KILL_TREE,)),
    (S.SWEEPING, E.DONE): (S.ABANDONED, (A.FORWARD_DONE,)),
    (S.SWEEPING, E.LINK_LOST): (S.ABANDONED, (A.DROP_TREE,)),
    (S.WAITING, E.TREE_FINISHED): (S.FINISHED, (A.REPORT_FINISHED,)),
    (S.WAITING, E.KILL): (S.WAITING, (A.KILL_TREE,)),
    (S.WAITING, E.DONE): (S.OVER, (A.FORWARD_DONE, A.END)),
    (S.WAITING, E.LINK_LOST): (S.OVER, (A.DROP_TREE, A.END)),
    (S.FINISHED, E.DONE): (S.OVER, (A.FORWARD_DONE, A.END)),
    (S.FINISHED, E.LINK_LOST): (S.OVER, (A.DROP_TREE, A.END)),
    (S.ABANDONED, E.SWEPT): (S.OVER, (A.END,)),
}


class LaunchMachine:
    """Counts what a launch still waits for, and applies the table.

    ``unheld``: local ranks and children that are not held yet; ``open_children``: children that have neither finished
    nor been lost.
    """

    def __init__(self) -> None:
        self.state = State.LOADING
        self._released = self._stopped = False
        self.unheld = 0
        self.open_children = 0

    def loaded(self, ranks: int, children: int) -> List[Action]:
        """The load has arrived, with this many local ranks and children."""
        self.unheld, self.open_children = ranks + children, children
        return self.handle(Event.LOADED)

    def one_held(self) -> List[Action]:
        """One local rank, or one child with its whole subtree, is held."""
        self.unheld -= 1
        return self.handle(Event.ALL_HELD) if self.unheld == 0 else []

    def child_over(self) -> List[Action]:
        """One child has finished or is lost."""
        self.open_children -= 1
        return self._settle([])

    def handle(self, event: Event) -> List[Action]:
        """Apply ``event``; returns the actions in order."""
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return []
        self._released |= event is Event.GO
        self._stopped |= event is Event.KILL
        self.state, actions = entry
        return self._settle(list(actions))

    @property
    def runs(self) -> bool:
        """True if ranks run here or below, and nothing has ended the launch. The last local rank may have exited."""
        return self._released and not self._stopped and self.state in (State.RUNNING, State.SWEEPING, State.WAITING)

    def _settle(self, actions: List[Action]) -> List[Action]:
        if self.state is State.WAITING and self.open_children <= 0:
            self.state, more = TRANSITIONS[State.WAITING, Event.TREE_FINISHED]
            actions += more
        return actions
