"""From what the tools print to the calls of a merged tree."""

from __future__ import annotations

from agents.pct.debug import parsers
from agents.pct.debug.parsers import Frame, Thread

#: eu-addr2line -a -f -C -i -p PID, with an inlined call and an address without lines
ADDR2LINE = """\
0x000055ae076ec15e
deep inlined at /home/ada/w.c:8:9 in main
/home/ada/w.c:3:48
main
/home/ada/w.c:8:9
0x000055ae076ec071
_start
??:0
0x00007f6856dd7305
call_init inlined at ./csu/../csu/libc-start.c:347:5 in __libc_start_main@@GLIBC_2.34
./csu/../csu/libc-start.c:128:20
__libc_start_main_impl
./csu/../csu/libc-start.c:347:5
"""

#: /proc/PID/maps
MAPS = """\
55ae076eb000-55ae076ec000 r--p 00000000 fe:00 2147202                    /home/ada/w
55ae076ec000-55ae076ed000 r-xp 00001000 fe:00 2147202                    /home/ada/w
7f6856db0000-7f6856dd6000 r--p 00000000 fe:00 1180                       /usr/lib/x86_64-linux-gnu/libc.so.6
7f6856e00000-7f6856e01000 r-xp 00003000 fe:00 1181                       /home/ada/lib.so
"""


def test_addr2line_output_becomes_frames() -> None:
    found = parsers.parse_addr2line(ADDR2LINE)
    assert found[0x55AE076EC15E] == [Frame("deep", "/home/ada/w.c:3"), Frame("main", "/home/ada/w.c:8")]
    assert found[0x55AE076EC071] == [Frame("_start", "")]
    assert [frame.function for frame in found[0x7F6856DD7305]] == ["call_init", "__libc_start_main_impl"]
    assert parsers.parse_addr2line("eu-addr2line: cannot\nfoo\n") == {}


def test_where_modules_begin() -> None:
    found = parsers.beginnings(MAPS, {"/home/ada/w", "/home/ada/lib.so", "/gone"})
    assert found == {"/home/ada/w": 0x55AE076EB000, "/home/ada/lib.so": 0x7F6856E00000 - 0x3000}


def frame(function: str, module: str = "/home/ada/w", address: int = 0x10, where: str = "") -> Frame:
    return Frame(function, where, module, address)


LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


def test_what_all_programs_have_is_left_out() -> None:
    thread = Thread(7, [
        frame("pause", LIBC), frame("main", address=0x55AE076EC15E),
        frame("__libc_start_call_main", LIBC), frame("__libc_start_main@@GLIBC_2.34", LIBC), frame("_start"),
    ])  # fmt: skip
    lines = {0x55AE076EC15E: parsers.parse_addr2line(ADDR2LINE)[0x55AE076EC15E]}
    assert parsers.native(thread, lines, {}) == [
        ("main", "w.c", 8, "c"), ("deep", "w.c", 3, "c"), ("pause", "libc.so.6", 0, "c"),
    ]  # fmt: skip


def test_a_stripped_program() -> None:
    thread = Thread(7, [frame("clock_nanosleep", LIBC), frame("", address=0x1558), frame("__libc_start_main", LIBC),
                        frame("", address=0x1621)])  # fmt: skip
    begin = {"/home/ada/w": 0x1000}
    assert parsers.native(thread, {}, begin) == [("+0x558", "w", 0, "c"), ("clock_nanosleep", "libc.so.6", 0, "c")]


def test_before_its_first_instruction() -> None:
    thread = Thread(7, [frame("_start", "/usr/lib/ld-linux.so.2")])
    assert parsers.native(thread, {}, {}) == [("_start", "ld-linux.so.2", 0, "c")]


def test_gdb_has_lines_itself() -> None:
    thread = Thread(7, [frame("inner", "", 0, "crash.c:5"), frame("main", "", 0, "crash.c:9")])
    assert parsers.native(thread, {}, {}) == [("main", "crash.c", 9, "c"), ("inner", "crash.c", 5, "c")]


def test_python_above_and_c_below() -> None:
    own = parsers.python([
        {"name": "inner", "filename": "/home/ada/t.py", "short_filename": "t.py", "line": 4},
        {"name": "<module>", "filename": "/home/ada/t.py", "short_filename": None, "line": 7},
    ])  # fmt: skip
    assert own == [("<module>", "/home/ada/t.py", 7, "python"), ("inner", "t.py", 4, "python")]
    evaluates = ("_PyEval_EvalFrameDefault", "python3.11", 0, "c")
    below = [
        ("Py_RunMain", "python3.11", 0, "c"), evaluates, ("_PyFunction_Vectorcall", "python3.11", 0, "c"), evaluates,
        ("+0x145963", "python3.11", 0, "c"), ("clock_nanosleep", "libc.so.6", 0, "c"),
    ]  # fmt: skip
    assert parsers.mixed(own, below) == [*own, ("clock_nanosleep", "libc.so.6", 0, "c")]
    assert parsers.mixed(own, [("recv", "libc.so.6", 0, "c")]) == own, "a thread that is not seen to evaluate Python"
