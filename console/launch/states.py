"""The launcher as a pure machine: events in, actions out; sockets, clocks and terminals are elsewhere.

``TRANSITIONS`` holds every transition. An event that a state does not list changes nothing: it crossed
something that was decided meanwhile (a READY that arrives while the tree is being killed).
"""

from __future__ import annotations

from agents.link.lean import Enum
from console.launch.ranks import Ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from console.launch.plan import Plan

    Action = tuple[Any, ...]  # a Do, then what it needs


# What a launch may be in, meet and do, and what is decided until its processes run. Pure; see machine.py.
#
# A load that fails because of a node is taken back, and new nodes are asked for, up to ``retries`` times.


SIGINT, SIGKILL, SIGTERM = 2, 9, 15

#: Seconds between a SIGTERM that nobody watches over (yod was terminated, -kill) and SIGKILL.
GRACE_S = 5.0
#: Seconds without any progress after which a step is given up; the clean-up of what never ran has less,
#: since a tree whose root's link ends clears itself.
STEP_S, CLEAR_S = 9.0, 2.0
#: The same for a load. The nodes name who stands still or is silent (agents/pct/launch/liveness.py, pulse.py), and the
#: root's own pulse is felt here; this is for a root that answers and never comes to an end.
LOAD_S = 45.0
#: Seconds for which another try waits for nodes: a PCT that was killed is back by then.
RETRY_WAIT_S = 1.0
#: How often a failed try's processors are given back, FINISH_S each (engine.py), before the launch fails with it: a
#: database that restarts meanwhile ends no launch.
RETURNS = 15
#: Seconds a cancelled request for processors is waited for, so that it can be given back at once.
CANCEL_S = 2.0


class State(Enum):
    """Where a launch stands."""

    ALLOCATING = "allocating"  # a CPA has been asked for processors
    CANCELLING = "cancelling"  # … and the user does not want them any more
    LOADING = "loading"  # the tree is forming, processes begin under hold
    CONFIRMING = "confirming"  # every process is held; the CPA is told *started*
    RUNNING = "running"  # GO was given
    CLEARING = "clearing"  # before GO: the tree is being killed
    RETREATING = "retreating"  # the same, to try again on other nodes
    RETURNING = "returning"  # what that try held is given back first
    FREEING = "freeing"  # every process is gone; the CPA is told *finish*
    HANDING = "handing"  # no CPA takes *finish*: the RCA is given it
    DRAINING = "draining"  # processors are free; our reader has not taken all output yet
    ENDED = "ended"


class Event(Enum):
    """What may happen to a launch."""

    ALLOCATED = "allocated"  # plan, launcher
    REFUSED = "refused"  # message, hint, exit status
    READY = "ready"  # [[rank, pid, node index], …]
    FAILED = "failed"  # node, message, hint, exit status, fault
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # message, hint, exit status
    EXITS = "exits"  # [[rank, wait status, seconds], …]
    LOST = "lost"  # [[node index, [rank, …]], …], reason
    SILENT = "silent"  # node, seconds for which it has not answered
    BACK = "back"  # node, seconds for which it had not
    FINISHED = "finished"  # [[node, pid], …] that could not be killed
    ROOT_ENDED = "root ended"  # reason
    FREED = "freed"
    NOT_FREED = "not freed"  # message
    HANDED = "handed"
    NOT_HANDED = "not handed"  # message
    DRAINED = "drained"
    INTERRUPT = "interrupt"  # ^C
    TERMINATE = "terminate"  # signal number: yod itself was told to end
    SIGNAL = "signal"  # number, ranks or None
    KILL = "kill"  # an observer wants the job killed
    GRACE_OVER = "grace over"
    OVERDUE = "overdue"  # what is outstanding
    ABORTED = "aborted"  # why an MPI program cannot go on, exit status or None: the ranks' counts
    LIMIT = "limit"  # why the job has to end now, exit status or None: the ranks' counts
    OUTPUT_BROKEN = "output broken"  # message or "" (the reader went), exit status


