"""What a launch may be in, meet and do, and what is decided until its processes run. Pure; see machine.py.

A load that fails because of a node is taken back, and new nodes are asked for, up to ``retries`` times.
"""

from __future__ import annotations

from agents.link.lean import Enum
from console.launch.ranks import Ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.plan import Plan

SIGINT, SIGKILL, SIGTERM = 2, 9, 15

#: Seconds between a SIGTERM that nobody watches over (yod was terminated, -kill) and SIGKILL.
GRACE_S = 5.0
#: Seconds without any progress after which a step is given up; the clean-up of what never ran has less,
#: since a tree whose root's link ends clears itself.
STEP_S, CLEAR_S = 9.0, 2.0
#: The same for a load. The nodes name who stands still or is silent (agents/pct/readiness.py, pulse.py), and the
#: root's own pulse is felt here; this is for a root that answers and never comes to an end.
LOAD_S = 45.0
#: Seconds for which another try waits for nodes: a PCT that was killed is back by then.
RETRY_WAIT_S = 1.0
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
        self.ranks = Ranks()
        self.verdict, self.reason, self.processor_error = None, "", False
        self._do(Do.ALLOCATE, RETRY_WAIT_S)
        return State.ALLOCATING

    def _not_returned(self, message: str) -> State:
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
