"""What -sleep, -cpu-bind, -strace and their like mean, and how stacks that are the same are told once."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.events.crashes import Traces
from console.launch.options.run import NICE, TRACES, bind, ranks, read, sleep

CWD = b"/home/ada"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("after-fork", ("fork", 60.0)),
        ("before-exec", ("exec", 60.0)),
        ("after-exec:0.5", ("loaded", 0.5)),
        ("before-go:3", ("go", 3.0)),
        ("go", ("go", 60.0)),
        ("fork:1", ("fork", 1.0)),
    ],
)
def test_places_to_sleep(text: str, meant: tuple[str, float]) -> None:
    assert sleep(text) == meant


@pytest.mark.parametrize("text", ["", "exec", "exec:5", "later", "go:", "go:-1", "go:nan", "go:4000", "go:x"])
def test_no_places_to_sleep(text: str) -> None:
    with pytest.raises(UsageError):
        sleep(text)


@given(st.sets(st.integers(0, 99), min_size=1))
def test_a_list_of_ranks_is_its_set(wanted: set[int]) -> None:
    assert ranks(",".join(map(str, wanted)), 100) == sorted(wanted)
    low, high = min(wanted), max(wanted)
    assert ranks(f"{low}..{high}", 100) == ranks(f"{low}-{high}", None) == list(range(low, high + 1))


@pytest.mark.parametrize("text", ["", "a", "1,", "3..1", "-1", "4", "1..4", "0,,1", "1."])
def test_no_list_of_ranks(text: str) -> None:
    with pytest.raises(UsageError):
        ranks(text, 4)


def test_binding_is_a_word_or_a_map() -> None:
    assert bind("core", 2) == {"each": 2}
    assert bind("map:0,2,4", 1) == {"each": 1, "map": [0, 2, 4]}
    assert bind("cores", 2) == bind("core", 2), "srun's word"
    for text in ("", "rank", "map", "map:", "map:0,", "map:a", "core:1", "map:-1"):
        with pytest.raises(UsageError):
            bind(text, 1)


def test_what_a_command_line_says_is_in_the_load() -> None:
    manner = read({"bt": True, "Log": True, "nice": True, "cpu-bind": "core", "sleep": "fork:2"}, 4, CWD)
    assert manner.message == {
        "backtrace": TRACES,
        "log": True,
        "nice": NICE,
        "bind": {"each": 1},
        "sleep": {"where": "fork", "seconds": 2.0},
    }
    assert manner.allocation() == {"preemptible": True, "pending_s": 62.0}
    assert read({"cpu-bind": "none"}, 4, CWD).message == {}
    assert read({"attach": True}, 4, CWD).hold and read({"g": True}, 4, CWD).backtrace


def test_sleeping_before_go_is_not_the_nodes_matter() -> None:
    manner = read({"sleep": "before-go:2"}, 4, CWD)
    assert manner.message == {} and manner.confirm_after_s == 2.0


def test_strace_options_become_a_request() -> None:
    given_ = {"strace": "out", "straceoptions": "-f -e 'trace=open,close'", "stracenodes": "0,2..3"}
    assert read(given_, 4, CWD).message["strace"] == {
        "dir": os.path.join(CWD.decode(), "out"),
        "options": ["-f", "-e", "trace=open,close"],
        "ranks": [0, 2, 3],
    }
    assert read({"strace": "/x"}, 4, CWD).message["strace"] == {"dir": "/x", "options": [], "ranks": [0]}
    assert read({"strace": "/x", "stracenodes": "all"}, 4, CWD).message["strace"]["ranks"] is None


@pytest.mark.parametrize(
    "words",
    [
        {"bt": True, "alloc": True},
        {"g": True, "strace": "x"},
        {"attach": True, "strace": "x"},
        {"release-after": 1.0},
        {"straceoptions": "-f"},
        {"stracenodes": "0"},
        {"strace": "x", "straceoptions": "-o y"},
        {"strace": "x", "straceoptions": "'"},
        {"pty": True, "detach": True},
        {"pty": True, "label": True},
        {"pty-rank": 4},
    ],
)
def test_what_cannot_be(words: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        read(words, 4, CWD)


def trace(*frames: tuple[str, str, str, int], tid: int = 7, note: str = "", more: int = 0) -> dict[str, object]:
    threads = [[tid, "", [list(frame) for frame in frames]]]
    threads += [[tid + k, "helper", [["wait", "", "", 0]]] for k in range(1, more + 1)]
    return {"pid": tid, "tool": "gdb", "note": note, "threads": threads}


def test_the_same_stack_at_other_addresses_is_told_once() -> None:
    traces = Traces()
    for rank in (5, 0, 1, 2):
        node = f"n{rank // 2}"
        traces.add(rank, node, trace(("inner", "a.c:3", "/a", 0x1000 + rank), ("main", "", "/a", rank), tid=rank + 9))
    traces.add(3, "n1", trace(("", "", "", 0xBEEF), note="no symbols", more=1))
    assert traces.rows() == [
        "rank 0-2,5 on n0-n2: stack (by gdb):",
        "  #0  inner at a.c:3",
        "  #1  main in /a",
        "rank 3 on n1: stack (by gdb):",
        "  thread 0:",
        "  #0  0xbeef",
        "  thread 1 (helper):",
        "  #0  wait",
        "  no symbols",
    ]


@pytest.mark.parametrize(
    "broken", [{}, {"threads": 1, "tool": "", "note": ""}, {"threads": [[1]], "tool": "", "note": ""}]
)
def test_what_is_no_trace(broken: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Traces().add(0, "n0", broken)
