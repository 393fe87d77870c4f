"""What running jobs are asked to give to a request that waits: enough, not more, and fairly among users."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from db.allocation import waiting_requests
from db.allocation.free import Machine
from db.allocation.limits import GROWTH
from db.allocation.managers import Policy, parse
from db.allocation.scheduling import giving_back
from db.allocation.scheduling.giving_back import Answer, Asker, JobKey, shares
from db.allocation.scheduling.line import Line
from db.allocation.tasks_and_nodes import Shape
from db.allocation.types import Allocation
from db.allocation.waiting_requests import PlaceInLine, Wait
from db.store.store import Store
from tests.support.stores import LOGIN, demand, first, give_back, key, take

ADA, BOB = 1000, 1001
A, B, C = JobKey(ADA, "aaaaaaaa"), JobKey(BOB, "bbbbbbbb"), JobKey(ADA, "cccccccc")


def launch(missing: int, uid: int = 7) -> Asker:
    return Asker(uid, "", 0, missing)


def test_a_launch_takes_what_it_lacks_and_the_last_processor_of_a_job_only_if_it_must() -> None:
    assert shares(launch(1), {A: 4}, {ADA: 4}) == {A: 1}
    assert shares(launch(4), {A: 4}, {ADA: 4}) == {A: 4}
    assert shares(launch(2), {A: 2, B: 2}, {ADA: 2, BOB: 2}) == {A: 1, B: 1}
    assert shares(launch(5), {A: 4}, {ADA: 4}) == {}, "in vain: what else it needs nobody gives"
    assert shares(launch(3, ADA), {A: 2, B: 4}, {ADA: 2, BOB: 4}) == {B: 2, A: 1}, "who has most gives first"


def test_a_job_takes_until_its_user_has_as_many_as_the_others() -> None:
    first_one, more = Asker(BOB, B.digits, 0, 1), Asker(BOB, B.digits, 9, 1)
    assert shares(first_one, {A: 4}, {ADA: 4}) == {A: 1}
    assert shares(more, {A: 3, B: 1}, {ADA: 3, BOB: 1}) == {A: 1}
    assert shares(more, {A: 2, B: 2}, {ADA: 2, BOB: 2}) == {}, "equal users do not take turns"
    assert shares(more, {A: 15, B: 1}, {ADA: 15, BOB: 1}) == {A: 7}, "all that it is to have at once"
    assert shares(Asker(BOB, B.digits, 2, 1), {A: 15, B: 1}, {ADA: 15, BOB: 1}) == {A: 2}, "if it can use as many"
    assert shares(first_one, {A: 1}, {ADA: 1}) == {}, "the other job would have none"


def test_jobs_of_one_user_share_nothing_but_first_processors() -> None:
    assert shares(Asker(ADA, C.digits, 0, 1), {A: 4}, {ADA: 4}) == {A: 1}
    assert shares(Asker(ADA, C.digits, 9, 1), {A: 3, C: 1}, {ADA: 4}) == {}
    assert shares(Asker(ADA, C.digits, 0, 1), {A: 1}, {ADA: 1}) == {}, "and never the last one"


_JOBS = st.dictionaries(
    st.builds(JobKey, st.integers(0, 3), st.sampled_from(["a", "b", "c"])), st.integers(1, 9), max_size=6
)


@given(_JOBS, st.integers(0, 3), st.sampled_from(["", "a", "z"]), st.integers(0, 9), st.integers(1, 20))
def test_enough_or_nothing_and_nobody_ends_with_less_than_the_asker(
    jobs: Mapping[JobKey, int], uid: int, job: str, grows: int, missing: int
) -> None:
    has: Counter[int] = Counter()
    for one, count in jobs.items():
        has[one.uid] += count
    asker = Asker(uid, job, grows, missing)
    given_ = shares(asker, jobs, has)
    total = sum(given_.values())
    assert not given_ or total >= missing
    assert total <= max(missing, grows if job else 0)
    assert JobKey(uid, job) not in given_ and all(0 < count <= jobs[one] for one, count in given_.items())
    if job and given_:
        others = Counter({one: count for one, count in given_.items() if one.uid != uid})
        after = has[uid] + others.total()
        for one in others:
            left = has[one.uid] - sum(count for other, count in others.items() if other.uid == one.uid)
            assert left >= after, "otherwise the two would take turns for ever"
    if job and grows:
        assert all(count < jobs[one] and one.uid != uid for one, count in given_.items())
    if not job:
        able = sum(count for one, count in jobs.items())
        assert bool(given_) is (able >= missing)


class TwoSidesOfTheLine(RuleBasedStateMachine):
    """Jobs with tasks without end on eight processors, and launches that come and go: who has what, a step a task."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[JobKey, int] = defaultdict(int)
        self.launches: list[list[int]] = []  # uid and processors, in the order of the line; then those that run
        self.running: list[int] = []
        self.waited: dict[int, int] = {}

    @property
    def free(self) -> int:
        return 8 - sum(self.jobs.values()) - sum(self.running)

    @rule(uid=st.integers(0, 2), digits=st.sampled_from(["a", "b"]))
    def submit(self, uid: int, digits: str) -> None:
        self.jobs[JobKey(uid, digits)] += 0

    @rule(uid=st.integers(0, 2), size=st.integers(1, 8))
    def ask(self, uid: int, size: int) -> None:
        if len(self.launches) < 3:
            self.launches.append([uid, size, 0])

    @precondition(lambda self: self.running)
    @rule()
    def end_of_a_launch(self) -> None:
        self.running.pop(0)

    @rule()
    def every_task_ends(self) -> None:
        self._serve()
        asked = self._asked()
        before = dict(self.jobs)
        for job, count in asked.items():
            self.jobs[job] -= count
        self._serve()
        if not self.launches and not self._new() and before:
            for job, count in self.jobs.items():
                assert count >= min(1, before[job]), "nobody needs the last one"
        for one in self.launches[:1]:
            one[2] += 1
            assert one[2] < 3 or sum(self.running) + one[1] > 8, "a request that jobs could serve waits for one task"

    def _new(self) -> list[JobKey]:
        return [job for job, count in self.jobs.items() if not count]

    def _has(self) -> dict[int, int]:
        has: Counter[int] = Counter()
        for job, count in self.jobs.items():
            has[job.uid] += count
        return dict(has)

    def _asked(self) -> dict[JobKey, int]:
        jobs = {job: count for job, count in self.jobs.items() if count}
        if self.launches:
            uid, size, _ = self.launches[0]
            return shares(Asker(uid, "", 0, size - self.free), jobs, self._has()) if size > self.free else {}
        for job in [*self._new(), *sorted(jobs, key=lambda job: self._has()[job.uid])][:1]:
            return shares(Asker(job.uid, job.digits, 8 if self.jobs[job] else 0, 1), jobs, self._has())
        return {}

    def _serve(self) -> None:
        while self.launches and self.launches[0][1] <= self.free:
            self.running.append(self.launches.pop(0)[1])
        while self.jobs and self.free and not self.launches:
            new = self._new()
            has = self._has()
            self.jobs[new[0] if new else min(self.jobs, key=lambda job: (has.get(job.uid, 0), job))] += 1

    @invariant()
    def nothing_is_given_while_nobody_waits(self) -> None:
        assert self.free >= 0
        alone = len({job.uid for job in self.jobs}) == 1
        if not self.launches and alone and not self._new():
            assert self._asked() == {}


