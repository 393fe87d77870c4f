"""The tasks of a job that wait, run and have ended: a state machine without I/O.

The owner of the job (agents/job/job_owner.py) drives it and records each step in the state object. A job of a million
tasks needs memory only for running tasks and those tried before; tasks that were never given out are ranges.
"""

from __future__ import annotations

import heapq
from enum import Enum

from agents.job.tasks.task_graph import TaskGraph, merged
from redmesh.state import CANCELLED, DONE, FAILED, RUNNING, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import AbstractSet, Dict, Hashable, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

    class Change(NamedTuple):
        """The outcome of one attempt at a task: its new state, with a reason if needed."""

        number: int
        attempt: int
        state: str
        cause: str

    class Dropped(NamedTuple):
        """A task that is cancelled because a task ``before`` it, directly or not, has ended in ``state``."""

        number: int
        before: int
        state: str

else:
    from collections import namedtuple

    Change = namedtuple("Change", "number attempt state cause")
    Dropped = namedtuple("Dropped", "number before state")

#: Workers that a task may lose before it fails: a task that kills its worker would otherwise kill them all.
MOST_LOST = 5


class Event(Enum):
    """An event of a task."""

    HAND_OUT = "hand out"  # given to a worker
    SUCCEED = "succeed"
    FAIL = "fail"  # it failed, and is not tried again
    RETRY = "retry"  # it failed, and is tried again
    LOSE = "lose"  # its worker is lost; it is tried again
    COPY = "copy"  # a second worker gets it too
    DROP = "drop"  # a copy failed or was lost, and another one runs
    ABANDON = "abandon"  # its worker is lost, after too many others
    CANCEL = "cancel"
    RETURN = "return"  # its worker gives it back: it was not begun, or was ended by a cancellation that was revoked
    AGAIN = "again"  # a user wants ended tasks tried again


#: All transitions of a task.
TRANSITIONS: Dict[Tuple[str, Event], str] = {
    (WAITING, Event.HAND_OUT): RUNNING,
    (WAITING, Event.CANCEL): CANCELLED,
    (RUNNING, Event.SUCCEED): DONE,
    (RUNNING, Event.FAIL): FAILED,
    (RUNNING, Event.RETRY): WAITING,
    (RUNNING, Event.LOSE): WAITING,
    (RUNNING, Event.ABANDON): FAILED,
    (RUNNING, Event.COPY): RUNNING,
    (RUNNING, Event.DROP): RUNNING,
    (RUNNING, Event.CANCEL): CANCELLED,
    (RUNNING, Event.RETURN): WAITING,
    (FAILED, Event.AGAIN): WAITING,
    (CANCELLED, Event.AGAIN): WAITING,
}


class _Tried:
    """A task that was given out before."""

    __slots__ = ("attempts", "failures", "losses")

    def __init__(self, attempts: int) -> None:
        self.attempts, self.failures, self.losses = attempts, 0, 0


