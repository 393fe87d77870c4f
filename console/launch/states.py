"""The launcher's state machine: events in, actions out; no sockets, clocks or terminals.

``TRANSITIONS`` has every transition. An event that a state does not list changes nothing: it was sent before its sender
knew of a decision (a READY that arrives while the tree is being killed, for example).
"""

from __future__ import annotations

from agents.link.lean import Enum
from agents.wire.launch_events import NodeSilent
from console.launch.ranks import Ranks
from redmesh.text import size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from console.launch.plan import Plan
    from console.launch.ranks import OutOfMemory

    Action = tuple[Any, ...]  # a Do, then its arguments


SIGINT, SIGKILL, SIGTERM = 2, 9, 15

#: Seconds from an unattended SIGTERM (yod was terminated, -kill) to SIGKILL.
GRACE_S = 5.0
#: The same after a signal to yod in a job of a batch system, which usually sent it and kills the job 30 s later itself.
JOB_GRACE_S = 30.0
#: Seconds without progress after which a step is given up: a step in general, and the clean-up of a launch that never
#: ran, which may be short because a tree cleans up by itself when yod's link to its root closes.
STEP_S, CLEAR_S = 9.0, 2.0
#: The same for a load. Nodes report stalled or silent nodes (agents/pct/launch/liveness.py), and yod watches the root
#: itself; this limit is for a root that answers and never finishes.
LOAD_S = 45.0
#: Seconds for which a retry waits for nodes: a killed PCT is back by then.
RETRY_WAIT_S = 1.0
#: How often yod tries to free the processors of a failed attempt (for FINISH_S each, allocation.py) before the launch
#: fails: enough for a restart of the database.
RETURNS = 15
#: Seconds to wait for the answer to a cancelled request, so that its processors can be freed at once.
CANCEL_S = 2.0
_LOOK = "mesh status shows the nodes"


class State(Enum):
    """The state of a launch."""

    ALLOCATING = "allocating"  # a CPA was asked for processors
    CANCELLING = "cancelling"  # … and the user has cancelled
    LOADING = "loading"  # the tree is forming, processes are started under hold
    CONFIRMING = "confirming"  # every process is held; the CPA is told *started*
    RUNNING = "running"  # GO was sent
    CLEARING = "clearing"  # before GO: the tree is being killed
    RETREATING = "retreating"  # the same, for a retry on other nodes
    RETURNING = "returning"  # the failed attempt's processors are freed first
    FREEING = "freeing"  # every process has ended; the CPA is told *finish*
    HANDING = "handing"  # no CPA accepts *finish*: the RCA gets it
    DRAINING = "draining"  # processors are free; not all output is written yet
    ENDED = "ended"


class Event(Enum):
    """An event of a launch."""

    ALLOCATED = "allocated"  # plan, launcher
    REFUSED = "refused"  # message, hint, exit status
    READY = "ready"  # [[rank, pid, node index], …]
    FAILED = "failed"  # node, message, hint, exit status, fault; whether it would fail there again (default: no)
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # message, hint, exit status
    EXITS = "exits"  # [[rank, wait status, seconds], …]
    OUT_OF_MEMORY = "out of memory"  # node, rank, OutOfMemory: the rank's exit follows
    LOST = "lost"  # [[node index, [rank, …]], …], reason
    SILENT = "silent"  # node, seconds of silence
    BACK = "back"  # node, seconds of its silence
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
    KILL = "kill"  # an observer requested that the job be killed
    GRACE_OVER = "grace over"
    OVERDUE = "overdue"  # what is outstanding
    ABORTED = "aborted"  # why an MPI program cannot continue; exit status, or None for that of the ranks
    LIMIT = "limit"  # why the job must end now; exit status, or None for that of the ranks
    OUTPUT_BROKEN = "output broken"  # message or "" (the reader has exited), exit status, hint (default: "")