TestTwoSidesOfTheLine = TwoSidesOfTheLine.TestCase


# With the database


def workers(store: Store, machine: Machine, job: JobKey, size: int, **more: object) -> Allocation:
    command = f"yodwork job {job.digits} sleep"
    return take(store, machine, size, uid=job.uid, user=str(job.uid), command=command, gives_back=True, **more)


def asked(store: Store, machine: Machine, size: int, *, waited_s: float = 0.0, **more: object) -> Answer:
    """What ``find`` answers for a request that has waited in the line."""
    wants = demand(size, **{"uid": 7, **more})
    request = {"size": size, "login": LOGIN, "pid": 1, "pid_started": 1, "command": "x"}
    waits = Wait(wants.request_key, None, wants.uid, wants.user, LOGIN, 1, 1, size, request, 60.0)
    waiting_requests.enqueue(store, waits)
    past(store, waited_s, "UPDATE waiting SET created_at = created_at - ?")
    answer = giving_back.find(store, machine, wants, first)
    waiting_requests.drop(store, wants.request_key)
    assert giving_back.find(store, machine, wants, first) == Answer([]), "it waits no more"
    return answer


#: Time passes for launches.
_PASSES = tuple(f"UPDATE launcher SET {column} = {column} - ?" for column in ("created_at", "ended_at"))


def past(store: Store, seconds: float, *statements: str) -> None:
    """Let time pass for the rows that these statements change."""
    for one in statements:
        store.run(lambda t, one=one: t.write(one, (seconds,)))  # type: ignore[misc]


def found(store: Store, machine: Machine, size: int, **more: object) -> dict[JobKey, tuple[list[int], int]]:
    return {one.job: (sorted(one.launchers), one.keep) for one in asked(store, machine, size, **more).keeps}


def test_what_is_free_counts_and_asking_twice_asks_for_the_same(store: Store, machine: Machine) -> None:
    own = [workers(store, machine, A, size) for size in (1, 1, 2, 8)]
    ids = sorted(one.launcher for one in own)
    assert found(store, machine, 4) == {}, "there are four free ones"
    assert found(store, machine, 6) == {A: (ids, 10)}
    give_back(store, own[0])
    machine.refresh(store)
    assert found(store, machine, 6) == {A: (ids[1:], 10)}, "one of the two is given, and ten are left to it as before"
    assert found(store, machine, 17) == {}


def test_a_job_that_holds_its_processors_is_not_asked(store: Store, machine: Machine) -> None:
    take(store, machine, 16, uid=ADA, command=f"yodwork job {A.digits} sleep")
    assert found(store, machine, 1) == {}