class TaskList:
    """The tasks of a job. ``retries``: how often a failed task is tried again; ``max_fails``: how many tasks may
    fail before the rest is cancelled (None: all); ``noun``: the word for a task in reasons."""

    def __init__(self, retries: int = 0, max_fails: Optional[int] = None, noun: str = "task") -> None:
        self._retries, self._max_fails, self._noun = retries, max_fails, noun
        self._waiting: List[Tuple[int, int]] = []  # a heap of ranges
        self._running: Dict[int, Dict[Hashable, int]] = {}  # number -> worker -> attempt, of each copy
        self._avoids: Dict[int, Set[str]] = {}  # nodes that must not get a task again
        self._held_by: Dict[Hashable, Dict[int, int]] = {}
        self._tried: Dict[int, _Tried] = {}  # waiting or running tasks that were given out before
        self.counts = dict.fromkeys((WAITING, RUNNING, DONE, FAILED, CANCELLED), 0)
        self.obsolete: List[Tuple[Hashable, int]] = []  # running copies of tasks that have succeeded
        self._graph = TaskGraph()
        self.dropped: List[Dropped] = []  # what was cancelled because of others, until somebody has recorded it
        self.in_order = True  # tasks that wait are given out in the order of their numbers
        self.held = False
        self.cancelled = ""  # the reason
        self._fails = False  # True if cancelled tasks count as a failure of the job

    # Tasks

    def add(self, first: int, last: int, attempts: int = 0) -> None:
        """Add tasks; ``attempts`` were made at each before (in a resumed job)."""
        self._count(WAITING, last - first + 1)
        self._list(first, last)
        if attempts:
            for number in range(first, last + 1):
                self._tried[number] = _Tried(attempts)

    def block(self, after: Iterable[Tuple[int, Sequence[int]]]) -> None:
        """Give out tasks when those that each comes ``after`` have succeeded: the numbers of tasks that wait, in
        order, each with theirs."""
        waiting = iter(sorted(self._waiting))
        kept: List[Tuple[int, int]] = []
        now = next(waiting, None)
        for number, before in after:
            while now is not None and now[1] < number:
                kept.append(now)
                now = next(waiting, None)
            if now is None or number < now[0] or number in self._graph:
                continue  # it waits for others already
            if now[0] < number:
                kept.append((now[0], number - 1))
            now = (number + 1, now[1]) if number < now[1] else next(waiting, None)
            self._graph.block(number, before)
            self.in_order = False
        self._waiting = [*kept, *([] if now is None else [now]), *waiting]  # sorted, so it is a heap

    def drop_after(self, number: int, state: str) -> None:
        """Cancel what comes after a task that has not succeeded: it is ``dropped``."""
        for one in self._graph.fail(number):
            self._go(WAITING, Event.CANCEL)
            self._tried.pop(one, None)
            self.dropped.append(Dropped(one, number, state))

    def ended_before(self, state: str, count: int) -> None:
        """Tasks that ended before this owner of the job began."""
        self._count(state, count)

    @property
    def open(self) -> bool:
        """True if tasks may be given out."""
        return not self.held and not self.cancelled

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for a worker alone."""
        return self.counts[WAITING] - len(self._graph)

    @property
    def blocked(self) -> int:
        """The number of tasks that wait for other tasks."""
        return len(self._graph)

    @property
    def running(self) -> int:
        """The number of tasks that workers have."""
        return len(self._running)

    @property
    def finished(self) -> bool:
        """True if every task has ended."""
        return not self.counts[WAITING] and not self._running

    def given_to(self, worker: Hashable) -> Dict[int, int]:
        """The tasks of a worker, each with its attempt."""
        return self._held_by.get(worker, {})

    def verdict(self) -> Tuple[str, str]:
        """The final state of the job, and the reason."""
        if self.cancelled:
            return (FAILED if self._fails else CANCELLED), self.cancelled
        if self.counts[FAILED]:
            return FAILED, self._failed()
        return (CANCELLED, "") if self.counts[CANCELLED] else (DONE, "")

    def _failed(self) -> str:
        failed = self.counts[FAILED]
        return f"{failed} {self._noun}{'s' if failed > 1 else ''} failed"

    # Events

    def avoid(self, number: int, node: str) -> None:
        """Give the task ``number`` to no worker on ``node`` from now on."""
        self._avoids.setdefault(number, set()).add(node)

    def suits(self, node: str) -> bool:
        """True if some waiting task may be given to a worker on ``node``."""
        return any(not self._avoided(first, node) for first, _ in self._waiting)

    def _avoided(self, number: int, node: str) -> bool:
        """True if a task must not be given to a worker on ``node``: several nodes, separated by commas, for several
        ranks."""
        avoids = self._avoids.get(number)
        return avoids is not None and not avoids.isdisjoint(node.split(","))

    def hand_out(self, worker: Hashable, count: int, node: str = "") -> List[Tuple[int, int]]:
        """Give a worker on ``node`` the next ``count`` tasks, in order: number and attempt of each, fewer where there
        are fewer."""
        given: List[Tuple[int, int]] = []
        aside: List[Tuple[int, int]] = []  # a task that was tried before has a range of its own
        while self.open and self._waiting and len(given) < count:
            first, last = heapq.heappop(self._waiting)
            if self._avoided(first, node):
                aside.append((first, last))
                continue
            through = min(last, first + count - len(given) - 1)
            if through < last:
                heapq.heappush(self._waiting, (through + 1, last))
            for number in range(first, through + 1):
                given.append((number, self._start(worker, number, Event.HAND_OUT)))
        for one in aside:
            heapq.heappush(self._waiting, one)
        return given

    def copy(self, worker: Hashable, node: str, numbers: Iterable[int]) -> Optional[Tuple[int, int]]:
        """Give a worker on ``node`` a second copy of the first of these running tasks that has but one; its number and
        attempt. The first copy to succeed counts, the others become ``obsolete``."""
        for number in numbers:
            if self.may_be_copied(number) and worker not in self._running[number] and not self._avoided(number, node):
                return number, self._start(worker, number, Event.COPY)
        return None

    def may_be_copied(self, number: int) -> bool:
        """True if one copy of a task runs and a second is allowed."""
        tried = self._tried.get(number)
        if tried is not None and (tried.failures > self._retries or tried.losses >= MOST_LOST):
            return False  # otherwise copies would follow each other for ever, and none would be the last to fail
        return self.open and len(self._running.get(number, ())) == 1

    def _start(self, worker: Hashable, number: int, event: Event) -> int:
        state = WAITING if event is Event.HAND_OUT else RUNNING
        self._go(state, event)
        if event is Event.COPY:
            self._tried.setdefault(number, _Tried(max(self._running[number].values())))
        tried = self._tried.get(number)
        attempt = 1 if tried is None else tried.attempts + 1
        if tried is not None:
            tried.attempts = attempt
        self._running.setdefault(number, {})[worker] = attempt
        self._held_by.setdefault(worker, {})[number] = attempt
        return attempt

    def end(self, worker: Hashable, number: int, attempt: int, *, failed: bool) -> Optional[Change]:
        """A worker's result. Returns None if this attempt is no longer running: it changes nothing."""
        if self._running.get(number, {}).get(worker) != attempt:
            return None
        others = self._stop(worker, number)
        if not failed:
            for other in list(others):
                self._stop(other, number)
                self.obsolete.append((other, number))
            self._tried.pop(number, None)
            for free in self._graph.succeed(number):
                self._list(free, free)
            return Change(number, attempt, self._go(RUNNING, Event.SUCCEED), "")
        tried = self._tried.setdefault(number, _Tried(attempt))
        tried.failures += 1
        if others:
            return Change(number, attempt, self._go(RUNNING, Event.DROP), "failed; another copy of it runs")
        if tried.failures <= self._retries and not self.cancelled:
            self._list(number, number)
            cause = f"failed: retry {tried.failures} of {self._retries}"
            return Change(number, attempt, self._go(RUNNING, Event.RETRY), cause)
        del self._tried[number]
        self.drop_after(number, FAILED)
        return Change(number, attempt, self._go(RUNNING, Event.FAIL), "")

    def lose(self, worker: Hashable, reason: str) -> List[Change]:
        """A worker is lost. What it had is tried again, unless too many workers were lost with a task, or the job was
        cancelled meanwhile."""
        changes = []
        for number, attempt in sorted(self.given_to(worker).items()):
            others = self._stop(worker, number)
            tried = self._tried.setdefault(number, _Tried(attempt))
            tried.losses += 1
            if others:
                event, cause = Event.DROP, f"{reason}; another copy of it runs"
            elif self.cancelled:
                event, cause = Event.CANCEL, self.cancelled
            elif tried.losses >= MOST_LOST:
                event, cause = Event.ABANDON, f"{reason}; {MOST_LOST} workers were lost with this {self._noun}"
            else:
                event, cause = Event.LOSE, reason
                self._list(number, number)
            if event not in (Event.LOSE, Event.DROP):
                del self._tried[number]
                self.drop_after(number, TRANSITIONS[RUNNING, event])
            changes.append(Change(number, attempt, self._go(RUNNING, event), cause))
        self._held_by.pop(worker, None)
        return changes

    def withdraw(self, numbers: AbstractSet[int]) -> List[Tuple[int, int]]:
        """Forget those of ``numbers`` that wait and were never begun: these ranges. The others' results alone decide
        how the job ends."""
        kept: List[Tuple[int, int]] = []
        withdrawn: List[Tuple[int, int]] = []
        for first, last in sorted(self._waiting):
            tried = self._tried.get(first)  # a task that was tried before has a range of its own
            if tried is None or not tried.attempts:
                some = range(first, last + 1) if last - first < len(numbers) else sorted(numbers)
                for number in [one for one in some if one in numbers and first <= one <= last]:
                    self._tried.pop(number, None)
                    if withdrawn and withdrawn[-1][1] == number - 1:
                        withdrawn[-1] = (withdrawn[-1][0], number)
                    else:
                        withdrawn.append((number, number))
                    if first < number:
                        kept.append((first, number - 1))
                    first = number + 1
            if first <= last:
                kept.append((first, last))
        self._waiting = kept  # sorted, so it is a heap
        withdrawn = self._with_blocked(withdrawn, numbers)
        self._count(WAITING, -sum(last - first + 1 for first, last in withdrawn))
        for first, last in withdrawn if self._graph else ():
            for number in range(first, last + 1):
                self.drop_after(number, CANCELLED)
        return withdrawn

    def _with_blocked(self, ranges: List[Tuple[int, int]], numbers: AbstractSet[int]) -> List[Tuple[int, int]]:
        """``ranges``, and those of ``numbers`` that wait for others and were never begun, which are forgotten."""
        blocked = []
        for number in numbers if self._graph else ():
            tried = self._tried.get(number)
            if number in self._graph and (tried is None or not tried.attempts):
                self._tried.pop(number, None)
                self._graph.unblock(number)
                blocked.append(number)
        if not blocked:
            return ranges
        every = sorted([*blocked, *(number for first, last in ranges for number in range(first, last + 1))])
        return [(one.start, one.stop - 1) for one in merged(every)]

    def cancel(self, reason: str, *, fails: bool = False) -> List[Tuple[int, int]]:
        """Cancel what waits: these ranges. What runs is ended by its workers, and then by :meth:`killed`.

        ``fails``: not by the user's wish, so the job has failed.
        """
        if not self.cancelled:
            self.cancelled, self._fails = reason, fails
        blocked, self._graph = merged(self._graph.blocked()), TaskGraph()
        cancelled = sorted([*self._waiting, *((one.start, one.stop - 1) for one in blocked)])
        for first, last in cancelled:
            self._count(WAITING, first - last - 1)
            self._count(CANCELLED, last - first + 1)
        self._waiting.clear()
        return cancelled

    def killed(self, worker: Hashable, number: int, attempt: int, *, begun: bool) -> Optional[Change]:
        """A worker has ended a task because the job was cancelled, or gives back one that it has not begun. It waits
        again if the job is no longer cancelled. Returns None as :meth:`end`."""
        if self._running.get(number, {}).get(worker) != attempt:
            return None
        if self._stop(worker, number):
            return None  # the last copy ends the task
        if self.cancelled:
            self._tried.pop(number, None)
            return Change(number, attempt, self._go(RUNNING, Event.CANCEL), self.cancelled)
        tried = self._tried.setdefault(number, _Tried(attempt))
        if not begun:
            tried.attempts = attempt - 1  # this was none
        self._list(number, number)
        cause = "mesh retry, after mesh cancel had ended it" if begun else "given back by its worker before it began"
        return Change(number, attempt, self._go(RUNNING, Event.RETURN), cause)

    def again(self, state: str, first: int, last: int, attempts: int) -> None:
        """Run ended tasks again, after ``attempts`` attempts."""
        count, after = last - first + 1, TRANSITIONS[state, Event.AGAIN]
        self._count(state, -count)
        self._count(after, count)
        for number in range(first, last + 1) if attempts else ():
            self._tried[number] = _Tried(attempts)
        for number in [one for one in self._avoids if first <= one <= last]:
            del self._avoids[number]  # the user who asks for it has checked the nodes
        self._list(first, last)

    def revoke(self) -> int:
        """Take a cancellation back. Returns how many tasks run that workers are ending because of it; they wait again
        then."""
        ending = len(self._running) if self.cancelled else 0
        self.cancelled = ""
        return ending

    def too_many_failed(self) -> str:
        """Why the rest of the job must be cancelled; "" if it need not be."""
        if self._max_fails is None or self.counts[FAILED] <= self._max_fails or self.cancelled:
            return ""
        return f"{self._failed()}, {self._max_fails} may (--max-fails)"

    def _stop(self, worker: Hashable, number: int) -> Dict[Hashable, int]:
        """Remove a copy from its worker; returns the remaining copies."""
        copies = self._running[number]
        del copies[worker]
        del self._held_by[worker][number]
        if not copies:
            del self._running[number]
        return copies

    def _list(self, first: int, last: int) -> None:
        heapq.heappush(self._waiting, (first, last))

    def _go(self, state: str, event: Event) -> str:
        after = TRANSITIONS[state, event]
        self._count(state, -1)
        self._count(after, 1)
        return after

    def _count(self, state: str, count: int) -> None:
        self.counts[state] += count