class Do(Enum):
    """An action of the engine."""

    ALLOCATE = "allocate"  # again; the longest wait in seconds
    LOAD = "load"
    CONFIRM = "confirm"
    GO = "go"
    SIGNAL = "signal"  # number, ranks or None
    KILL = "kill"
    DONE = "done"  # send all-done to the tree
    CUT = "cut"  # close the link to the tree's root
    SWEEP = "sweep"  # tell every node's PCT to end the launch, because the tree does not confirm that it ended
    NODE_FAILED = "node failed"  # node, reason
    FREE = "free"  # processor error, reason
    HAND = "hand"  # processor error, reason
    UNREGISTER = "unregister"
    GRACE = "grace"  # seconds until GRACE_OVER
    SAY = "say"  # an error, always printed
    STATUS = "status"  # a line for waiting users, not printed with -quiet and -batch
    ANNOUNCE = "announce"  # ranks that failed while others run
    TELL = "tell"  # an event for the stream
    LEAVE = "leave"


class Tries:
    """The failed loads of a launch, and whether another attempt is left."""

    __slots__ = ("avoided", "failed", "failure", "limit", "returns")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.failed = 0
        #: Nodes where processes of this launch stood still, or that cannot start workers of its job. They remain in
        #: service.
        self.avoided: list[str] = []
        self.failure = ""  # the reason of the last failure
        self.returns = 0  # how often the processors of a failed attempt could not be freed

    def another(self, failure: str) -> bool:
        """Record a failure; returns whether another attempt is left."""
        if self.failed >= self.limit:
            return False
        self.failed += 1
        self.failure = failure
        return True


class Outcome:
    """The report to a CPA at the end, and yod's exit status if the ranks do not determine it."""

    __slots__ = ("exit_status", "lost_nodes", "processor_error", "reason")

    def __init__(self) -> None:
        self.exit_status: int | None = None
        self.reason = ""
        self.processor_error = False
        self.lost_nodes: list[str] = []  # nodes that did not confirm that their processes ended

    def decide(self, exit_status: int | None) -> bool:
        """Set the exit status unless it was set before; returns whether it was set now."""
        if self.exit_status is not None:
            return False
        self.exit_status = exit_status
        return True

    def blame_nodes(self, reason: str) -> None:
        """Record that nodes caused the failure."""
        self.processor_error, self.reason = True, reason