class Do(Enum):
    """What the engine is to do."""

    ALLOCATE = "allocate"  # again; the seconds it may wait
    LOAD = "load"
    CONFIRM = "confirm"
    GO = "go"
    SIGNAL = "signal"  # number, ranks or None
    KILL = "kill"
    DONE = "done"  # all-done to the tree
    CUT = "cut"  # let go of the tree's root
    SWEEP = "sweep"  # every node of the launch is told to end it, for the tree does not say that it has
    NODE_FAILED = "node failed"  # node, reason
    FREE = "free"  # processor error, reason
    HAND = "hand"  # processor error, reason
    UNREGISTER = "unregister"
    GRACE = "grace"  # seconds until GRACE_OVER
    SAY = "say"  # an error, always told
    STATUS = "status"  # a line for people who wait, not told with -quiet and -batch
    ANNOUNCE = "announce"  # ranks that exited badly while others run
    TELL = "tell"  # an event for the stream
    LEAVE = "leave"


class Forming:
    """A launch before GO; ``Launch`` goes on with it."""

    def __init__(self, retries: int = 0) -> None:
        self.state = State.ALLOCATING
        self.retries = retries
        self.tries = 0  # that have failed
        self.returns = 0  # how often a failed try's processors could not be given back
        self.ranks = Ranks()
        self.launcher = 0
        self.verdict: int | None = None  # an exit status that the ranks' do not decide
        self.interrupts = 0
        self.processor_error = False
        self.lost_nodes: list[str] = []  # that nobody could say are clean
        self.reason = ""
        self._failure = ""  # why the last try failed

    def _do(self, *action: Any) -> None:
        raise NotImplementedError

    def _free(self) -> State:
        raise NotImplementedError

    def _leave(self) -> State:
        raise NotImplementedError

    def _not_freed(self, message: str) -> State:
        raise NotImplementedError

    def _allocated(self, plan: Plan, launcher: int) -> State:
        self.launcher = launcher
        self.ranks.planned(plan)
        self._do(Do.LOAD)
        return State.LOADING

    def _refused(self, message: str, hint: str, exit_status: int) -> State:
        self.verdict = exit_status
        if self.tries:
            message, hint = f"the launch failed: {self._failure}; and then: {message}", "mesh status shows the nodes"
        self._do(Do.SAY, message, hint)
        return self._leave()

    def _cancel(self, number: int = SIGINT) -> State:
        self.interrupts += 1
        self.verdict = 128 + number
        self._do(Do.GRACE, CANCEL_S)
        return State.CANCELLING

    def _give_back(self, plan: Plan, launcher: int) -> State:
        self.launcher = launcher
        self.reason = "interrupted"
        return self._free()

    def _leave_silently(self, *_facts: Any) -> State:
        # Nothing is unregistered: the RCA sees us go and has everything of ours cleaned up.
        self._do(Do.LEAVE)
        return State.ENDED

    def _cancelled(self, *_facts: Any) -> State:
        return self._leave()

    def _ready(self, ranks: list[list[int]]) -> State:
        self.ranks.are_ready(ranks)
        if not self.ranks.all_ready:
            return State.LOADING
        self._do(Do.CONFIRM)
        return State.CONFIRMING

    def _failed(self, node: str, message: str, hint: str, exit_status: int, fault: str) -> State:
        self.verdict, self.reason = exit_status, message
        if fault == "node":
            return self._retreat() if self._tries_again([node], message, hint) else self._clear()
        self._do(Do.SAY, message, hint)
        return self._clear()

    def _tries_again(self, nodes: list[str], message: str, hint: str = "mesh status shows the nodes") -> bool:
        """Report the nodes because of which a try failed; whether there is another try, which is said here too."""
        self.processor_error, self.reason = True, message
        for name in nodes:
            self._do(Do.NODE_FAILED, name, message)
        if self.tries >= self.retries:
            tries = f" ({self.tries + 1} tries)" if self.tries else ""
            self._do(Do.SAY, f"the launch failed{tries}: {message}", hint)
            return False
        self.tries += 1
        self._failure = message
        told = f"{message}; trying other nodes ({self.tries} of {self.retries})"
        self._do(Do.STATUS, told)
        self._do(Do.TELL, {"event": "note", "node": nodes[0] if nodes else "", "text": told})
        return True

    def _retreat(self) -> State:
        self._do(Do.KILL)
        return State.RETREATING

    def _return(self) -> State:
        self._do(Do.FREE, True, self.reason)
        return State.RETURNING

    def _retreated(self, *_facts: Any) -> State:
        self._do(Do.CUT)
        return self._return()

    def _retreat_overdue(self, _outstanding: str) -> State:
        self._do(Do.SWEEP)
        return self._retreated()

    def _again(self) -> State:
        self.ranks, self.returns = Ranks(), 0
        self.verdict, self.reason, self.processor_error = None, "", False
        self._do(Do.ALLOCATE, RETRY_WAIT_S)
        return State.ALLOCATING

    def _not_returned(self, message: str) -> State:
        if self.returns < RETURNS:
            self.returns += 1
            return self._return()
        self._do(Do.SAY, f"the launch failed: {self.reason}; and its processors could not be given back: {message}", "")
        return self._not_freed(message)

    def _interrupted_returning(self, number: int = SIGINT) -> State:
        self.interrupts += 1
        self.verdict, self.reason = 128 + number, "interrupted before it ran"
        return State.FREEING

    def _output_broken_returning(self, message: str, exit_status: int) -> State:
        self.verdict = exit_status
        if message:
            self._do(Do.SAY, message, "")
        return State.FREEING

    def _unconfirmed(self, message: str, hint: str, exit_status: int) -> State:
        self.verdict, self.reason = exit_status, message
        self._do(Do.SAY, f"the processes were not started: {message}", hint)
        return self._clear()

    def _lost_loading(self, nodes: list[Any], reason: str) -> State:
        self.verdict = 125
        # a subtree went with its first node; those behind it come back by themselves
        names = [self.ranks.node_name(at) for at, _ranks in nodes[:1]]
        return self._retreat() if self._tries_again(names, reason) else self._clear()

    def _root_gone_loading(self, reason: str) -> State:
        self.verdict = 125
        root = self.ranks.node_name(0)
        return self._return() if self._tries_again([root], f"{root} (its PCT): {reason}") else self._free()

    def _overdue_loading(self, _outstanding: str) -> State:
        # the root would have named, before that, any node below it that keeps it waiting: it is the root itself
        return self._give_up_root(f"{self.ranks.node_name(0)} does not answer to a load")

    def _give_up_root(self, reason: str) -> State:
        self.verdict = 125
        again = self._tries_again([self.ranks.node_name(0)], reason)
        self._do(Do.SWEEP)
        self._do(Do.CUT)
        return self._return() if again else self._free()

    def _root_silent_loading(self, node: str, seconds: float) -> State:
        return self._give_up_root(f"{node}: silent for {seconds:.0f} s")

    def _clear(self) -> State:
        self._do(Do.KILL)
        return State.CLEARING

    def _interrupted_loading(self, number: int = SIGINT) -> State:
        self.interrupts += 1
        self.verdict, self.reason = 128 + number, "interrupted before it ran"
        return self._clear()

    def _output_broken_loading(self, message: str, exit_status: int) -> State:
        self.verdict, self.reason = exit_status, message or "the reader of its output went"
        if message:
            self._do(Do.SAY, message, "")
        return self._clear()

    def _cleared(self, *_facts: Any) -> State:
        self._do(Do.CUT)
        return self._free()

    def _clear_overdue(self, outstanding: str) -> State:
        self.processor_error = True
        self._do(Do.STATUS, f"the clean-up was not confirmed: {outstanding}")
        self._do(Do.SWEEP)
        return self._cleared()


