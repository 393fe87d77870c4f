"""The stacks of ranks that died: what nodes read and what Python printed, as one tree; the user's innermost line."""

from typing import Any

from console.tui.model.launch import Run
from console.tui.model.output import STDERR, STDOUT, Line
from console.tui.model.stacks.crash import Crashes, died, tracebacks
from console.tui.model.stacks.rows import Row, innermost, of_user, rows

LIB = "/usr/lib/python3.11"
THREAD = [
    "Exception in thread Thread-1 (work):",
    "Traceback (most recent call last):",
    f'  File "{LIB}/threading.py", line 1045, in _bootstrap_inner',
    "    self.run()",
    '  File "/home/ada/solve.py", line 7, in work',
    "    step()",
    "    ^^^^^^",
    f'  File "{LIB}/json/__init__.py", line 346, in loads',
    "    return _default_decoder.decode(s)",
    "ValueError: the cause",
]


def written(rank: int, texts: list[str], stream: int = STDERR) -> list[Line]:
    return [Line(rank, stream, text) for text in texts]


def event(*threads: Any, note: str = "") -> dict[str, Any]:
    found = [[at, "", [list(frame) for frame in frames]] for at, frames in enumerate(threads)]
    return {"at": 5.0, "node": "n0", "tool": "eu-stack", "note": note, "threads": found}


def shown(crashes: Crashes, lines: list[Line], ranks: set[int], first: int = 0) -> list[Row]:
    found = died(crashes, lines, frozenset(ranks), first=first, launcher=7, at=6.0)
    assert found is not None
    return rows(found.told["tree"], whole=False)


def test_the_last_traceback_of_a_rank_is_read_and_others_are_left_alone() -> None:
    lines = [
        *written(1, ["Traceback (most recent call last):", '  File "/a.py", line 1, in old', "KeyError: 1"]),
        *written(1, ["a warning"]),
        *written(2, THREAD, STDOUT),
        *(Line(1, STDERR, f"[rank1]: {text}") for text in THREAD),
        *written(3, THREAD),
    ]
    found = tracebacks(lines, frozenset((1, 2)))
    assert list(found) == [1]
    assert [function for function, _, _ in found[1]] == ["_bootstrap_inner", "work", "loads"]
    assert found[1][1] == ("work", "/home/ada/solve.py", 7)


def test_a_traceback_long_before_the_end_is_not_why_the_rank_died() -> None:
    assert not tracebacks(written(0, [*THREAD, *["goes on"] * 200]), frozenset((0,)))
    assert not tracebacks(written(0, ["Traceback (most recent call last):"]), frozenset((0,)))


def test_faulthandler_puts_the_newest_call_first() -> None:
    texts = [
        "Fatal Python error: Segmentation fault", "", "Current thread 0x00007fe22078e6c0 (most recent call first):",
        f'  File "{LIB}/ctypes/__init__.py", line 519 in string_at', '  File "/home/ada/solve.py", line 4 in <module>',
        "", "Thread 0x00007fe221227b80 (most recent call first):", '  File "/home/ada/other.py", line 9 in wait',
    ]  # fmt: skip
    assert tracebacks(written(0, texts), frozenset((0,)))[0] == [
        ("<module>", "/home/ada/solve.py", 4), ("string_at", f"{LIB}/ctypes/__init__.py", 519),
    ]  # fmt: skip


def test_the_cursor_opens_at_the_users_innermost_line() -> None:
    found = shown(Crashes(), written(2, THREAD), {2})
    assert [row.call for row in found] == ["_bootstrap_inner", "work", "loads"]
    assert found[innermost(found)].call == "work"
    only_library = [row for row in found if row.call != "work"]
    assert only_library[innermost(only_library)].call == "loads", "there is no line of the user's"
    assert innermost([]) == 0


def test_what_is_a_users_file() -> None:
    def there(path: str, line: int = 1) -> bool:
        return of_user(Row((0,), 0, "0", 1, "f", "", "", "", False, file=path, line=line))

    own = ("/home/ada/solve.py", "/home/ada/python/solve.py", "/home/ada/redmesh/solve.c")
    others = ("/opt/conda/lib/python3.12/queue.py", "/home/ada/venv/lib/python3.9/site-packages/numpy/linalg.py",
              "/usr/lib/python3/dist-packages/mpi4py/run.py", "<frozen runpy>", "solve.py")  # fmt: skip
    assert all(map(there, own)) and not any(map(there, others)) and not there(own[0], 0)


def test_the_thread_at_fault_comes_first_without_lines_of_the_systems_libraries() -> None:
    crashes = Crashes()
    at_fault = [("raise", "../sysdeps/raise.c:26", "/usr/lib/libc.so.6", 9), ("deep", "/home/ada/c.c:9", "/home/a", 8),
                ("work", "/home/ada/c.c:4", "/home/a", 7),
                ("__clone3", "../clone.S:81", "/usr/lib/libc.so.6", 6)]  # fmt: skip
    main = [("join", "", "/usr/lib/libc.so.6", 5), ("main", "/home/ada/c.c:20", "/home/a", 4)]
    for rank in (3, 4):
        crashes.add(rank, event(at_fault, main, note="symbols are missing" if rank == 4 else ""))
    crashes.add(5, event(main))
    found = shown(crashes, [], {3, 4, 9}, first=4)
    assert [(row.call, row.where) for row in found] == [
        ("work", "c.c:4"), ("deep", "c.c:9"), ("raise", "in libc.so.6"), ("main", "c.c:20"), ("join", "in libc.so.6"),
    ]  # fmt: skip
    assert {row.ranks for row in found} == {"3-4"} and found[innermost(found)].call == "deep"
    told = died(crashes, [], frozenset((3, 4)), first=4, launcher=7, at=6.0)
    assert told is not None and told.told["missing"] == [{"ranks": "4", "node": "n0", "why": "symbols are missing"}]
    assert died(crashes, [], frozenset((9,)), first=9, launcher=7, at=6.0) is None


def test_pythons_calls_from_its_output_stand_before_the_interpreters() -> None:
    crashes = Crashes()
    crashes.add(2, event([("PyEval", "/build/ceval.c:1", "/opt/bin/python3.11", 5)], note="Python's frames: no py-spy"))
    found = died(crashes, written(2, THREAD), frozenset((2,)), first=2, launcher=7, at=6.0)
    assert found is not None and found.ranks == {2} and not found.told["missing"]
    calls = [row.call for row in rows(found.told["tree"], whole=False)]
    assert calls == ["_bootstrap_inner", "work", "loads", "PyEval"]


def test_a_stack_without_an_end_and_numbers_without_sense_do_no_harm() -> None:
    deep = ["Traceback (most recent call last):"] + [f'  File "{LIB}/threading.py", line 9, in _bootstrap'] * 5000
    found = shown(Crashes(), written(0, deep), {0})
    assert 0 < len(found) <= 200
    huge = ["Traceback (most recent call last):", f'  File "/a.py", line {"9" * 4000}, in f']
    assert not tracebacks(written(0, huge), frozenset((0,)))
    crashes = Crashes()
    crashes.add(0, event([("_bootstrap", "/a.c:1", "/a", 1)] * 5000))
    assert len(shown(crashes, [], {0})) <= 200
    run = Run(7, size=2)
    run.take({"event": "backtrace", "rank": 1 << 40, "signal": 11, **event([("f", "", "", 1)])})
    run.take({"event": "backtrace", "rank": 1, "signal": 11, **event([("f", "", "", "no address")])})
    assert not run.crashes.ranks