class Launch:
    """The state of a launch. ``handle(event, …)`` changes it and returns the actions to carry out.

    The methods named in ``TRANSITIONS`` handle the events; each returns the next state.
    """

    def __init__(
        self, *, bad_exit_ends: bool, retries: int = 0, for_job: bool = False, grace_s: float = GRACE_S
    ) -> None:
        """``for_job``: the ranks are workers of a job, whose owner ends a launch that it no longer needs.

        ``grace_s``: seconds between SIGTERM and SIGKILL for the ranks, after a signal to yod.
        """
        self.state = State.ALLOCATING
        self._for_job, self._grace_s = for_job, grace_s
        self.bad_exit_ends = bad_exit_ends
        self.launcher = 0
        self.ranks = Ranks()
        self.tries = Tries(retries)
        self.outcome = Outcome()
        self.interrupts = 0
        self.ended_by = 0  # the signal because of which yod ended the job
        self.terminated = False  # yod has sent SIGTERM to the ranks, and the grace period runs
        self.killed = False
        self.drained = False
        self._actions: list[Action] = []

    def handle(self, event: Event, *facts: Any) -> list[Action]:
        """Handle ``event``; returns the actions."""
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
        """yod's exit status, as far as it is known."""
        if self.outcome.exit_status is not None:
            return self.outcome.exit_status
        status = self.ranks.exit_status
        if not status and self.ended_by and self.ranks.any_by_yod:
            return 128 + self.ended_by
        return status

    def _do(self, *action: Any) -> None:
        self._actions.append(action)

    # Before GO

    def allocated(self, plan: Plan, launcher: int) -> State:
        self.launcher = launcher
        self.ranks.planned(plan)
        self._do(Do.LOAD)
        return State.LOADING

    def refused(self, message: str, hint: str, exit_status: int) -> State:
        self.outcome.exit_status = exit_status
        if self.tries.failed:
            message, hint = (
                f"the launch failed: {self.tries.failure}; and then: {message}",
                "mesh status shows the nodes",
            )
        self._do(Do.SAY, message, hint)
        return self._leave()

    def cancel(self, number: int = SIGINT) -> State:
        self._interrupted(number, "interrupted")
        self._do(Do.GRACE, CANCEL_S)
        return State.CANCELLING

    def _interrupted(self, number: int, reason: str) -> None:
        """A signal ends the launch before it ran. That is no failure where the owner of a job sends SIGTERM."""
        self.interrupts += 1
        needed = not (self._for_job and number == SIGTERM)
        self.outcome.exit_status, self.outcome.reason = (128 + number, reason) if needed else (0, "")

    def give_back(self, plan: Plan, launcher: int) -> State:
        self.launcher = launcher
        return self._free()

    def leave_silently(self, *_facts: Any) -> State:
        # Do not unregister: the RCA notices yod's exit and has everything cleaned up.
        self._do(Do.LEAVE)
        return State.ENDED

    def cancelled(self, *_facts: Any) -> State:
        return self._leave()

    def ready(self, ranks: list[list[int]]) -> State:
        self.ranks.are_ready(ranks)
        if not self.ranks.all_ready:
            return State.LOADING
        self._do(Do.CONFIRM)
        return State.CONFIRMING

    def failed(self, node: str, message: str, hint: str, exit_status: int, fault: str, lasting: bool = False) -> State:
        self.outcome.exit_status, self.outcome.reason = exit_status, message
        if fault == "node":
            return self._retreat() if self._tries_again([node], message, hint) else self._clear()
        if fault == "stalled":
            # The CPA frees that node's processors when its PCT has confirmed that nothing of the launch is left.
            self.outcome.lost_nodes = [node]
            self.tries.avoided.append(node)
            return self._retreat() if self._tries_elsewhere([node], message, hint) else self._clear()
        if lasting and self._for_job and node not in self.tries.avoided:
            # The job counts such nodes, and decides when there have been enough (agents/job/grants/failed_starts.py).
            self.tries.avoided.append(node)
            return self._retreat()
        self._do(Do.SAY, message, hint)
        return self._clear()

    def _tries_again(self, nodes: list[str], message: str, hint: str = _LOOK) -> bool:
        """Report the nodes that made an attempt fail; returns whether another attempt follows, and announces it."""
        self.outcome.blame_nodes(message)
        for name in nodes:
            self._do(Do.NODE_FAILED, name, message)
        return self._tries_elsewhere(nodes, message, hint)

    def _tries_elsewhere(self, nodes: list[str], message: str, hint: str) -> bool:
        tries = self.tries
        if not tries.another(message):
            many = f" ({tries.failed + 1} tries)" if tries.failed else ""
            self._do(Do.SAY, f"the launch failed{many}: {message}", hint)
            return False
        told = f"{message}; trying other nodes ({tries.failed} of {tries.limit})"
        self._do(Do.STATUS, told)
        self._do(Do.TELL, {"event": "note", "node": nodes[0] if nodes else "", "text": told})
        return True

    def _retreat(self) -> State:
        self._do(Do.KILL)
        return State.RETREATING

    def _return(self) -> State:
        self._do(Do.FREE, True, self.outcome.reason)
        return State.RETURNING

    def retreated(self, *_facts: Any) -> State:
        self._do(Do.CUT)
        return self._return()

    def retreat_overdue(self, _outstanding: str) -> State:
        self._do(Do.SWEEP)
        return self.retreated()

    def again(self) -> State:
        self.ranks, self.tries.returns = Ranks(), 0
        self.outcome = Outcome()
        self._do(Do.ALLOCATE, RETRY_WAIT_S)
        return State.ALLOCATING

    def not_returned(self, message: str) -> State:
        if self.tries.returns < RETURNS:
            self.tries.returns += 1
            return self._return()
        self._do(
            Do.SAY,
            f"the launch failed: {self.outcome.reason}; and its processors could not be given back: {message}",
            "",
        )
        return self.not_freed(message)

    def interrupted_returning(self, number: int = SIGINT) -> State:
        self._interrupted(number, "interrupted before it ran")
        return State.FREEING

    def output_broken_returning(self, message: str, exit_status: int, hint: str = "") -> State:
        self.outcome.exit_status = exit_status
        if message:
            self._do(Do.SAY, message, hint)
        return State.FREEING

    def unconfirmed(self, message: str, hint: str, exit_status: int) -> State:
        self.outcome.exit_status, self.outcome.reason = exit_status, message
        self._do(Do.SAY, f"the processes were not started: {message}", hint)
        return self._clear()

    def lost_loading(self, nodes: list[Any], reason: str) -> State:
        self.outcome.exit_status = 125
        # Report only the first node of a lost subtree: the others end the launch by themselves.
        names = [self.ranks.node_name(at) for at, _ranks in nodes[:1]]
        return self._retreat() if self._tries_again(names, reason) else self._clear()

    def root_gone_loading(self, reason: str) -> State:
        self.outcome.exit_status = 125
        root = self.ranks.node_name(0)
        return self._return() if self._tries_again([root], f"{root} (its PCT): {reason}") else self._free()

    def overdue_loading(self, _outstanding: str) -> State:
        # The root would have reported any lower node that keeps it waiting, so the root itself is at fault.
        return self._give_up_root(f"{self.ranks.node_name(0)} does not answer to a load")

    def _give_up_root(self, reason: str) -> State:
        self.outcome.exit_status = 125
        again = self._tries_again([self.ranks.node_name(0)], reason)
        self._do(Do.SWEEP)
        self._do(Do.CUT)
        return self._return() if again else self._free()

    def root_silent_loading(self, node: str, seconds: float) -> State:
        return self._give_up_root(f"{node}: silent for {seconds:.0f} s")

    def _clear(self) -> State:
        self._do(Do.KILL)
        return State.CLEARING

    def interrupted_loading(self, number: int = SIGINT) -> State:
        self._interrupted(number, "interrupted before it ran")
        return self._clear()

    def output_broken_loading(self, message: str, exit_status: int, hint: str = "") -> State:
        self.outcome.exit_status, self.outcome.reason = exit_status, message or "the reader of its output went"
        if message:
            self._do(Do.SAY, message, hint)
        return self._clear()

    def cleared(self, *_facts: Any) -> State:
        self._do(Do.CUT)
        return self._free()

    def clear_overdue(self, outstanding: str) -> State:
        self.outcome.processor_error = True
        self._do(Do.STATUS, f"the clean-up was not confirmed: {outstanding}")
        self._do(Do.SWEEP)
        return self.cleared()

    # Running

    def confirmed(self) -> State:
        self._do(Do.GO)
        return State.RUNNING

    def exits(self, exits: list[list[Any]]) -> State:
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

    def ran_out_of_memory(self, node: str, rank: int, memory: OutOfMemory) -> State:
        self.ranks.ran_out(rank, memory)
        self.outcome.reason = self.outcome.reason or _out_of_memory(rank, node, memory)
        return State.RUNNING

    @property
    def announces_bad_exits(self) -> bool:
        """True if a failed rank must be announced: others still run, and yod is not ending them."""
        return not (self.bad_exit_ends or self.terminated or self.killed or self.ranks.all_ended)

    def _after_bad_exit(self) -> None:
        if self.bad_exit_ends and not self.ranks.all_ended and not (self.terminated or self.killed):
            self._do(Do.STATUS, "a rank ended badly: ending the others (SIGTERM)")
            self._terminate()

    def _terminate(self, grace_s: float = GRACE_S) -> None:
        self.terminated = True
        self._do(Do.SIGNAL, SIGTERM, None)
        self._do(Do.GRACE, grace_s)

    def _kill(self) -> None:
        self.killed = True
        self._do(Do.KILL)

    def nodes_lost(self, nodes: list[Any], reason: str) -> State:
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
        self.outcome.blame_nodes(reason)
        for _, ranks in nodes:
            self.ranks.lost(ranks)
        names = [self.ranks.node_name(at) for at, _ in nodes]
        self.outcome.lost_nodes += names
        which = sorted(rank for _, ranks in nodes for rank in ranks)
        self._do(Do.TELL, {"event": "lost", "nodes": names, "ranks": which, "reason": reason})

    def node_silent(self, node: str, seconds: float) -> State:
        # The node may be slow or stopped, so wait for it: a node that exits is reported as lost.
        self._do(Do.SAY, f"{node} has been silent for {seconds:.0f} s (stopped, or overloaded); waiting for it", "")
        self._do(Do.TELL, NodeSilent(node, seconds, back=False).as_event())
        return State.RUNNING

    def node_back(self, node: str, seconds: float) -> State:
        self._do(Do.SAY, f"{node} answers again, after {seconds:.0f} s", "")
        self._do(Do.TELL, NodeSilent(node, seconds, back=True).as_event())
        return State.RUNNING

    def root_gone(self, reason: str) -> State:
        # The rest of the tree ends by itself, because the link to its root is closed.
        left = self.ranks.not_ended_by_node()
        self._lose(left, f"{self.ranks.node_name(0)} (the launch's root): {reason}")
        self._do(Do.SAY, self.ranks.lost_line(left, self.outcome.reason), "")
        self.outcome.lost_nodes = self.ranks.node_names  # only the root could have confirmed that other nodes are clean
        return self._free()

    def interrupt(self) -> State:
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
            self.outcome.exit_status = 128 + SIGINT
            self._do(Do.STATUS, "leaving; the RCA cleans up behind us")
            return self.leave_silently()
        return State.RUNNING

    def terminated_by(self, number: int) -> State:
        self.ended_by = self.ended_by or number
        if self.terminated or self.killed:
            self._kill()
        else:
            self._terminate(self._grace_s)
        return State.RUNNING

    def grace_over(self) -> State:
        if not self.killed:
            self._kill()
        return State.RUNNING

    def forward(self, number: int, ranks: list[int] | None) -> State:
        if number in (SIGTERM, SIGKILL) and ranks is None:
            self.ended_by = self.ended_by or number
            self.terminated = True
        self._do(Do.SIGNAL, number, ranks)
        self._do(Do.TELL, {"event": "signalled", "signal": number, "ranks": ranks})
        return State.RUNNING

    def killed_by_observer(self) -> State:
        self.ended_by = self.ended_by or SIGKILL
        self._kill()
        self._do(Do.TELL, {"event": "signalled", "signal": SIGKILL, "ranks": None})
        return State.RUNNING

    def limit_reached(self, message: str, exit_status: int | None) -> State:
        self.outcome.decide(exit_status)
        self._do(Do.SAY, message, "")
        if not self.killed:
            self._terminate()
        return State.RUNNING

    def aborted(self, message: str, exit_status: int | None) -> State:
        # Ranks that yod kills also exit between MPI_Init and MPI_Finalize, which is not an abort.
        if self.terminated or self.killed:
            return State.RUNNING
        if exit_status is None and not self.ranks.exit_status:
            exit_status = 1  # the rank exited with 0 without MPI_Finalize
        return self.limit_reached(message, exit_status)

    def output_broken(self, message: str, exit_status: int, hint: str = "") -> State:
        if self.outcome.decide(exit_status) and message:
            self._do(Do.SAY, message, hint)
        if not (self.terminated or self.killed):
            self._terminate()
        return State.RUNNING

    def finished(self, unclean: list[list[Any]]) -> State:
        if unclean:
            left = ", ".join(f"{node} (process {pid})" for node, pid in unclean)
            self.outcome.blame_nodes(f"not cleaned: {left}")
            self._do(Do.SAY, f"processes of this launch could not be killed: {left}", "")
        self._do(Do.DONE)
        return self._free()

    def failed_late(
        self, node: str, message: str, hint: str, exit_status: int, fault: str, _lasting: bool = False
    ) -> State:
        # The message was sent before the root received GO, so no process has run or will run. FINISHED follows.
        self.outcome.decide(exit_status)
        self.outcome.reason = message
        if fault == "node":
            self.outcome.processor_error = True
            self._do(Do.NODE_FAILED, node, message)
        self._do(Do.SAY, f"the launch failed: {message}", hint)
        self._kill()
        return State.RUNNING

    def overdue(self, outstanding: str) -> State:
        self._lose(self.ranks.not_ended_by_node(), outstanding)
        self._do(Do.SAY, f"given up: {outstanding}", _LOOK)
        self._do(Do.SWEEP)
        self._do(Do.CUT)
        return self._free()

    # After the run

    def _free(self) -> State:
        self._do(Do.FREE, self.outcome.processor_error, self.outcome.reason)
        return State.FREEING

    def freed(self) -> State:
        return self._end_or_drain()

    def _end_or_drain(self) -> State:
        self._do(Do.UNREGISTER)
        if not self.drained:
            return State.DRAINING
        self._do(Do.LEAVE)
        return State.ENDED

    def not_freed(self, message: str) -> State:
        self._do(Do.HAND, self.outcome.processor_error, self.outcome.reason)
        return State.HANDING

    def not_freed_interrupted(self, *_facts: Any) -> State:
        self.interrupts += 1
        return self.not_freed("")

    def not_handed(self, message: str) -> State:
        self._do(
            Do.SAY,
            f"neither a CPA nor the RCA could be told that launcher {self.launcher} has ended ({message})",
            "its processors are freed when the mesh is back: mesh up",
        )
        return self._end_or_drain()

    def drained_early(self) -> State:
        self.drained = True
        return self.state

    def finish_draining(self) -> State:
        self.drained = True
        self._do(Do.LEAVE)
        return State.ENDED

    def break_late(self, message: str, exit_status: int, hint: str = "") -> State:
        self.outcome.exit_status = exit_status
        if message:
            self._do(Do.SAY, message, hint)
        return self.state

    def _leave(self) -> State:
        self._do(Do.UNREGISTER)
        self._do(Do.LEAVE)
        return State.ENDED