class Launch(Forming):
    """One launch. ``handle(event, …)`` returns the actions; ``state`` and ``exit_status`` are for reading."""

    def __init__(self, *, bad_exit_ends: bool, retries: int = 0) -> None:
        super().__init__(retries)
        self.bad_exit_ends = bad_exit_ends
        self.ended_by = 0  # the signal that made yod end the job
        self.terminated = False  # a SIGTERM of ours is out, its grace runs
        self.killed = False
        self.drained = False
        self._actions: list[Action] = []

    def handle(self, event: Event, *facts: Any) -> list[Action]:
        """The actions that ``event`` asks for."""
        entry = TRANSITIONS.get((self.state, event))
        if entry is None:
            return []
        self._actions = []
        state = entry[0](self, *facts)
        assert state in entry[1], f"{self.state} + {event} may not become {state}"
        self.state = state
        return self._actions

    @property
    def exit_status(self) -> int:
        """What yod ends with, as far as it is known."""
        if self.verdict is not None:
            return self.verdict
        status = self.ranks.exit_status
        if not status and self.ended_by and self.ranks.any_by_yod:
            return 128 + self.ended_by
        return status

    def _do(self, *action: Any) -> None:
        self._actions.append(action)

    # while they run

    def _confirmed(self) -> State:
        self._do(Do.GO)
        return State.RUNNING

    def _exits(self, exits: list[list[Any]]) -> State:
        bad = []
        for rank, status, seconds in exits:
            end = self.ranks.ended(rank, status, seconds, killed=self.killed or self.terminated)
            if end is None:
                continue
            if end.bad and not end.by_yod:
                bad.append(rank)
            self._do(Do.TELL, end.as_event(rank, self.ranks.node_of(rank)))
        if bad:
            if self.announces_bad_exits:
                self._do(Do.ANNOUNCE, bad)
            self._after_bad_exit()
        return State.RUNNING

    @property
    def announces_bad_exits(self) -> bool:
        """Whether a rank that exits badly is news: others run on, and yod is not ending them."""
        return not (self.bad_exit_ends or self.terminated or self.killed or self.ranks.all_ended)

    def _after_bad_exit(self) -> None:
        if self.bad_exit_ends and not self.ranks.all_ended and not (self.terminated or self.killed):
            self._do(Do.STATUS, "a rank ended badly: ending the others (SIGTERM)")
            self._terminate()

    def _terminate(self) -> None:
        self.terminated = True
        self._do(Do.SIGNAL, SIGTERM, None)
        self._do(Do.GRACE, GRACE_S)

    def _kill(self) -> None:
        self.killed = True
        self._do(Do.KILL)

    def _lost(self, nodes: list[Any], reason: str) -> State:
        self._lose(nodes, reason)
        self._do(Do.SAY, self.ranks.lost_line(nodes, reason), self._still_running())
        self._after_bad_exit()
        return State.RUNNING

    def _still_running(self) -> str:
        if not self.announces_bad_exits:
            return ""
        count, size = self.ranks.running, self.ranks.size
        verb = "runs" if count == 1 else "run"
        return f"{count} of {size} ranks still {verb}: yod -signal TERM {self.launcher} ends the launch"

    def _lose(self, nodes: list[Any], reason: str) -> None:
        self.processor_error, self.reason = True, reason
        for _, ranks in nodes:
            self.ranks.lost(ranks)
        names = [self.ranks.node_name(at) for at, _ in nodes]
        self.lost_nodes += names
        which = sorted(rank for _, ranks in nodes for rank in ranks)
        self._do(Do.TELL, {"event": "lost", "nodes": names, "ranks": which, "reason": reason})

    def _silent(self, node: str, seconds: float) -> State:
        # Slow, or stopped, is not dead: whoever finds out that it is tells us so.
        self._do(Do.SAY, f"{node} has been silent for {seconds:.0f} s (stopped, or overloaded); waiting for it", "")
        self._do(Do.TELL, {"event": "silent", "node": node, "seconds": seconds})
        return State.RUNNING

    def _back(self, node: str, seconds: float) -> State:
        self._do(Do.SAY, f"{node} answers again, after {seconds:.0f} s", "")
        self._do(Do.TELL, {"event": "back", "node": node, "seconds": seconds})
        return State.RUNNING

    def _root_gone(self, reason: str) -> State:
        # The rest of the tree ends itself: its links upwards are broken.
        left = self.ranks.not_ended_by_node()
        self._lose(left, f"{self.ranks.node_name(0)} (the launch's root): {reason}")
        self._do(Do.SAY, self.ranks.lost_line(left, self.reason), "")
        self.lost_nodes = self.ranks.node_names  # it would have told that the others are clean
        return self._free()

    def _interrupt(self) -> State:
        self.interrupts += 1
        self.ended_by = self.ended_by or SIGINT
        if self.interrupts == 1 and not self.killed:
            self.terminated = True
            self._do(Do.SIGNAL, SIGTERM, None)
            self._do(Do.STATUS, "interrupted: SIGTERM went to every rank; ^C again kills them")
        elif self.interrupts <= 2:
            self._kill()
            self._do(Do.STATUS, "interrupted again: killing every rank; ^C once more leaves at once")
        else:
            self.verdict = 128 + SIGINT
            self._do(Do.STATUS, "leaving; the RCA cleans up behind us")
            return self._leave_silently()
        return State.RUNNING

    def _terminated_by(self, number: int) -> State:
        self.ended_by = self.ended_by or number
        if self.terminated or self.killed:
            self._kill()
        else:
            self._terminate()
        return State.RUNNING

    def _grace_over(self) -> State:
        if not self.killed:
            self._kill()
        return State.RUNNING

    def _forward(self, number: int, ranks: list[int] | None) -> State:
        if number in (SIGTERM, SIGKILL) and ranks is None:
            self.ended_by = self.ended_by or number
            self.terminated = True
        self._do(Do.SIGNAL, number, ranks)
        self._do(Do.TELL, {"event": "signalled", "signal": number, "ranks": ranks})
        return State.RUNNING

    def _killed_by_observer(self) -> State:
        self.ended_by = self.ended_by or SIGKILL
        self._kill()
        self._do(Do.TELL, {"event": "signalled", "signal": SIGKILL, "ranks": None})
        return State.RUNNING

    def _limit(self, message: str, exit_status: int | None) -> State:
        if self.verdict is None:
            self.verdict = exit_status
        self._do(Do.SAY, message, "")
        if not self.killed:
            self._terminate()
        return State.RUNNING

    def _aborted(self, message: str, exit_status: int | None) -> State:
        # Ranks that we end ourselves die between MPI_Init and MPI_Finalize too.
        if self.terminated or self.killed:
            return State.RUNNING
        if exit_status is None and not self.ranks.exit_status:
            exit_status = 1  # it ended with 0, where it should not have ended
        return self._limit(message, exit_status)

    def _output_broken(self, message: str, exit_status: int) -> State:
        if self.verdict is None:
            self.verdict = exit_status
            if message:
                self._do(Do.SAY, message, "")
        if not (self.terminated or self.killed):
            self._terminate()
        return State.RUNNING

    def _finished(self, unclean: list[list[Any]]) -> State:
        if unclean:
            left = ", ".join(f"{node} (process {pid})" for node, pid in unclean)
            self.processor_error, self.reason = True, f"not cleaned: {left}"
            self._do(Do.SAY, f"processes of this launch could not be killed: {left}", "")
        self._do(Do.DONE)
        return self._free()

    def _failed_late(self, node: str, message: str, hint: str, exit_status: int, fault: str) -> State:
        # It was sent before the root received GO, so no process of this launch has run or will: FINISHED follows.
        if self.verdict is None:
            self.verdict = exit_status
        self.reason = message
        if fault == "node":
            self.processor_error = True
            self._do(Do.NODE_FAILED, node, message)
        self._do(Do.SAY, f"the launch failed: {message}", hint)
        self._kill()
        return State.RUNNING

    def _overdue(self, outstanding: str) -> State:
        self._lose(self.ranks.not_ended_by_node(), outstanding)
        self._do(Do.SAY, f"given up: {outstanding}", "mesh status shows the nodes")
        self._do(Do.SWEEP)
        self._do(Do.CUT)
        return self._free()

    # after they ran

    def _free(self) -> State:
        self._do(Do.FREE, self.processor_error, self.reason)
        return State.FREEING

    def _freed(self) -> State:
        return self._end_or_drain()

    def _end_or_drain(self) -> State:
        self._do(Do.UNREGISTER)
        if not self.drained:
            return State.DRAINING
        self._do(Do.LEAVE)
        return State.ENDED

    def _not_freed(self, message: str) -> State:
        self._do(Do.HAND, self.processor_error, self.reason)
        return State.HANDING

    def _not_freed_interrupted(self, *_facts: Any) -> State:
        self.interrupts += 1
        return self._not_freed("")

    def _not_handed(self, message: str) -> State:
        self._do(
            Do.SAY,
            f"neither a CPA nor the RCA could be told that launcher {self.launcher} has ended ({message})",
            "its processors are freed when the mesh is back: mesh up",
        )
        return self._end_or_drain()

    def _drained_early(self) -> State:
        self.drained = True
        return self.state

    def _drained(self) -> State:
        self.drained = True
        self._do(Do.LEAVE)
        return State.ENDED

    def _break_late(self, message: str, exit_status: int) -> State:
        self.verdict = exit_status
        if message:
            self._do(Do.SAY, message, "")
        return self.state

    def _leave(self) -> State:
        self._do(Do.UNREGISTER)
        self._do(Do.LEAVE)
        return State.ENDED


