"""The list of a job's tasks against a plain model: whatever happens, in whatever order."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.job.tasks.task_list import MOST_LOST, TRANSITIONS, Event, TaskList
from redmesh.state import CANCELLED, DONE, FAILED, RUNNING, WAITING
from tests.support.chance import examples

WORKERS = st.integers(1, 3)
#: The state here of tasks that the list has forgotten; states of tasks that will not succeed by themselves.
WITHDRAWN = "withdrawn"
LOST = (FAILED, CANCELLED, WITHDRAWN)


class Tasks(RuleBasedStateMachine):
    """Every task is in one state; each attempt has one result; what is counted is what there is."""

    @initialize(count=st.integers(1, 12), retries=st.integers(0, 2), max_fails=st.one_of(st.none(), st.integers(0, 3)))
    def begin(self, count: int, retries: int, max_fails: int | None) -> None:
        self.tasks = TaskList(retries, max_fails)
        self.tasks.add(1, count)
        self.retries = retries
        self.states = dict.fromkeys(range(1, count + 1), WAITING)
        self.running: dict[int, tuple[int, int]] = {}
        self.attempts = dict.fromkeys(self.states, 0)
        self.failures = dict.fromkeys(self.states, 0)
        self.losses = dict.fromkeys(self.states, 0)

    @rule(worker=WORKERS, count=st.integers(1, 5))
    def hand_out(self, worker: int, count: int) -> None:
        waiting = sorted(number for number, state in self.states.items() if state == WAITING)
        given = self.tasks.hand_out(worker, count)
        expected = waiting[:count] if self.tasks.open else []
        assert [number for number, _ in given] == expected
        for number, attempt in given:
            assert attempt == self.attempts[number] + 1
            self.states[number], self.attempts[number], self.running[number] = RUNNING, attempt, (worker, attempt)

    @rule(data=st.data(), failed=st.booleans(), late=st.booleans())
    def end(self, data: st.DataObject, failed: bool, late: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        worker, attempt = self.running.get(number, (1, 1))
        change = self.tasks.end(worker, number, attempt + late, failed=failed)
        if number not in self.running or late:
            assert change is None  # a late result changes nothing
            return
        assert change is not None
        self.failures[number] += failed
        again = failed and self.failures[number] <= self.retries and not self.tasks.cancelled
        assert change.state == (WAITING if again else FAILED if failed else DONE)
        del self.running[number]
        self.states[number] = change.state
        why = self.tasks.too_many_failed()
        if why:
            self.cancel(why)

    @rule(worker=WORKERS)
    def lose(self, worker: int) -> None:
        had = sorted(number for number, (of, _) in self.running.items() if of == worker)
        changes = self.tasks.lose(worker, "lost")
        assert [change.number for change in changes] == had
        for change in changes:
            self.losses[change.number] += 1
            if not self.tasks.cancelled:
                assert change.state == (FAILED if self.losses[change.number] >= MOST_LOST else WAITING)
            del self.running[change.number]
            self.states[change.number] = change.state

    @rule()
    def hold(self) -> None:
        self.tasks.held = not self.tasks.held

    @rule(reason=st.just("cancelled"))
    def cancel(self, reason: str) -> None:
        for first, last in self.tasks.cancel(reason):
            for number in range(first, last + 1):
                assert self.states[number] == WAITING
                self.states[number] = CANCELLED
        for number, (worker, attempt) in list(self.running.items()):
            change = self.tasks.killed(worker, number, attempt, begun=True)
            assert change is not None
            self.states[number] = change.state
            del self.running[number]
        assert self.tasks.finished

    @rule(begun=st.booleans(), revokes=st.booleans())
    def give_back(self, begun: bool, revokes: bool) -> None:
        """A worker gives tasks back, or has ended them for a cancellation that ``mesh retry`` revoked."""
        if revokes:
            self.tasks.revoke()
        for number, (worker, attempt) in list(self.running.items()):
            change = self.tasks.killed(worker, number, attempt, begun=begun)
            assert change is not None and change.state == (CANCELLED if self.tasks.cancelled else WAITING)
            self.states[number] = change.state
            self.attempts[number] -= 0 if begun or self.tasks.cancelled else 1
            del self.running[number]

    @rule()
    def again(self) -> None:
        self.tasks.revoke()
        for number, state in self.states.items():
            if state in (FAILED, CANCELLED):
                self.tasks.again(state, number, number, self.attempts[number])
                self.states[number], self.failures[number], self.losses[number] = WAITING, 0, 0

    @invariant()
    def counts_are_true(self) -> None:
        for state, count in self.tasks.counts.items():
            assert count == sum(1 for one in self.states.values() if one == state)
        assert self.tasks.running == len(self.running)
        assert self.tasks.finished == (not self.running and WAITING not in self.states.values())


class OrderedTasks(RuleBasedStateMachine):
    """A task is given out when all those that it comes after are done, and cancelled when one of them is lost."""

    @initialize(data=st.data(), count=st.integers(1, 10), retries=st.integers(0, 1))
    def begin(self, data: st.DataObject, count: int, retries: int) -> None:
        self.tasks = TaskList(retries)
        self.retries, self.states = retries, dict[int, str]()
        self.after, self.failures = dict[int, set[int]](), dict[int, int]()
        self.running: dict[int, tuple[int, int]] = {}
        self.add(data, count)

    @rule(data=st.data(), count=st.integers(1, 3))
    def add(self, data: st.DataObject, count: int) -> None:
        """Some tasks more, which come after others of before, or of their own."""
        first = len(self.states) + 1
        if self.tasks.cancelled or first > 20:
            return
        places = data.draw(st.permutations(range(first, first + count)))
        for place, number in enumerate(places):
            earlier = [*self.states, *places[:place]]
            self.after[number] = set(data.draw(st.lists(st.sampled_from(earlier), max_size=3))) if earlier else set()
        self.states.update(dict.fromkeys(places, WAITING))
        self.failures.update(dict.fromkeys(places, 0))
        self.tasks.add(first, first + count - 1)
        self.block(places)

    def block(self, numbers: Iterable[int]) -> None:
        """As the owner does, from what the object says."""
        missing = {one: [each for each in self.after[one] if self.states[each] != DONE] for one in sorted(numbers)}
        self.tasks.block((one, after) for one, after in missing.items() if after and self.states[one] == WAITING)
        for number in {each for after in missing.values() for each in after}:
            if self.states[number] in LOST:
                self.tasks.drop_after(number, self.states[number])
        self.model_drops()

    def model_drops(self) -> None:
        """Cancel in the model what cannot run any more; the list has cancelled the same tasks."""
        gone: set[int] = set()
        while more := {
            one for one, after in self.after.items()
            if self.states[one] == WAITING and any(self.states[each] in LOST for each in after)
        }:  # fmt: skip
            gone |= more
            self.states.update(dict.fromkeys(more, CANCELLED))
        assert sorted(one.number for one in self.tasks.dropped) == sorted(gone)
        assert all(self.states[one.before] in LOST for one in self.tasks.dropped)
        self.tasks.dropped.clear()

    @rule(worker=WORKERS, count=st.integers(1, 4))
    def hand_out(self, worker: int, count: int) -> None:
        free = sorted(
            one for one, state in self.states.items()
            if state == WAITING and all(self.states[each] == DONE for each in self.after[one])
        )  # fmt: skip
        assert self.tasks.waiting == len(free)
        given = self.tasks.hand_out(worker, count)
        assert [number for number, _ in given] == (free[:count] if self.tasks.open else [])
        for number, attempt in given:
            self.states[number], self.running[number] = RUNNING, (worker, attempt)

    @rule(data=st.data(), failed=st.booleans())
    def end(self, data: st.DataObject, failed: bool) -> None:
        if not self.running:
            return
        number = data.draw(st.sampled_from(sorted(self.running)))
        change = self.tasks.end(*[self.running[number][0], number, self.running.pop(number)[1]], failed=failed)
        self.failures[number] += failed
        again = failed and self.failures[number] <= self.retries and not self.tasks.cancelled
        assert change is not None and change.state == (WAITING if again else FAILED if failed else DONE)
        self.states[number] = change.state
        self.model_drops()

    @rule(worker=WORKERS)
    def lose(self, worker: int) -> None:
        for change in self.tasks.lose(worker, "lost"):
            self.states[change.number] = change.state
            del self.running[change.number]
        self.model_drops()

    @rule(numbers=st.sets(st.integers(1, 20), max_size=4))
    def withdraw(self, numbers: set[int]) -> None:
        """Some that wait and were never begun."""
        for first, last in self.tasks.withdraw(numbers):
            for number in range(first, last + 1):
                assert number in numbers and self.states[number] == WAITING
                self.states[number] = WITHDRAWN
        self.model_drops()

    @rule()
    def cancel(self) -> None:
        for first, last in self.tasks.cancel("cancelled"):
            for number in range(first, last + 1):
                assert self.states[number] == WAITING
                self.states[number] = CANCELLED
        assert WAITING not in self.states.values()

    @rule()
    def again(self) -> None:
        """``mesh retry``, also while workers end tasks of a cancelled job."""
        self.tasks.revoke()
        for number, state in self.states.items():
            if state in (FAILED, CANCELLED):
                self.tasks.again(state, number, number, 0)
                self.states[number], self.failures[number] = WAITING, 0
        self.block(self.states)

    @invariant()
    def counts_are_true(self) -> None:
        for state, count in self.tasks.counts.items():
            assert count == sum(1 for one in self.states.values() if one == state)
        assert self.tasks.finished == (not self.running and WAITING not in self.states.values())
        waits = [one for one, state in self.states.items() if state == WAITING]
        assert self.tasks.blocked == sum(
            1 for one in waits if any(self.states[each] != DONE for each in self.after[one])
        )
        assert not waits or self.tasks.waiting or self.running, "nothing would ever go on"


TestOrderedTasks = OrderedTasks.TestCase
TestOrderedTasks.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)

TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)


def test_only_tasks_that_wait_or_run_can_end_and_only_ended_ones_begin_again() -> None:
    assert {event for state, event in TRANSITIONS if state == DONE} == set()
    assert {state for state, event in TRANSITIONS if event is Event.AGAIN} == {FAILED, CANCELLED}
    assert all(state in (WAITING, RUNNING) for state, event in TRANSITIONS if event is not Event.AGAIN)


def test_a_million_tasks_are_one_range_until_they_are_handed_out() -> None:
    tasks = TaskList()
    tasks.add(1, 1_000_000)
    assert tasks.hand_out("w", 3) == [(1, 1), (2, 1), (3, 1)]
    assert tasks.waiting == 999_997 and len(tasks._waiting) == 1


def test_a_million_cancelled_tasks_are_one_range_when_they_are_tried_again() -> None:
    tasks = TaskList()
    tasks.add(1, 1_000_000)
    assert tasks.cancel("cancelled") == [(1, 1_000_000)]
    tasks.again(CANCELLED, 1, 1_000_000, 0)
    assert tasks.waiting == 1_000_000 and not tasks._tried


def test_a_task_that_was_not_begun_keeps_its_number_of_attempts() -> None:
    tasks = TaskList()
    tasks.add(1, 2)
    assert tasks.hand_out("a", 2) == [(1, 1), (2, 1)]
    change = tasks.killed("a", 2, 1, begun=False)
    assert change is not None and change.state == WAITING and "before it began" in change.cause
    assert tasks.hand_out("b", 1) == [(2, 1)] and tasks.end("a", 2, 1, failed=True) is None


def test_the_verdict_says_why() -> None:
    tasks = TaskList(max_fails=0)
    tasks.add(1, 3)
    tasks.hand_out("w", 1)
    tasks.end("w", 1, 1, failed=True)
    assert tasks.too_many_failed() == "1 task failed, 0 may (--max-fails)"
    assert tasks.cancel(tasks.too_many_failed(), fails=True) == [(2, 3)]
    assert tasks.verdict() == (FAILED, "1 task failed, 0 may (--max-fails)")


def test_a_task_whose_copies_all_fail_comes_to_an_end() -> None:
    tasks = TaskList(retries=2)
    tasks.add(1, 1)
    runs = [("a", *tasks.hand_out("a", 1)[0])]
    for _ in range(20):
        copied = tasks.copy("b" if runs and runs[0][0] == "a" else "a", "n1", [1])
        if copied is not None:
            runs.append(("b" if runs[0][0] == "a" else "a", *copied))
        if not runs:
            break
        worker, number, attempt = runs.pop(0)
        change = tasks.end(worker, number, attempt, failed=True)
        if change is not None and change.state == WAITING:
            runs.append((worker, *tasks.hand_out(worker, 1)[0]))
    assert tasks.finished and tasks.counts[FAILED] == 1


def test_a_section_that_is_tried_again_by_hand_may_run_where_it_failed() -> None:
    tasks = TaskList()
    tasks.add(1, 2)
    for number, attempt in tasks.hand_out("a", 2, "n1"):
        tasks.end("a", number, attempt, failed=True)
        tasks.avoid(number, "n1")
    tasks.again(FAILED, 1, 2, 1)
    assert tasks.hand_out("a", 2, "n1") == [(1, 2), (2, 2)]


def test_what_was_never_begun_is_withdrawn_alone() -> None:
    """One that is given back counts as never begun; one that has failed before, or runs, does not."""
    tasks = TaskList(retries=1)
    tasks.add(1, 10)
    tasks.hand_out("w", 3)
    assert tasks.end("w", 1, 1, failed=True) is not None  # tried again
    assert tasks.killed("w", 2, 1, begun=False) is not None
    assert tasks.withdraw({1, 2, 3, 5, 6, 9, 99}) == [(2, 2), (5, 6), (9, 9)]
    assert (tasks.waiting, tasks.running) == (5, 1)
    assert [number for number, _ in tasks.hand_out("w", 9)] == [1, 4, 7, 8, 10]