def test_a_job_gives_nothing_to_what_comes_after_it(store: Store, machine: Machine) -> None:
    workers(store, machine, A, 8), workers(store, machine, A, 8)
    assert found(store, machine, 1, nice=True) == {}, "the request of the job would end that launch"
    high, bobs = {"name": "a", "users": [str(ADA)], "priority": 1}, {"name": "b", "users": [str(BOB)], "priority": 2}
    machine.policy = Policy(parse([high]))
    assert found(store, machine, 1) == {}, "the job would have it back at once, again and again"
    machine.policy = Policy(parse([high, bobs]))
    assert set(found(store, machine, 1, user=str(BOB))) == {A}


def test_a_request_for_certain_processors_gets_those(store: Store, machine: Machine) -> None:
    own = [workers(store, machine, A, 4) for _ in range(4)]
    assert found(store, machine, 1, wanted=own[1].processors[:1]) == {A: ([own[1].launcher], 0)}
    assert found(store, machine, 2, shape=Shape(nodes=2)) != {}
    assert found(store, machine, 1, exclude=[one for each in own for one in each.processors]) == {}


def test_a_job_keeps_what_it_got_back_from_a_user_who_would_have_more(store: Store, machine: Machine) -> None:
    """Who requests the whole machine and cancels, again and again, takes a job its processors half of the time."""
    before = workers(store, machine, A, 16)
    assert set(found(store, machine, 16)) == {A}
    give_back(store, before)
    past(store, 30.0, *_PASSES)
    now = workers(store, machine, A, 16)
    machine.refresh(store)
    answer = asked(store, machine, 16)
    assert answer.keeps == [] and answer.again_s is not None and 20.0 < answer.again_s < 40.0
    assert found(store, machine, 8) == {A: ([now.launcher], 8)}, "no more than its share: at once"
    assert found(store, machine, 16, uid=ADA) == {A: ([now.launcher], 0)}, "it is the user's own"
    assert asked(store, machine, 16, shape=Shape(nodes=4)).keeps == []
    past(store, 60.0, *_PASSES)
    assert found(store, machine, 16) == {A: ([now.launcher], 0)}


def test_others_are_asked_if_those_that_were_asked_give_nothing(store: Store, machine: Machine) -> None:
    """A hostile client says that its launches are given back, and never gives any."""
    hostile, other = workers(store, machine, B, 10), workers(store, machine, A, 6)
    assert asked(store, machine, 1, waited_s=1.0).again_s is not None
    assert found(store, machine, 1, waited_s=5.0) == {B: ([hostile.launcher], 9)}
    of_both = {B: ([hostile.launcher], 9), A: ([other.launcher], 5)}
    assert found(store, machine, 1, waited_s=11.0) == of_both
    assert found(store, machine, 6, waited_s=0.0) == {B: ([hostile.launcher], 5), A: ([other.launcher], 5)}
    assert found(store, machine, 6, waited_s=11.0)[A] == ([other.launcher], 0), "it has enough alone"
    assert found(store, machine, 8, waited_s=500.0)[B] == ([hostile.launcher], 2), "the other has too few alone"
    assert asked(store, machine, 8, waited_s=500.0).again_s is None, "nobody is left"


def test_the_user_with_the_second_most_may_be_the_one_who_gives_nothing(store: Store, machine: Machine) -> None:
    most, hostile = workers(store, machine, A, 9), workers(store, machine, B, 7)
    assert found(store, machine, 7) == {A: ([most.launcher], 5), B: ([hostile.launcher], 4)}
    assert found(store, machine, 7, waited_s=11.0)[B] == ([hostile.launcher], 0)
    assert found(store, machine, 7, waited_s=21.0)[A] == ([most.launcher], 2)


def test_further_processors_of_a_job_come_last_and_go_to_the_user_with_fewest(store: Store, machine: Machine) -> None:
    operations = Operations(store, Rights(0, frozenset(), frozenset()), login=LOGIN)
    operations.machine = machine
    line = Line(machine, operations.understand)
    held = [take(store, machine, 8, uid=ADA), take(store, machine, 7, uid=BOB), take(store, machine, 1, uid=BOB)]
    store.serving = line

    def wait(uid: int, grows: int) -> str:
        request = {"size": 1, "login": LOGIN, "pid": 1, "pid_started": 1, "command": "x", "grows": grows}
        place = PlaceInLine(precedence=GROWTH) if grows else None
        made = Wait(key(), None, uid, str(uid), LOGIN, 1, 1, 1, request, 60.0, place_in_line=place)
        waiting_requests.enqueue(store, made)
        return made.request_key

    of_ada, of_bob, of_all = wait(ADA, 3), wait(BOB, 3), wait(ADA, 0)
    for freed, served in ((held[2], [of_all]), (held[1], [of_bob, of_ada])):
        give_back(store, freed)
        assert [grant.waiter.request_key for grant in line.taken()[0]] == served


def test_a_clock_that_was_set_back_has_nobody_counted_as_one_who_gives_nothing(store: Store, machine: Machine) -> None:
    for uid, size in ((1, 7), (2, 5), (3, 4)):
        workers(store, machine, JobKey(uid, f"{uid}" * 8), size)
    assert found(store, machine, 1, waited_s=-25.0) == found(store, machine, 1)