S, E, L = State, Event, Launch
_QUIT = (S.CANCELLING,)
_Table = dict[tuple[State, Event], "tuple[Callable[..., State], tuple[State, ...]]"]

#: (state, event): (what is decided, the states it may lead to).
TRANSITIONS: _Table = {
    (S.ALLOCATING, E.ALLOCATED): (L._allocated, (S.LOADING,)),
    (S.ALLOCATING, E.REFUSED): (L._refused, (S.ENDED,)),
    (S.ALLOCATING, E.INTERRUPT): (L._cancel, (S.CANCELLING,)),
    (S.ALLOCATING, E.TERMINATE): (L._cancel, (S.CANCELLING,)),
    (S.CANCELLING, E.ALLOCATED): (L._give_back, (S.FREEING,)),
    (S.CANCELLING, E.REFUSED): (L._cancelled, (S.ENDED,)),
    (S.CANCELLING, E.GRACE_OVER): (L._leave_silently, (S.ENDED,)),
    (S.CANCELLING, E.INTERRUPT): (L._leave_silently, (S.ENDED,)),
    (S.CANCELLING, E.TERMINATE): (L._leave_silently, (S.ENDED,)),
    (S.LOADING, E.READY): (L._ready, (S.LOADING, S.CONFIRMING)),
    (S.LOADING, E.FAILED): (L._failed, (S.CLEARING, S.RETREATING)),
    (S.LOADING, E.LOST): (L._lost_loading, (S.CLEARING, S.RETREATING)),
    (S.LOADING, E.ROOT_ENDED): (L._root_gone_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.OVERDUE): (L._overdue_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.SILENT): (L._root_silent_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.INTERRUPT): (L._interrupted_loading, (S.CLEARING,)),
    (S.LOADING, E.TERMINATE): (L._interrupted_loading, (S.CLEARING,)),
    (S.LOADING, E.OUTPUT_BROKEN): (L._output_broken_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.CONFIRMED): (L._confirmed, (S.RUNNING,)),
    (S.CONFIRMING, E.UNCONFIRMED): (L._unconfirmed, (S.CLEARING,)),
    (S.CONFIRMING, E.FAILED): (L._failed, (S.CLEARING, S.RETREATING)),
    (S.CONFIRMING, E.LOST): (L._lost_loading, (S.CLEARING, S.RETREATING)),
    (S.CONFIRMING, E.ROOT_ENDED): (L._root_gone_loading, (S.FREEING, S.RETURNING)),
    (S.CONFIRMING, E.SILENT): (L._root_silent_loading, (S.FREEING, S.RETURNING)),
    (S.CONFIRMING, E.INTERRUPT): (L._interrupted_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.TERMINATE): (L._interrupted_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.OUTPUT_BROKEN): (L._output_broken_loading, (S.CLEARING,)),
    (S.CLEARING, E.FINISHED): (L._cleared, (S.FREEING,)),
    (S.CLEARING, E.ROOT_ENDED): (L._cleared, (S.FREEING,)),
    (S.CLEARING, E.OVERDUE): (L._clear_overdue, (S.FREEING,)),
    (S.CLEARING, E.INTERRUPT): (L._cleared, (S.FREEING,)),
    (S.RETREATING, E.FINISHED): (L._retreated, (S.RETURNING,)),
    (S.RETREATING, E.ROOT_ENDED): (L._retreated, (S.RETURNING,)),
    (S.RETREATING, E.OVERDUE): (L._retreat_overdue, (S.RETURNING,)),
    (S.RETREATING, E.INTERRUPT): (L._interrupted_loading, (S.CLEARING,)),
    (S.RETREATING, E.TERMINATE): (L._interrupted_loading, (S.CLEARING,)),
    (S.RETREATING, E.OUTPUT_BROKEN): (L._output_broken_loading, (S.CLEARING,)),
    (S.RETURNING, E.FREED): (L._again, (S.ALLOCATING,)),
    (S.RETURNING, E.NOT_FREED): (L._not_returned, (S.RETURNING, S.HANDING)),
    (S.RETURNING, E.INTERRUPT): (L._interrupted_returning, (S.FREEING,)),
    (S.RETURNING, E.TERMINATE): (L._interrupted_returning, (S.FREEING,)),
    (S.RETURNING, E.OUTPUT_BROKEN): (L._output_broken_returning, (S.FREEING,)),
    (S.RUNNING, E.EXITS): (L._exits, (S.RUNNING,)),
    (S.RUNNING, E.FAILED): (L._failed_late, (S.RUNNING,)),
    (S.RUNNING, E.LOST): (L._lost, (S.RUNNING,)),
    (S.RUNNING, E.SILENT): (L._silent, (S.RUNNING,)),
    (S.RUNNING, E.BACK): (L._back, (S.RUNNING,)),
    (S.RUNNING, E.FINISHED): (L._finished, (S.FREEING,)),
    (S.RUNNING, E.ROOT_ENDED): (L._root_gone, (S.FREEING,)),
    (S.RUNNING, E.INTERRUPT): (L._interrupt, (S.RUNNING, S.ENDED)),
    (S.RUNNING, E.TERMINATE): (L._terminated_by, (S.RUNNING,)),
    (S.RUNNING, E.GRACE_OVER): (L._grace_over, (S.RUNNING,)),
    (S.RUNNING, E.SIGNAL): (L._forward, (S.RUNNING,)),
    (S.RUNNING, E.KILL): (L._killed_by_observer, (S.RUNNING,)),
    (S.RUNNING, E.LIMIT): (L._limit, (S.RUNNING,)),
    (S.RUNNING, E.ABORTED): (L._aborted, (S.RUNNING,)),
    (S.RUNNING, E.OUTPUT_BROKEN): (L._output_broken, (S.RUNNING,)),
    (S.RUNNING, E.OVERDUE): (L._overdue, (S.FREEING,)),
    (S.FREEING, E.FREED): (L._freed, (S.DRAINING, S.ENDED)),
    (S.FREEING, E.NOT_FREED): (L._not_freed, (S.HANDING,)),
    (S.FREEING, E.INTERRUPT): (L._not_freed_interrupted, (S.HANDING,)),
    (S.FREEING, E.DRAINED): (L._drained_early, (S.FREEING,)),
    (S.FREEING, E.OUTPUT_BROKEN): (L._break_late, (S.FREEING,)),
    (S.HANDING, E.HANDED): (L._freed, (S.DRAINING, S.ENDED)),
    (S.HANDING, E.NOT_HANDED): (L._not_handed, (S.DRAINING, S.ENDED)),
    (S.HANDING, E.INTERRUPT): (L._leave_silently, (S.ENDED,)),
    (S.HANDING, E.DRAINED): (L._drained_early, (S.HANDING,)),
    (S.HANDING, E.OUTPUT_BROKEN): (L._break_late, (S.HANDING,)),
    (S.DRAINING, E.DRAINED): (L._drained, (S.ENDED,)),
    (S.DRAINING, E.INTERRUPT): (L._leave_silently, (S.ENDED,)),
    (S.DRAINING, E.TERMINATE): (L._leave_silently, (S.ENDED,)),
    (S.DRAINING, E.OUTPUT_BROKEN): (L._break_late, (S.DRAINING,)),
}
