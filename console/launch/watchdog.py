"""Limits how long a launch may make no progress: after 2 s yod prints what it waits for, later it gives up the step.

The watchdog runs twice a second; most launches end before its first run and never import it.
"""

from __future__ import annotations

import time

from agents.pct.launch.liveness import Action, Pulse
from agents.pct.launch.liveness import State as Liveness
from console.launch.states import CLEAR_S, LOAD_S, STEP_S, Event, State
from redmesh.idset import fold_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from console.launch.daemons.root_link import RootLink
    from console.launch.options.request import Request
    from console.launch.states import Launch
    from console.launch.stdio.frontend import Front

    class Watched(Protocol):
        """The interface of a launch and its link to the tree."""

        launch: Launch
        front: Front
        root: RootLink | None
        moved: float  # when the launch last made progress, monotonic

        @property
        def reads(self) -> bool:
            """True if yod itself has work to do before nodes can continue."""

        def outstanding(self) -> str:
            """What a launch without progress waits for; "" if that is normal."""

        def send(self, message: dict[str, Any]) -> None:
            """Send a message down the tree."""

        def on_root_silent(self, seconds: float, is_still: Callable[[], bool]) -> None:
            """Handle the silence of the root before GO, if it is still silent when its PCT has been asked."""

        def handle(self, event: Event, *facts: Any) -> None:
            """Pass an event to the state machine and carry out its actions."""


TICK_S = 0.5
_SAY_AFTER_S = 2.0  # without any progress
_OWN_STOP_S = 2.0  # more seconds than this between two ticks mean that yod itself was stopped (^Z)


class Watchdog:
    """The watchdog of a launch."""

    def __init__(self, engine: Watched) -> None:
        self._engine = engine
        self._told: State | None = None  # the state for which the outstanding work was printed
        self._pulse = Pulse(TICK_S)  # of the root
        # Yod may also have been stopped before the first tick.
        self._ticked_at = engine.moved

    def renew(self) -> None:
        """Start anew for another attempt, or another step in the same state: print the outstanding work again."""
        self._told = None

    def another_root(self) -> None:
        """Start anew for a new link to a root."""
        self._pulse = Pulse(TICK_S)

    def tick(self) -> None:
        """Check once."""
        engine = self._engine
        if engine.root is not None:
            self._feel_pulse(engine.root)
        now = time.monotonic()
        if now - self._ticked_at > _OWN_STOP_S:
            engine.moved += now - self._ticked_at
        self._ticked_at = now
        if engine.reads:
            engine.moved = now
        quiet = now - engine.moved
        if quiet < _SAY_AFTER_S or not engine.front.drained:
            return
        outstanding = engine.outstanding()
        if not outstanding:
            return
        state = engine.launch.state
        if state in (State.CLEARING, State.RETREATING) and quiet >= CLEAR_S:
            engine.handle(Event.OVERDUE, outstanding)
            return
        if self._told is not state:
            self._told = state
            engine.front.status(outstanding)
        if quiet >= (LOAD_S + engine.launch.ranks.size / 100 if state is State.LOADING else STEP_S):
            engine.handle(Event.OVERDUE, outstanding)

    def _feel_pulse(self, root: RootLink) -> None:
        engine = self._engine
        self._pulse.heard, root.heard = root.heard, False
        action = self._pulse.tick(root.delivered)
        if action is Action.ASK:
            engine.send({"op": "ping"})
        elif action is not Action.NONE:
            event = Event.SILENT if action is Action.TELL_SILENT else Event.BACK
            if event is Event.SILENT and engine.launch.state in (State.LOADING, State.CONFIRMING):
                engine.on_root_silent(self._pulse.seconds, lambda: self._pulse.state is Liveness.SILENT)
            else:
                engine.handle(event, engine.launch.ranks.node_name(0), self._pulse.seconds)


# Messages about what a launch without progress waits for.


#: The most node names in such a line.
_NAMED = 12


def outstanding(launch: Launch, request: Request) -> str:
    """What a launch waits for, with nodes; "" if the launch may wait for any time."""
    state, ranks = launch.state, launch.ranks
    if state is State.ALLOCATING:
        where = request.where
        return f"waiting for processors ({where.size or 'the list'})" if where.wait_s else "no CPA has answered yet"
    if state is State.LOADING:
        return f"no word yet that the processes are ready on {_few(ranks.nodes_not_ready())}"
    if state is State.CONFIRMING:
        return "no CPA has confirmed the start yet"
    over = state is State.RUNNING and (launch.killed or ranks.all_ended)
    if over or state in (State.CLEARING, State.RETREATING):
        left = [ranks.node_name(at) for at, _ in ranks.not_ended_by_node()]
        return f"no word yet from {_few(left or [ranks.node_name(0)])} that every process is gone"
    if state in (State.FREEING, State.RETURNING):
        return "no CPA has freed the processors yet"
    return ""


def _few(names: list[str]) -> str:
    """Folded node names; of many nodes, the first ones and how many more, to fit in one line."""
    rest = len(names) - _NAMED
    return fold_names(names[:_NAMED]) + (f" and {rest} more nodes" if rest > 0 else "")
