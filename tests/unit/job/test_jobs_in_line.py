"""Jobs that wait for processors, and those that would wait for ever because calls that wait for them have all."""

from __future__ import annotations

from typing import Any

from console.jobs.waiting import JobInLine, Lines
from db.views.rows import LauncherRow, ProcessorRow, WaitingRow

OUTER, OTHER = "aaaaaaaa-1", "bbbbbbbb-1"


def row(kind: Any, **given: Any) -> Any:
    """A row of the database with None for what does not matter."""
    return kind(**{**dict.fromkeys(kind._fields), **given})


def launcher(number: int, job: str, uid: int = 0) -> Any:
    return row(LauncherRow, id=number, uid=uid, command=f"yodwork job {job[:8]}" if job else "sleep 9")


def lines(waiting: list[int], holders: list[int | None], live: list[Any]) -> Lines:
    """``waiting``: pids of yods that wait; ``holders``: the launcher of each processor."""
    requests = [row(WaitingRow, id=pid, uid=0, pid=pid, pid_started=1, size=1, precedence=0) for pid in waiting]
    return Lines(None, requests, live, [row(ProcessorRow, id=n, launcher=one) for n, one in enumerate(holders)])


def inner(pid: int, *callers: str) -> JobInLine:
    return JobInLine(f"inner-{pid}", [(pid, 1)], callers)


def gives_up(found: list[tuple[str, bool]]) -> list[bool]:
    return [stuck for _, stuck in found]


def test_a_program_that_has_all_processors_blocks_its_own_calls() -> None:
    outer, calls = [launcher(1, OUTER), launcher(2, OUTER)], [inner(11, f"{OUTER}:1"), inner(12, f"{OUTER}:2")]
    found = lines([11, 12], [1, 2], outer).why([JobInLine(OUTER, []), *calls])
    reason = "job aaaaaaaa, which waits for it, has all 2 processors of the mesh"
    assert found == [("", False), (reason, True), (reason, True)]
    assert gives_up(lines([11], [1, 2, None], outer).why(calls[:1])) == [False], "a processor is free"
    assert gives_up(lines([11], [1, 3], [*outer, launcher(3, "")]).why(calls[:1])) == [False], "a launch may end"
    foreign = [launcher(1, OUTER), launcher(2, OUTER, uid=7)]
    assert gives_up(lines([11], [1, 2], foreign).why(calls[:1])) == [False], "another user's job"


def test_a_worker_of_a_closed_executor_exits_after_its_call() -> None:
    live, closed = [launcher(1, OUTER), launcher(2, OUTER)], JobInLine(OUTER, [], closed=True)
    one, both = [inner(11, f"{OUTER}:1")], [inner(11, f"{OUTER}:1"), inner(12, f"{OUTER}:2")]
    assert gives_up(lines([11], [1, 2], live).why([closed, *one])) == [False, False]
    assert gives_up(lines([11, 12], [1, 2], live).why([closed, *both])) == [False, True, True]


def test_of_two_programs_that_block_each_other_the_last_gives_up() -> None:
    live, calls = [launcher(1, OUTER), launcher(2, OTHER)], [inner(12, f"{OUTER}:1"), inner(11, f"{OTHER}:2")]
    found = lines([11, 12], [1, 2], live).why(calls)
    reason = "job aaaaaaaa, which waits for it, and job bbbbbbbb, whose calls wait for processors too, have all 2"
    assert gives_up(found) == [True, False] and found[0][0].startswith(reason)
    assert found[1][0] == "first in the line: 1 processor not free yet"
    assert gives_up(lines([11], [1, 2], live).why(calls[1:])) == [False], "the other program goes on, and may end"


def test_calls_of_calls_wait_for_the_innermost() -> None:
    live = [launcher(1, OUTER), launcher(2, OTHER)]
    assert gives_up(lines([11], [1, 2], live).why([inner(11, f"{OTHER}:2", f"{OUTER}:1")])) == [True]