def _out_of_memory(rank: int, node: str, memory: OutOfMemory) -> str:
    return f"rank {rank} on {node} ran out of memory" + (f", it had {size_text(memory.had)}" if memory.had else "")


S, E, L = State, Event, Launch
_Table = dict[tuple[State, Event], "tuple[Callable[..., State], tuple[State, ...]]"]

#: (state, event): (handler, possible next states).
TRANSITIONS: _Table = {
    (S.ALLOCATING, E.ALLOCATED): (L.allocated, (S.LOADING,)),
    (S.ALLOCATING, E.REFUSED): (L.refused, (S.ENDED,)),
    (S.ALLOCATING, E.INTERRUPT): (L.cancel, (S.CANCELLING,)),
    (S.ALLOCATING, E.TERMINATE): (L.cancel, (S.CANCELLING,)),
    (S.CANCELLING, E.ALLOCATED): (L.give_back, (S.FREEING,)),
    (S.CANCELLING, E.REFUSED): (L.cancelled, (S.ENDED,)),
    (S.CANCELLING, E.GRACE_OVER): (L.leave_silently, (S.ENDED,)),
    (S.CANCELLING, E.INTERRUPT): (L.leave_silently, (S.ENDED,)),
    (S.CANCELLING, E.TERMINATE): (L.leave_silently, (S.ENDED,)),
    (S.LOADING, E.READY): (L.ready, (S.LOADING, S.CONFIRMING)),
    (S.LOADING, E.FAILED): (L.failed, (S.CLEARING, S.RETREATING)),
    (S.LOADING, E.LOST): (L.lost_loading, (S.CLEARING, S.RETREATING)),
    (S.LOADING, E.ROOT_ENDED): (L.root_gone_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.OVERDUE): (L.overdue_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.SILENT): (L.root_silent_loading, (S.FREEING, S.RETURNING)),
    (S.LOADING, E.INTERRUPT): (L.interrupted_loading, (S.CLEARING,)),
    (S.LOADING, E.TERMINATE): (L.interrupted_loading, (S.CLEARING,)),
    (S.LOADING, E.OUTPUT_BROKEN): (L.output_broken_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.CONFIRMED): (L.confirmed, (S.RUNNING,)),
    (S.CONFIRMING, E.UNCONFIRMED): (L.unconfirmed, (S.CLEARING,)),
    (S.CONFIRMING, E.FAILED): (L.failed, (S.CLEARING, S.RETREATING)),
    (S.CONFIRMING, E.LOST): (L.lost_loading, (S.CLEARING, S.RETREATING)),
    (S.CONFIRMING, E.ROOT_ENDED): (L.root_gone_loading, (S.FREEING, S.RETURNING)),
    (S.CONFIRMING, E.SILENT): (L.root_silent_loading, (S.FREEING, S.RETURNING)),
    (S.CONFIRMING, E.INTERRUPT): (L.interrupted_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.TERMINATE): (L.interrupted_loading, (S.CLEARING,)),
    (S.CONFIRMING, E.OUTPUT_BROKEN): (L.output_broken_loading, (S.CLEARING,)),
    (S.CLEARING, E.FINISHED): (L.cleared, (S.FREEING,)),
    (S.CLEARING, E.ROOT_ENDED): (L.cleared, (S.FREEING,)),
    (S.CLEARING, E.OVERDUE): (L.clear_overdue, (S.FREEING,)),
    (S.CLEARING, E.INTERRUPT): (L.cleared, (S.FREEING,)),
    (S.RETREATING, E.FINISHED): (L.retreated, (S.RETURNING,)),
    (S.RETREATING, E.ROOT_ENDED): (L.retreated, (S.RETURNING,)),
    (S.RETREATING, E.OVERDUE): (L.retreat_overdue, (S.RETURNING,)),
    (S.RETREATING, E.INTERRUPT): (L.interrupted_loading, (S.CLEARING,)),
    (S.RETREATING, E.TERMINATE): (L.interrupted_loading, (S.CLEARING,)),
    (S.RETREATING, E.OUTPUT_BROKEN): (L.output_broken_loading, (S.CLEARING,)),
    (S.RETURNING, E.FREED): (L.again, (S.ALLOCATING,)),
    (S.RETURNING, E.NOT_FREED): (L.not_returned, (S.RETURNING, S.HANDING)),
    (S.RETURNING, E.INTERRUPT): (L.interrupted_returning, (S.FREEING,)),
    (S.RETURNING, E.TERMINATE): (L.interrupted_returning, (S.FREEING,)),
    (S.RETURNING, E.OUTPUT_BROKEN): (L.output_broken_returning, (S.FREEING,)),
    (S.RUNNING, E.EXITS): (L.exits, (S.RUNNING,)),
    (S.RUNNING, E.OUT_OF_MEMORY): (L.ran_out_of_memory, (S.RUNNING,)),
    (S.RUNNING, E.FAILED): (L.failed_late, (S.RUNNING,)),
    (S.RUNNING, E.LOST): (L.nodes_lost, (S.RUNNING,)),
    (S.RUNNING, E.SILENT): (L.node_silent, (S.RUNNING,)),
    (S.RUNNING, E.BACK): (L.node_back, (S.RUNNING,)),
    (S.RUNNING, E.FINISHED): (L.finished, (S.FREEING,)),
    (S.RUNNING, E.ROOT_ENDED): (L.root_gone, (S.FREEING,)),
    (S.RUNNING, E.INTERRUPT): (L.interrupt, (S.RUNNING, S.ENDED)),
    (S.RUNNING, E.TERMINATE): (L.terminated_by, (S.RUNNING,)),
    (S.RUNNING, E.GRACE_OVER): (L.grace_over, (S.RUNNING,)),
    (S.RUNNING, E.SIGNAL): (L.forward, (S.RUNNING,)),
    (S.RUNNING, E.KILL): (L.killed_by_observer, (S.RUNNING,)),
    (S.RUNNING, E.LIMIT): (L.limit_reached, (S.RUNNING,)),
    (S.RUNNING, E.ABORTED): (L.aborted, (S.RUNNING,)),
    (S.RUNNING, E.OUTPUT_BROKEN): (L.output_broken, (S.RUNNING,)),
    (S.RUNNING, E.OVERDUE): (L.overdue, (S.FREEING,)),
    (S.FREEING, E.FREED): (L.freed, (S.DRAINING, S.ENDED)),
    (S.FREEING, E.NOT_FREED): (L.not_freed, (S.HANDING,)),
    (S.FREEING, E.INTERRUPT): (L.not_freed_interrupted, (S.HANDING,)),
    (S.FREEING, E.DRAINED): (L.drained_early, (S.FREEING,)),
    (S.FREEING, E.OUTPUT_BROKEN): (L.break_late, (S.FREEING,)),
    (S.HANDING, E.HANDED): (L.freed, (S.DRAINING, S.ENDED)),
    (S.HANDING, E.NOT_HANDED): (L.not_handed, (S.DRAINING, S.ENDED)),
    (S.HANDING, E.INTERRUPT): (L.leave_silently, (S.ENDED,)),
    (S.HANDING, E.DRAINED): (L.drained_early, (S.HANDING,)),
    (S.HANDING, E.OUTPUT_BROKEN): (L.break_late, (S.HANDING,)),
    (S.DRAINING, E.DRAINED): (L.finish_draining, (S.ENDED,)),
    (S.DRAINING, E.INTERRUPT): (L.leave_silently, (S.ENDED,)),
    (S.DRAINING, E.TERMINATE): (L.leave_silently, (S.ENDED,)),
    (S.DRAINING, E.OUTPUT_BROKEN): (L.break_late, (S.DRAINING,)),
}
