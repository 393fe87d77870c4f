"""The parsers of stack traces against what the tools printed (tests/unit/debug/stacks)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.debug import faulthandler
from agents.pct.debug.parsers import (
    Backtrace,
    Frame,
    Thread,
    parse_eu_stack,
    parse_gdb,
    parse_maps,
    parse_py_spy,
    parse_syscall,
    place,
)
from redmesh.byte_text import from_bytes, to_bytes

RECORDED = Path(__file__).parent / "stacks"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def functions(thread: Thread) -> list[str]:
    return [frame.function for frame in thread.frames]


def test_eu_stack_with_threads() -> None:
    first, second = parse_eu_stack(recorded("eu-stack-threads"))
    assert functions(first)[:2] == ["pause", "main"]
    assert first.frames[1]._replace(address=0) == Frame("main", "/home/ada/crash.c:12", "/home/ada/crash", 0)
    assert first.frames[1].address and first.frames[-1].function == "_start" and not first.frames[-1].where
    assert functions(second) == ["pause", "idle", "start_thread", "__clone3"]
    assert second.tid > first.tid


def test_eu_stack_with_names_that_hold_everything() -> None:
    (thread,) = parse_eu_stack(recorded("eu-stack-cpp"))
    assert len(thread.frames) == 12
    assert thread.frames[1].function.startswith("(anonymous namespace)::Box<int>::operator()(std::__cxx11::basic_")
    assert thread.frames[1].where == "/home/ada/odd.cc:5"
    assert thread.frames[7].function == "call(std::function<int (int)>)"
    assert all(frame.module for frame in thread.frames)


def test_eu_stack_without_symbols() -> None:
    (thread,) = parse_eu_stack(recorded("eu-stack-stripped"))
    assert len(thread.frames) == 12
    assert thread.frames[1].function == "" and thread.frames[1].module == "/home/ada/stripped"
    assert str(thread.frames[1]).endswith(" in /home/ada/stripped") and str(thread.frames[1]).startswith("0x")


def test_gdb_with_threads() -> None:
    first, second = parse_gdb(recorded("gdb-threads"))
    assert functions(first) == ["__libc_pause", "main"] and first.name == "crash"
    assert first.frames[1].where == "crash.c:12"
    assert functions(second) == ["__libc_pause", "idle", "start_thread", "clone3"]


def test_gdb_with_names_that_hold_everything() -> None:
    (thread,) = parse_gdb(recorded("gdb-cpp"))
    assert functions(thread)[1] == "(anonymous namespace)::Box<int>::operator()"
    assert functions(thread)[6] == "std::function<int (int)>::operator()(int) const"
    assert functions(thread)[7:] == ["call(std::function<int(int)>)", "main"]
    assert [frame.where for frame in thread.frames[1:3]] == ["odd.cc:5", "odd.cc:11"]


def test_gdb_in_a_handler_and_without_symbols() -> None:
    (thread,) = parse_gdb(recorded("gdb-handler"))
    assert functions(thread)[1:3] == ["handler", "<signal handler called>"] and functions(thread)[-1] == "main"
    (thread,) = parse_gdb(recorded("gdb-stripped"))
    assert len(thread.frames) == 12 and functions(thread)[1] == "" and thread.frames[1].address


def test_py_spy_output_becomes_frames_of_each_thread() -> None:
    main, worker = parse_py_spy(recorded("py-spy"))
    assert main.name == "MainThread" and worker.name == "worker (2)"
    assert main.frames == [
        Frame("inner", "t.py:4"),
        Frame("A.outer.<locals>.<listcomp>", "t.py:6"),
        Frame("A.outer", "t.py:6"),
        Frame("<module>", "t.py:7"),
    ]


def test_what_proc_says() -> None:
    maps = parse_maps(
        "55d0a0000000-55d0a0001000 r--p 00000000 fe:00 42    /home/ada/a b\n"
        "55d0a0001000-55d0a0002000 r-xp 00001000 fe:00 42    /home/ada/a b\n"
        "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0\n"
    )
    assert place(0x55D0A0001123, maps).module == "/home/ada/a b+0x1123"
    assert place(0x7FFD00000001, maps).module.startswith("memory without a file+")
    assert place(0x1, maps).module == "no mapped memory"
    assert parse_syscall("running\n") == (None, 0, 0)
    assert parse_syscall("-1 0x7ffc0 0x55d0a0001123\n") == (None, 0x7FFC0, 0x55D0A0001123)
    assert parse_syscall("230 0x1 0x1 0x7ffc1 0x0 0x0 0x0 0x7ffc2 0x7f67\n") == (230, 0x7FFC2, 0x7F67)


@pytest.mark.parametrize("parse", [parse_eu_stack, parse_gdb, parse_py_spy])
@given(text=st.text(max_size=80), name=st.sampled_from(["eu-stack-cpp", "gdb-cpp", "py-spy"]), cut=st.integers(0, 3000))
def test_no_output_breaks_a_parser(parse, text: str, name: str, cut: int) -> None:  # type: ignore[no-untyped-def]
    for thread in parse(recorded(name)[:cut] + text):
        assert thread.frames and thread.tid >= 0


FRAMES = st.lists(st.builds(Frame, st.text(), st.text(), st.text(), st.integers(0, 2**64 - 1)), max_size=3)


@given(st.lists(st.builds(Thread, st.integers(1), FRAMES, st.text()), max_size=3), st.text())
def test_a_message_is_read_back(threads: list[Thread], note: str) -> None:
    backtrace = Backtrace(1, "gdb", threads, note)
    assert Backtrace.from_message(backtrace.as_message()) == backtrace


def test_faulthandler_writes_ascii_alone(tmp_path: Path) -> None:
    """File and function names, which have bytes that are not UTF-8 or other characters."""
    script = os.path.join(os.fsencode(tmp_path), b"caf\xe9.py")
    Path(os.fsdecode(script)).write_text(
        "import faulthandler\ndef aufhören():\n    faulthandler.dump_traceback()\naufhören()"
    )
    written = subprocess.run([sys.executable, script], capture_output=True, check=True).stderr
    main, _ = faulthandler.read(from_bytes(written))
    assert [(function, to_bytes(file)) for function, file, *_ in main] == [
        ("<module>", b"caf\xe9.py"), ("aufhören", b"caf\xe9.py"),
    ]  # fmt: skip
