"""The launcher's machine: every transition, and what must hold for any sequence of events."""

import heapq
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.launch.events.bad_exits import BadExits, lines
from console.launch.events.completion_report import completion_rows
from console.launch.plan import Plan, place
from console.launch.ranks import OutOfMemory
from console.launch.states import RETURNS, TRANSITIONS, Do, Event, Launch, State
from tests.support.chance import long

E, S = Event, State
ENDED_BY_9, ENDED_BY_11, ENDED_BY_15 = 9, 11, 15
EXIT_3 = 3 << 8


def plan_of(size: int = 4, nodes: int = 2) -> Plan:
    each = size // nodes
    given_nodes = [
        {"id": n + 1, "name": f"n{n}", "address": f"/run/n{n}.sock", "processors": [n * each + k for k in range(each)]}
        for n in range(nodes)
    ]
    return place(given_nodes, size, 1, "block", overcommit=False)


def ready(*ranks: int) -> list[list[int]]:
    return [[rank, 900 + rank, rank // 2] for rank in ranks]


def exits(*statuses: int) -> list[list[Any]]:
    return [[rank, status, 0.5] for rank, status in enumerate(statuses)]


ALLOCATED = (E.ALLOCATED, plan_of(), 7)
READY = (E.READY, ready(0, 1, 2, 3))
FAILED = (E.FAILED, "n1", "n1: ./a: Exec format error", "", 126, "program")
NODE_FAILED = (E.FAILED, "n1", "n1: no memory", "", 125, "node")
REFUSED = (E.REFUSED, "4 asked for, 2 are free", "", 125)
LOST = (E.LOST, [[1, [2, 3]]], "n1: the connection ended")
TERM, HUP = (E.TERMINATE, 15), (E.TERMINATE, 1)
BROKEN = (E.OUTPUT_BROKEN, "", 141)
FULL = (E.OUTPUT_BROKEN, "standard output cannot be written: No space left on device", 125)
FINISHED = (E.FINISHED, [])
OVERDUE = (E.OVERDUE, "no word yet from n1")
SILENT, BACK = (E.SILENT, "n1", 6.0), (E.BACK, "n1", 12.0)
ROOT_SILENT = (E.SILENT, "n0", 6.0)
RUN = [ALLOCATED, READY, E.CONFIRMED]
OUT_OF_MEMORY = (E.OUT_OF_MEMORY, "n1", 2, OutOfMemory(498 << 20, 512 << 20, 8 << 30))
END = [FINISHED, E.FREED, E.DRAINED]
STALLED = (E.FAILED, "n1", "n1: its launch child has been silent", "", 125, "stalled")
FAILED_TRY = [ALLOCATED, NODE_FAILED, FINISHED, E.FREED]

#: name: (events, final state, exit status)
SCENARIOS: dict[str, tuple[list[Any], State, int]] = {
    "all well": ([*RUN, (E.EXITS, exits(0, 0, 0, 0)), *END], S.ENDED, 0),
    "drained before it is freed": ([*RUN, (E.EXITS, exits(0, 0, 0, 0)), FINISHED, E.DRAINED, E.FREED], S.ENDED, 0),
    "a rank runs out of memory": ([*RUN, OUT_OF_MEMORY, (E.EXITS, exits(0, 0, ENDED_BY_9, 0)), *END], S.ENDED, 137),
    "ready in two parts": (
        [ALLOCATED, (E.READY, ready(0, 1)), (E.READY, ready(2, 3)), E.CONFIRMED, (E.EXITS, exits(0, 0, 0, 0)), *END],
        S.ENDED,
        0,
    ),
    "the highest status": ([*RUN, (E.EXITS, exits(0, EXIT_3, 1 << 8, 0)), *END], S.ENDED, 3),
    "a signal is 128 and more": ([*RUN, (E.EXITS, exits(0, EXIT_3, ENDED_BY_11, 0)), *END], S.ENDED, 139),
    "refused": ([REFUSED], S.ENDED, 125),
    "^C while waiting": ([E.INTERRUPT, ALLOCATED, E.FREED, E.DRAINED], S.ENDED, 130),
    "^C while waiting, then refused": ([E.INTERRUPT, REFUSED], S.ENDED, 130),
    "^C while waiting, no answer": ([E.INTERRUPT, E.GRACE_OVER], S.ENDED, 130),
    "^C twice while waiting": ([E.INTERRUPT, E.INTERRUPT], S.ENDED, 130),
    "told to end while waiting": ([TERM, TERM], S.ENDED, 143),
    "cannot execute": ([ALLOCATED, FAILED, FINISHED, E.FREED, E.DRAINED], S.ENDED, 126),
    "a node fails": ([ALLOCATED, NODE_FAILED, (E.ROOT_ENDED, "gone"), E.FREED, E.DRAINED], S.ENDED, 125),
    "a launch child stands still": ([ALLOCATED, STALLED, OVERDUE, E.FREED, E.DRAINED], S.ENDED, 125),
    "a launch child stood still before GO arrived": ([*RUN, STALLED, *END], S.ENDED, 125),
    "fails while confirming": ([ALLOCATED, READY, FAILED, OVERDUE, E.FREED, E.DRAINED], S.ENDED, 126),
    "a node lost while loading": ([ALLOCATED, LOST, FINISHED, E.FREED, E.DRAINED], S.ENDED, 125),
    "a node lost while confirming": ([ALLOCATED, READY, LOST, FINISHED, E.FREED, E.DRAINED], S.ENDED, 125),
    "the root gone while loading": ([ALLOCATED, (E.ROOT_ENDED, "gone"), E.FREED, E.DRAINED], S.ENDED, 125),
    "the root gone while confirming": ([ALLOCATED, READY, (E.ROOT_ENDED, "gone"), E.FREED, E.DRAINED], S.ENDED, 125),
    "overdue while loading": ([ALLOCATED, OVERDUE, E.FREED, E.DRAINED], S.ENDED, 125),
    "^C while loading": ([ALLOCATED, E.INTERRUPT, FINISHED, E.FREED, E.DRAINED], S.ENDED, 130),
    "^C twice while loading": ([ALLOCATED, E.INTERRUPT, E.INTERRUPT, E.FREED, E.DRAINED], S.ENDED, 130),
    "told to end while loading": ([ALLOCATED, HUP, FINISHED, E.FREED, E.DRAINED], S.ENDED, 129),
    "^C while confirming": ([ALLOCATED, READY, E.INTERRUPT, FINISHED, E.FREED, E.DRAINED], S.ENDED, 130),
    "told to end while confirming": ([ALLOCATED, READY, TERM, FINISHED, E.FREED, E.DRAINED], S.ENDED, 143),
    "not confirmed": (
        [ALLOCATED, READY, (E.UNCONFIRMED, "expired", "", 125), FINISHED, E.FREED, E.DRAINED],
        S.ENDED,
        125,
    ),
    "stdout broken while loading": ([ALLOCATED, BROKEN, FINISHED, E.FREED, E.DRAINED], S.ENDED, 141),
    "stdout broken while confirming": ([ALLOCATED, READY, FULL, FINISHED, E.FREED, E.DRAINED], S.ENDED, 125),
    "^C once": ([*RUN, E.INTERRUPT, (E.EXITS, exits(*[ENDED_BY_15] * 4)), *END], S.ENDED, 130),
    "^C, and all end well by themselves": ([*RUN, E.INTERRUPT, (E.EXITS, exits(0, 0, 0, 0)), *END], S.ENDED, 0),
    "^C twice": ([*RUN, E.INTERRUPT, E.INTERRUPT, (E.EXITS, exits(*[ENDED_BY_9] * 4)), *END], S.ENDED, 130),
    "^C thrice": ([*RUN, E.INTERRUPT, E.INTERRUPT, E.INTERRUPT], S.ENDED, 130),
    "terminated": ([*RUN, TERM, (E.EXITS, exits(*[ENDED_BY_15] * 4)), *END], S.ENDED, 143),
    "terminated, deaf": ([*RUN, TERM, E.GRACE_OVER, (E.EXITS, exits(*[ENDED_BY_9] * 4)), *END], S.ENDED, 143),
    "terminated twice": ([*RUN, HUP, TERM, (E.EXITS, exits(*[ENDED_BY_9] * 4)), *END], S.ENDED, 129),
    "a bad one before ^C counts": (
        [*RUN, (E.EXITS, exits(EXIT_3)), E.INTERRUPT, (E.EXITS, exits(0, *[ENDED_BY_15] * 3)), *END],
        S.ENDED,
        3,
    ),
    "forwarded signal": ([*RUN, (E.SIGNAL, 10, None), (E.EXITS, exits(*[10] * 4)), *END], S.ENDED, 138),
    "TERM from outside": ([*RUN, (E.SIGNAL, 15, None), (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 143),
    "killed from outside": ([*RUN, E.KILL, (E.EXITS, exits(*[9] * 4)), *END], S.ENDED, 137),
    "time is up": ([*RUN, (E.LIMIT, "time is up", 124), (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 124),
    "an MPI rank aborts": ([*RUN, (E.ABORTED, "MPI_Abort", 7), (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 7),
    "an MPI rank dies": (
        [*RUN, (E.EXITS, exits(9)), (E.ABORTED, "died", None), (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 137,
    ),
    "an MPI rank ends too early": (
        [*RUN, (E.EXITS, exits(0)), (E.ABORTED, "ended", None), (E.EXITS, exits(0, *[15] * 3)), *END], S.ENDED, 1,
    ),
    "ranks that yod ends are no cause": (
        [*RUN, (E.TERMINATE, 15), (E.ABORTED, "died", 7), (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 143,
    ),
    "time is up, all end well": ([*RUN, (E.LIMIT, "up", 124), (E.EXITS, exits(0, 0, 0, 0)), *END], S.ENDED, 124),
    "one ended, the others too late": (
        [*RUN, (E.EXITS, exits(EXIT_3)), (E.LIMIT, "waited", None), (E.EXITS, exits(0, 15, 15, 15)), *END],
        S.ENDED,
        3,
    ),
    "stdout broken": ([*RUN, BROKEN, (E.EXITS, exits(*[15] * 4)), *END], S.ENDED, 141),
    "stdout broken at the end": (
        [*RUN, (E.EXITS, exits(0, 0, 0, 0)), FINISHED, BROKEN, E.FREED, E.DRAINED],
        S.ENDED,
        141,
    ),
    "stdout full at the very end": ([*RUN, FINISHED, E.FREED, FULL, E.DRAINED], S.ENDED, 125),
    "a node lost": ([*RUN, LOST, (E.EXITS, exits(0, 0)), *END], S.ENDED, 137),
    "the root lost": ([*RUN, (E.EXITS, exits(0)), (E.ROOT_ENDED, "gone"), E.FREED, E.DRAINED], S.ENDED, 137),
    "failed before GO arrived": ([*RUN, FAILED, *END], S.ENDED, 126),
    "a node failed before GO arrived": ([*RUN, NODE_FAILED, *END], S.ENDED, 125),
    "failed before GO arrived, interrupted": ([*RUN, FAILED, E.INTERRUPT, *END], S.ENDED, 126),
    "silent for a while": ([*RUN, SILENT, BACK, (E.EXITS, exits(0, 0, 0, 0)), *END], S.ENDED, 0),
    "silent, then lost": ([*RUN, SILENT, (E.EXITS, exits(0, 0)), LOST, *END], S.ENDED, 137),
    "the root is silent while loading": ([ALLOCATED, ROOT_SILENT, E.FREED, E.DRAINED], S.ENDED, 125),
    "the root is silent while confirming": ([ALLOCATED, READY, ROOT_SILENT, E.FREED, E.DRAINED], S.ENDED, 125),
    "overdue": ([*RUN, (E.EXITS, exits(0, 0)), OVERDUE, E.FREED, E.DRAINED], S.ENDED, 137),
    "unclean": ([*RUN, (E.EXITS, exits(0, 0, 0, 0)), (E.FINISHED, [["n1", 77]]), E.FREED, E.DRAINED], S.ENDED, 0),
    "the RCA takes the end": ([*RUN, FINISHED, (E.NOT_FREED, "no CPA"), E.DRAINED, E.HANDED], S.ENDED, 0),
    "nobody takes the end": (
        [*RUN, FINISHED, (E.NOT_FREED, "no CPA"), (E.NOT_HANDED, "no RCA"), E.DRAINED],
        S.ENDED,
        0,
    ),
    "^C while freeing": ([*RUN, FINISHED, E.INTERRUPT, E.HANDED, E.DRAINED], S.ENDED, 0),
    "^C twice while freeing": ([*RUN, FINISHED, E.INTERRUPT, E.INTERRUPT], S.ENDED, 0),
    "stdout broken while handing": ([*RUN, FINISHED, E.INTERRUPT, BROKEN, E.HANDED, E.DRAINED], S.ENDED, 141),
    "^C on a reader that stands still": ([*RUN, FINISHED, E.FREED, E.INTERRUPT], S.ENDED, 0),
    "told to end with a reader that stands still": ([*RUN, FINISHED, E.FREED, TERM], S.ENDED, 0),
    "another try: a node fails": ([*FAILED_TRY, *RUN, (E.EXITS, exits(0, 0, 0, 0)), *END], S.ENDED, 0),
    "another try: the root goes meanwhile": (
        [ALLOCATED, NODE_FAILED, (E.ROOT_ENDED, "gone"), E.FREED, *RUN, *END], S.ENDED, 0,
    ),
    "another try: the tree does not end": ([ALLOCATED, LOST, OVERDUE, E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: the root cannot be reached": ([ALLOCATED, (E.ROOT_ENDED, "gone"), E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: the root is silent": ([ALLOCATED, ROOT_SILENT, E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: the root is silent, held": ([ALLOCATED, READY, ROOT_SILENT, E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: the root stands still": ([ALLOCATED, OVERDUE, E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: a node goes while confirming": ([ALLOCATED, READY, LOST, FINISHED, E.FREED, *RUN, *END], S.ENDED, 0),
    "another try: a node fails while confirming": (
        [ALLOCATED, READY, NODE_FAILED, FINISHED, E.FREED, *RUN, *END], S.ENDED, 0,
    ),
    "another try: the root goes while confirming": (
        [ALLOCATED, READY, (E.ROOT_ENDED, "gone"), E.FREED, *RUN, *END], S.ENDED, 0,
    ),
    "another try: a launch child stands still": (
        [ALLOCATED, READY, STALLED, OVERDUE, E.FREED, *RUN, *END], S.ENDED, 0,
    ),
    "another try: no other nodes": ([*FAILED_TRY, REFUSED], S.ENDED, 125),
    "another try: the fourth was the last": (
        [*FAILED_TRY, *FAILED_TRY, *FAILED_TRY, ALLOCATED, NODE_FAILED, FINISHED, E.FREED, E.DRAINED], S.ENDED, 125,
    ),
    "another try: the program is at fault": (
        [*FAILED_TRY, ALLOCATED, FAILED, FINISHED, E.FREED, E.DRAINED], S.ENDED, 126,
    ),
    "another try: ^C while retreating": ([ALLOCATED, LOST, E.INTERRUPT, FINISHED, E.FREED, E.DRAINED], S.ENDED, 130),
    "another try: told to end while retreating": ([ALLOCATED, LOST, HUP, FINISHED, E.FREED, E.DRAINED], S.ENDED, 129),
    "another try: stdout broken while retreating": (
        [ALLOCATED, LOST, BROKEN, FINISHED, E.FREED, E.DRAINED], S.ENDED, 141,
    ),
    "another try: ^C while returning": ([ALLOCATED, LOST, FINISHED, E.INTERRUPT, E.FREED, E.DRAINED], S.ENDED, 130),
    "another try: told to end while returning": ([ALLOCATED, LOST, FINISHED, TERM, E.FREED, E.DRAINED], S.ENDED, 143),
    "another try: stdout broken while returning": ([ALLOCATED, LOST, FINISHED, FULL, E.FREED, E.DRAINED], S.ENDED, 125),
    "another try: ^C while asking again": ([*FAILED_TRY, E.INTERRUPT, REFUSED], S.ENDED, 130),
    "another try: no CPA takes the nodes back": (
        [ALLOCATED, LOST, FINISHED, *[(E.NOT_FREED, "no CPA")] * (1 + RETURNS), E.HANDED, E.DRAINED], S.ENDED, 125,
    ),
    "another try: the nodes are taken back after a while": (
        [ALLOCATED, LOST, FINISHED, *[(E.NOT_FREED, "no CPA")] * 2, E.FREED, *RUN, *END], S.ENDED, 0,
    ),
    "another try: ^C while no CPA takes the nodes back": (
        [ALLOCATED, LOST, FINISHED, (E.NOT_FREED, "no CPA"), E.INTERRUPT, (E.NOT_FREED, "no CPA"), E.HANDED, E.DRAINED],
        S.ENDED, 130,
    ),
}  # fmt: skip


def launch_for(name: str) -> Launch:
    return Launch(bad_exit_ends=False, retries=3 if name.startswith("another try") else 0)


def play(events: list[Any], launch: Launch) -> tuple[list[Any], set[tuple[State, Event]]]:
    actions, used = [], set()
    for event in events:
        name, *facts = event if isinstance(event, tuple) else (event,)
        used.add((launch.state, name))
        actions += launch.handle(name, *facts)
    return actions, used


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_in_its_state_and_status(name: str) -> None:
    events, state, status = SCENARIOS[name]
    launch = launch_for(name)
    actions, used = play(events, launch)
    assert launch.state is state
    assert launch.exit_status == status
    assert used <= set(TRANSITIONS), "a scenario uses only what is in the table"
    assert actions[-1][0] is Do.LEAVE


def test_every_transition_is_in_a_scenario() -> None:
    used = set().union(*(play(events, launch_for(name))[1] for name, (events, _, _) in SCENARIOS.items()))
    assert set(TRANSITIONS) - used == set()


def test_every_state_is_reached_and_left() -> None:
    reached = {state for _, states in TRANSITIONS.values() for state in states} | {S.ALLOCATING}
    assert reached == set(S)
    assert {state for state, _ in TRANSITIONS} == set(S) - {S.ENDED}


def names_of(actions: list[Any]) -> list[Do]:
    return [action[0] for action in actions]


def test_workers_of_a_job_try_one_node_after_the_other_if_nodes_state_lasting_reasons() -> None:
    """Each once: its owner decides when all have been tried often enough."""

    def full(node: str) -> tuple[Any, ...]:
        return E.FAILED, node, f"{node}: /dev/shm is full", "", 125, "launch", True

    launch = Launch(bad_exit_ends=True, for_job=True)
    actions, _ = play([ALLOCATED, full("n0"), FINISHED, E.FREED, ALLOCATED, full("n1"), FINISHED, E.FREED], launch)
    assert launch.state is S.ALLOCATING and launch.tries.avoided == ["n0", "n1"]
    assert names_of(actions).count(Do.ALLOCATE) == 2 and Do.NODE_FAILED not in names_of(actions)
    play([ALLOCATED, full("n1")], launch)
    assert launch.state is S.CLEARING, "it was left out in vain"

    launch = Launch(bad_exit_ends=False)
    play([ALLOCATED, full("n0")], launch)
    assert launch.state is S.CLEARING, "a user's launch says what is wrong"


def test_no_go_without_the_cpas_word() -> None:
    launch = Launch(bad_exit_ends=False)
    actions, _ = play([ALLOCATED, READY], launch)
    assert Do.GO not in names_of(actions)
    assert names_of(launch.handle(E.CONFIRMED)) == [Do.GO]


def test_a_failed_try_reports_its_node_gives_back_and_asks_again() -> None:
    launch = launch_for("another try")
    actions, _ = play(FAILED_TRY, launch)
    said = next(action[1] for action in actions if action[0] is Do.STATUS)
    assert "n1: no memory" in said and "1 of 3" in said
    reported, freed, asked = (names_of(actions).index(do) for do in (Do.NODE_FAILED, Do.FREE, Do.ALLOCATE))
    assert reported < freed < asked and Do.SAY not in names_of(actions)
    assert (launch.state, launch.outcome.exit_status, launch.outcome.processor_error) == (S.ALLOCATING, None, False)


def test_a_node_where_a_launch_child_stands_still_is_avoided_and_not_reported() -> None:
    """The CPA waits for its PCT's word before it frees the processors there."""
    launch = launch_for("another try")
    actions, _ = play([ALLOCATED, READY, STALLED, OVERDUE], launch)
    assert Do.NODE_FAILED not in names_of(actions) and launch.outcome.lost_nodes == ["n1"]
    assert launch.tries.avoided == ["n1"] and names_of(actions).index(Do.SWEEP) < names_of(actions).index(Do.FREE)
    play([E.FREED], launch)
    assert (launch.state, launch.outcome.lost_nodes, launch.tries.avoided) == (S.ALLOCATING, [], ["n1"])


def test_the_last_failure_is_told_with_the_refusal() -> None:
    launch = launch_for("another try")
    actions, _ = play([*FAILED_TRY, REFUSED], launch)
    (said,) = [action for action in actions if action[0] is Do.SAY]
    assert "n1: no memory" in said[1] and "2 are free" in said[1]


def test_a_root_that_stands_still_is_blamed_alone() -> None:
    launch = launch_for("no retry")
    actions, _ = play([ALLOCATED, OVERDUE], launch)
    assert [action[1] for action in actions if action[0] is Do.NODE_FAILED] == ["n0"]
    assert names_of(actions).index(Do.SWEEP) < names_of(actions).index(Do.FREE)


def test_a_bad_exit_ends_the_job_only_with_kill() -> None:
    for ends in (False, True):
        launch = Launch(bad_exit_ends=ends)
        play(RUN, launch)
        actions = launch.handle(E.EXITS, exits(EXIT_3))
        assert ((Do.SIGNAL, 15, None) in actions) is ends
        play([(E.EXITS, [[r, ENDED_BY_15, 0.1] for r in (1, 2, 3)]), *END], launch)
        assert launch.exit_status == (3 if ends else 143)


def test_ranks_that_exit_badly_are_announced_while_others_run() -> None:
    def announced(events: list[Any], *, ends: bool = False) -> list[Any]:
        actions, _ = play([*RUN, *events], Launch(bad_exit_ends=ends))
        return [action[1] for action in actions if action[0] is Do.ANNOUNCE]

    assert announced([(E.EXITS, exits(EXIT_3, ENDED_BY_11, 0))]) == [[0, 1]]
    assert announced([(E.EXITS, exits(EXIT_3, 0, 0, 0))]) == [], "the completion table tells of all at once"
    assert announced([(E.EXITS, exits(0, 0))]) == []
    assert announced([(E.EXITS, exits(EXIT_3))], ends=True) == [], "then yod ends the others"
    assert announced([E.INTERRUPT, (E.EXITS, exits(EXIT_3, ENDED_BY_11))]) == [], "what comes of ^C is no news"
    assert announced([E.KILL, (E.EXITS, exits(ENDED_BY_9))]) == []


def test_a_lost_node_says_what_still_runs() -> None:
    launch = Launch(bad_exit_ends=False)
    actions, _ = play([*RUN, LOST], launch)
    (hint,) = [action[2] for action in actions if action[0] is Do.SAY]
    assert hint == "2 of 4 ranks still run: yod -signal TERM 7 ends the launch"


class Clock:
    """Timers in the order of their time, which passes when nothing else is left to do."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, int, Any]] = []

    def after(self, seconds: float, call: Any) -> None:
        heapq.heappush(self._calls, (self.now + seconds, len(self._calls), call))

    def pass_until(self, at: float) -> None:
        while self._calls and self._calls[0][0] <= at:
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = at


def dying(clock: Clock, size: int, told: list[dict[str, Any]]) -> tuple[Launch, BadExits]:
    launch = Launch(bad_exit_ends=False)
    everybody = [[rank, 900 + rank, 0 if rank < size // 2 else 1] for rank in range(size)]
    play([(E.ALLOCATED, plan_of(size), 7), (E.READY, everybody), E.CONFIRMED], launch)
    return launch, BadExits(launch, clock.after, told.append, lambda: clock.now)


def die(launch: Launch, announcer: BadExits, rank: int, status: int) -> None:
    for action in launch.handle(E.EXITS, [[rank, status, 0.5]]):
        if action[0] is Do.ANNOUNCE:
            announcer.add(action[1])


def test_ranks_that_die_together_are_one_line() -> None:
    clock, told = Clock(), []  # type: tuple[Clock, list[dict[str, Any]]]
    launch, announcer = dying(clock, 8, told)
    for rank in (1, 2, 5):
        die(launch, announcer, rank, ENDED_BY_11)
    clock.pass_until(1000.2)
    (event,) = told
    assert [(end["ranks"], end["nodes"], end["signal"], end["core"]) for end in event["ends"]] == [
        ([1, 2, 5], ["n0", "n1"], 11, False)
    ]
    assert lines(event, "^C") == [
        "rank 1-2,5 on n0-n1: SIGSEGV (Segmentation fault), 0.5 s; rank 0,3-4,6-7 still run (^C ends them)"
    ]
    for rank in (0, 3, 4, 6, 7):
        die(launch, announcer, rank, ENDED_BY_11)
    clock.pass_until(1010.0)
    assert len(told) == 1, "all have ended: the completion table tells it"


def test_ten_thousand_ranks_that_die_one_by_one_are_no_flood() -> None:
    clock, told = Clock(), []  # type: tuple[Clock, list[dict[str, Any]]]
    launch, announcer = dying(clock, 10_000, told)
    for rank in range(9_999):
        die(launch, announcer, rank, (rank % 200 + 1) << 8)
        clock.pass_until(clock.now + 0.02)
        assert rank < 6 or told, "the first ones are told at once"
    clock.pass_until(clock.now + 60)
    shown = [line for event in told for line in lines(event, "^C")]
    assert 5 < len(shown) < 80 and len(told) < 16 and max(map(len, shown)) < 250, (len(shown), len(told))
    named = [rank for event in told for end in event["ends"] for rank in end["ranks"]]
    assert sorted(named) == list(range(9_999)), "each is announced, once"


def test_a_core_dump_is_named() -> None:
    clock, told = Clock(), []  # type: tuple[Clock, list[dict[str, Any]]]
    launch, announcer = dying(clock, 4, told)
    die(launch, announcer, 1, 11 | 0x80)
    clock.pass_until(1001.0)
    assert told[0]["ends"][0]["core"] and "SIGSEGV (Segmentation fault, core dumped)" in told[0]["ends"][0]["text"]


def test_ranks_without_memory_are_one_line_and_those_that_somebody_killed_another() -> None:
    launch = Launch(bad_exit_ends=False)
    second = (E.OUT_OF_MEMORY, "n1", 3, OutOfMemory(300 << 20, 512 << 20, 8 << 30))
    died = (E.EXITS, exits(ENDED_BY_9, 137 << 8, ENDED_BY_9, ENDED_BY_9))
    actions, _ = play([*RUN, OUT_OF_MEMORY, second, died], launch)
    assert completion_rows(launch.ranks) == [
        "rank 0 on n0: SIGKILL (Killed), 0.5 s",
        "rank 1 on n0: exit 137, 0.5 s",
        "rank 2-3 on n1: out of memory, SIGKILL from the kernel"
        " (it had 300 MiB to 498 MiB, its control group may have 512 MiB), 0.5 s",
    ]
    told = {action[1]["rank"]: action[1].get("out_of_memory") for action in actions if action[0] is Do.TELL}
    assert told == {0: None, 1: None, 2: {"had": 498 << 20, "limit": 512 << 20, "host": 8 << 30},
                    3: {"had": 300 << 20, "limit": 512 << 20, "host": 8 << 30}}  # fmt: skip
    assert launch.outcome.reason == "rank 2 on n1 ran out of memory, it had 498 MiB"
    assert launch.exit_status == 137


def test_a_host_without_memory_and_a_shell_whose_child_died() -> None:
    launch = Launch(bad_exit_ends=False)
    host = (E.OUT_OF_MEMORY, "n0", 0, OutOfMemory(0, 0, 64 << 30))
    play([*RUN, host, (E.EXITS, exits(137 << 8, 0, 0, 0))], launch)
    assert completion_rows(launch.ranks, [0]) == [
        "rank 0 on n0: out of memory, SIGKILL from the kernel to its child: exit 137 (the host has 64 GiB), 0.5 s"
    ]


def test_kill_after_the_grace_when_a_rank_does_not_listen() -> None:
    launch = Launch(bad_exit_ends=True)
    play([*RUN, (E.EXITS, exits(EXIT_3))], launch)
    assert (Do.KILL,) in launch.handle(E.GRACE_OVER)
    assert launch.handle(E.GRACE_OVER) == []


def test_the_grace_after_a_signal_to_yod_is_not_that_after_a_bad_exit() -> None:
    for event, grace_s in (((E.TERMINATE, 15), 30.0), ((E.EXITS, exits(EXIT_3)), 5.0)):
        launch = Launch(bad_exit_ends=True, grace_s=30.0)
        actions, _ = play([*RUN, event], launch)
        assert (Do.GRACE, grace_s) in actions


def test_a_failed_node_is_reported_and_a_bad_program_is_not() -> None:
    for event, reported in ((NODE_FAILED, True), (FAILED, False)):
        launch = Launch(bad_exit_ends=False)
        play([ALLOCATED], launch)
        actions, _ = play([event], launch)
        assert (Do.NODE_FAILED in names_of(actions)) is reported
        assert Do.KILL in names_of(actions)


def test_leaving_at_once_does_not_unregister() -> None:
    """Else the RCA would take it for an orderly end and nobody would clean up."""
    launch = Launch(bad_exit_ends=False)
    actions, _ = play([*RUN, E.INTERRUPT, E.INTERRUPT, E.INTERRUPT], launch)
    assert Do.UNREGISTER not in names_of(actions)
    assert Do.FREE not in names_of(actions)


facts: dict[Event, st.SearchStrategy[tuple[Any, ...]]] = {
    E.ALLOCATED: st.just(ALLOCATED[1:]),
    E.REFUSED: st.just(REFUSED[1:]),
    E.READY: st.lists(st.integers(0, 3), max_size=4).map(lambda r: (ready(*r),)),
    E.FAILED: st.sampled_from([FAILED[1:], NODE_FAILED[1:], STALLED[1:]]),
    E.CONFIRMED: st.just(()),
    E.UNCONFIRMED: st.just(("expired", "", 125)),
    E.EXITS: st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 256, 9, 15]), st.just(0.1))).map(lambda x: (x,)),
    E.OUT_OF_MEMORY: st.just(OUT_OF_MEMORY[1:]),
    E.LOST: st.sampled_from([LOST[1:], ([[0, [0, 1]], [1, [2, 3]]], "cut")]),
    E.SILENT: st.sampled_from([SILENT[1:], ROOT_SILENT[1:]]),
    E.BACK: st.just(BACK[1:]),
    E.FINISHED: st.sampled_from([([],), ([["n1", 5]],)]),
    E.ROOT_ENDED: st.just(("gone",)),
    E.FREED: st.just(()),
    E.NOT_FREED: st.just(("no CPA",)),
    E.HANDED: st.just(()),
    E.NOT_HANDED: st.just(("no RCA",)),
    E.DRAINED: st.just(()),
    E.INTERRUPT: st.just(()),
    E.TERMINATE: st.sampled_from([(15,), (1,)]),
    E.SIGNAL: st.sampled_from([(10, None), (15, None), (9, [0])]),
    E.KILL: st.just(()),
    E.GRACE_OVER: st.just(()),
    E.OVERDUE: st.just(OVERDUE[1:]),
    E.LIMIT: st.sampled_from([("time is up", 124), ("waited", None)]),
    E.ABORTED: st.sampled_from([("rank 1 called MPI_Abort with 7", 7), ("rank 1 died", None)]),
    E.OUTPUT_BROKEN: st.sampled_from([BROKEN[1:], FULL[1:]]),
}  # fmt: skip
any_event = st.sampled_from(list(E)).flatmap(lambda event: facts[event].map(lambda more: (event, *more)))


@pytest.mark.storm
@settings(max_examples=long(40, 8000), deadline=None)
@given(st.booleans(), st.lists(any_event, max_size=30), st.sampled_from([[], [ALLOCATED], [ALLOCATED, READY], RUN]))
def test_any_order_of_events_starts_once_and_frees_once(ends: bool, events: list[Any], before: list[Any]) -> None:
    for retries in (0, 3):
        check_whatever_happens(Launch(bad_exit_ends=ends, retries=retries), events, before)


def check_whatever_happens(launch: Launch, events: list[Any], before: list[Any]) -> None:
    actions, _ = play([*before, *events], launch)
    names = names_of(actions)
    assert 0 <= launch.exit_status <= 255
    assert names.count(Do.GO) <= 1
    assert names.count(Do.ALLOCATE) <= launch.tries.limit
    assert names.count(Do.LOAD) <= 1 + names.count(Do.ALLOCATE)
    not_taken = sum(event[0] is E.NOT_FREED for event in events)
    given_back = names.count(Do.FREE)
    assert given_back <= 1 + names.count(Do.ALLOCATE) + not_taken, "what a try held is given back until it is taken"
    assert names.count(Do.LEAVE) == (launch.state is S.ENDED)
    if Do.GO in names:
        assert Do.CONFIRM in names[: names.index(Do.GO)]
        assert Do.ALLOCATE not in names[names.index(Do.GO) :], "what ran is never tried again"
    if launch.state is S.ENDED:
        assert names[-1] is Do.LEAVE
    # whoever unregisters has given back what it held, or said that nobody would take it
    if Do.UNREGISTER in names and Do.LOAD in names:
        assert Do.FREE in names


@pytest.mark.parametrize("events", [[], [ALLOCATED]])
def test_a_launch_that_a_job_s_owner_no_longer_needs_has_not_failed(events: list[Any]) -> None:
    for for_job, number, status in ((True, 15, 0), (True, 2, 130), (False, 15, 143)):
        launch = Launch(bad_exit_ends=False, for_job=for_job)
        play(events, launch)
        launch.handle(E.TERMINATE, number)
        if not events:
            play([ALLOCATED], launch)  # the CPA's answer crosses the signal
        assert launch.exit_status == status
        assert bool(launch.outcome.reason) == bool(status)
