"""Whole outputs out of parts: the bytes, and what is left when it fails."""

import array
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agents.linux import processes
from agents.yodio.yodparts import age, age_unless_linked, held_by, is_still, is_written, settle, written
from console.errors import ConsoleError
from console.sections.combine import combine
from console.sections.output import Output
from tests.support.terminals import Typist
from tests.support.waiting import freeze, wait_until

#: Appends its parts to its output, and waits before each of them; the process behind it does the same.
SLOW = """
o=$1; shift
touch begun
until test -e go; do sleep 0.02; done
for f; do cat $f >>$o; done
touch end
"""
ATTEMPT = """
import sys
from console.sections.combine import combine
from console.sections.output import Output
combine(Output("o", "p", "command", ("sh", "slow", "{out}", "{parts}")), sys.argv[1], sys.argv[2:], ".")
"""


def parts_in(path: Path, *contents: bytes) -> list[str]:
    for number, content in enumerate(contents):
        (path / f"p{number}").write_bytes(content)
    return [f"{path}/p{number}" for number in range(len(contents))]


def test_parts_stand_one_after_another_in_the_order_of_sections(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"one\n", b"", b"three\n")
    assert combine(Output("o", "p"), f"{tmp_path}/o", parts, "/") == 10
    assert (tmp_path / "o").read_bytes() == b"one\nthree\n"


def test_a_header_stands_once(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"HEAD1", b"HEAD2", b"HEAD3")
    combine(Output("o", "p", "header", header=4), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == b"HEAD123"
    with pytest.raises(ConsoleError, match="shorter than its header"):
        combine(Output("o", "p", "header", header=9), f"{tmp_path}/x", parts, "/")
    assert not (tmp_path / "x").exists()


def test_arrays_are_added_up_and_averaged(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *(b"HH" + array.array("f", [n, 2 * n, -n]).tobytes() for n in (1.0, 2.0, 4.5)))
    combine(Output("o", "p", "sum", dtype="float32", shape=(3,), header=2), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == b"HH" + array.array("f", [7.5, 15.0, -7.5]).tobytes()
    combine(Output("m", "p", "mean", dtype="float32", header=2), f"{tmp_path}/m", parts, "/")
    assert (tmp_path / "m").read_bytes() == b"HH" + array.array("f", [2.5, 5.0, -2.5]).tobytes()
    with pytest.raises(ConsoleError, match="have 18"):
        combine(Output("o", "p", "sum", dtype="float32", shape=(4,), header=2), f"{tmp_path}/o", parts, "/")
    with pytest.raises(ConsoleError, match="no dtype 'floot'"):
        combine(Output("o", "p", "sum", dtype="floot"), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").stat().st_size == 14, "what was whole stays"


def test_a_command_of_the_users_combines(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"b\n", b"a\n")
    combine(Output("o", "p", "command", command=("sort", "{parts}")), f"{tmp_path}/o", parts, str(tmp_path))
    assert (tmp_path / "o").read_bytes() == b"a\nb\n"
    combine(Output("o", "p", "command", command=("sort", "-r", "-o", "{out}", "{parts}")), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == b"b\na\n"
    with pytest.raises(ConsoleError, match="false ended with status 1"):
        combine(Output("o", "p", "command", command=("false",)), f"{tmp_path}/o", parts, "/")
    with pytest.raises(ConsoleError, match="no-such-program"):
        combine(Output("o", "p", "command", command=("no-such-program",)), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == b"b\na\n", "what was whole stays"
    assert sorted(os.listdir(tmp_path)) == ["o", "p0", "p1"]


def test_a_missing_part_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="p9: No such file") as caught:
        combine(Output("o", "p"), f"{tmp_path}/o", [*parts_in(tmp_path, b"x"), f"{tmp_path}/p9"], "/")
    assert "mesh sections run makes" in caught.value.hint
    assert os.listdir(tmp_path) == ["p0"]


def test_two_processes_that_combine_at_once_leave_a_whole_output(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"one\n", b"two\n")
    slow = Output("o", "p", "command", ("sh", "-c", 'echo begun; sleep 0.5; cat "$@"', "sh", "{parts}"))
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(combine, slow, f"{tmp_path}/o", parts, "/") for _ in range(2)]
        assert [one.result() for one in both] == [14, 14]
    assert (tmp_path / "o").read_bytes() == b"begun\none\ntwo\n"
    assert sorted(os.listdir(tmp_path)) == ["o", "p0", "p1"]


def test_a_command_that_outlives_its_attempt_writes_to_no_output(tmp_path: Path) -> None:
    """Attempt and guard are killed at once, so the kernel ends the command, but not what the command has started."""
    parts = parts_in(tmp_path, b"one\n", b"two\n")
    (tmp_path / "slow").write_text(SLOW)
    (tmp_path / "begin").write_text('setsid sh slow "$@" & wait')
    attempt = ATTEMPT.replace('"slow"', '"begin"')
    words = [sys.executable, "-c", attempt, f"{tmp_path}/o", *parts]
    with subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.getcwd()}) as run:
        wait_until((tmp_path / "begun").exists, "guard, command and its process run")
        guard = processes.children(run.pid)[0]
        freeze(run.pid)
        os.kill(guard, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
    waits = 'cat "$@"; touch go; until test -e end; do sleep 0.02; done'
    again = Output("o", "p", "command", ("sh", "-c", waits, "sh", "{parts}"))
    assert combine(again, f"{tmp_path}/o", parts, str(tmp_path)) == 8
    assert (tmp_path / "o").read_bytes() == b"one\ntwo\n"


def test_what_a_command_leaves_running_is_killed_before_its_output_counts(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"one\n")
    leaves = 'setsid sh -c "echo \\$\\$ >pid; until test -e go; do sleep 0.02; done; echo late" & '
    words = ("sh", "-c", leaves + 'until test -s pid; do sleep 0.02; done; cat "$@"', "sh", "{parts}")
    assert combine(Output("o", "p", "command", words), f"{tmp_path}/o", parts, str(tmp_path)) == 4
    assert not processes.alive(int((tmp_path / "pid").read_text()))


def test_too_long_a_list_of_parts_names_the_program(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"one\n") * (os.sysconf("SC_ARG_MAX") // len(str(tmp_path)))
    with pytest.raises(ConsoleError, match="cannot be combined: cat: Argument list too long"):
        combine(Output("o", "p", "command", ("cat", "{parts}")), f"{tmp_path}/o", parts, "/")


@contextmanager
def on_a_terminal(path: Path, script: str) -> Iterator[Typist]:
    """A process on a terminal that combines by ``script``, and ignores SIGHUP, as under nohup."""
    (path / "slow").write_text(script)
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", ATTEMPT, f"{path}/o"]
    typist = Typist([*words, *parts_in(path, b"one\n")], {**os.environ, "PYTHONPATH": os.getcwd()}, path)
    with closing(typist):
        yield typist


def test_a_command_reads_from_the_terminal_and_ignores_what_its_caller_ignores(tmp_path: Path) -> None:
    script = 'kill -HUP $$; echo Line: >/dev/tty; read line </dev/tty; echo "$line" >"$1"'
    with on_a_terminal(tmp_path, script) as typist:
        typist.read("Line:")
        typist.type("typed\n")
        assert typist.wait() == 0, typist.seen
    assert (tmp_path / "o").read_bytes() == b"typed\n"


def test_an_interrupt_at_the_terminal_ends_a_command_that_ignores_it(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, 'trap "" INT; echo $$ >pid; echo Line: >/dev/tty; read line </dev/tty') as typist:
        typist.read("Line:")
        typist.type("\x03")
        assert typist.wait() == -signal.SIGINT, typist.seen
    assert not processes.alive(int((tmp_path / "pid").read_text())) and not (tmp_path / "o").exists()


def test_a_part_of_an_earlier_run_is_not_combined(tmp_path: Path) -> None:
    """As on the host that combines, if the nodes do not share the directory of the parts."""
    parts = parts_in(tmp_path, b"one\n", b"two\n")
    for part in parts:
        age_unless_linked(part)
    (tmp_path / "p0").write_bytes(b"new\n")
    with pytest.raises(ConsoleError, match="p1 is of an earlier run"):
        combine(Output("o", "p"), f"{tmp_path}/o", parts, "/")
    (tmp_path / "p1").write_bytes(b"two\n")
    assert combine(Output("o", "p"), f"{tmp_path}/o", parts, "/") == 8


def test_a_new_link_to_an_old_part_does_not_make_it_new(tmp_path: Path) -> None:
    (part,) = parts_in(tmp_path, b"one\n")
    before = age(part, f"{part}.aside")
    os.link(part, tmp_path / "backup")
    assert not is_written(part, before)
    again = age(part, f"{part}.aside")
    assert not os.path.samefile(part, tmp_path / "backup") and not is_written(part, again)
    (tmp_path / "p0").write_bytes(b"one\n")
    assert is_written(part, again) and (tmp_path / "backup").stat().st_nlink == 1


#: numpy's rules: the sum in 64 bits, the mean of integers in float64.
SUMS = [
    ("sum", "uint8", "", "B", (100, 200), "Q", (400, 800)),
    ("mean", "uint8", "", "B", (100, 201), "d", (100.0, 201.0)),
    ("sum", "int32", "", "i", (1 << 30, -3), "q", (1 << 32, -12)),
    ("sum", "bool", "", "B", (1, 0), "q", (4, 0)),
    ("sum", "float32", "", "f", (0.5, 1.5), "f", (2.0, 6.0)),
    ("sum", "int16", "int16", "h", (8000, -8192), "h", (32000, -32768)),
    ("sum", "int64", "float64", "q", (1 << 62, 1), "d", (2.0**64, 4.0)),
    ("mean", "float32", "float64", "f", (0.5, 1.5), "d", (0.5, 1.5)),
]


@pytest.mark.parametrize("how, dtype, result, code, values, wide, wanted", SUMS)
def test_sums_and_means_have_the_types_of_numpy(
    tmp_path: Path, how: str, dtype: str, result: str, code: str, values: tuple[float], wide: str, wanted: tuple[float]
) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *[array.array(code, values).tobytes()] * 4)
    combine(Output("o", "p", how, dtype=dtype, result_dtype=result), f"{tmp_path}/o", parts, "/")
    assert array.array(wide, (tmp_path / "o").read_bytes()).tolist() == list(wanted)


@pytest.mark.parametrize("how, result, wanted", [("sum", "", "int64"), ("mean", "", "float64"), ("sum", "i2", "int16")])
def test_the_header_of_a_npy_file_has_the_type_of_the_output(
    tmp_path: Path, how: str, result: str, wanted: str
) -> None:
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(6, dtype="int16").reshape(2, 3)
    for name in ("p0", "p1"):
        with open(tmp_path / name, "wb") as file:
            numpy.save(file, values)
    output = Output("o", "p", how, dtype="int16", header=128, result_dtype=result)
    combine(output, f"{tmp_path}/o", [f"{tmp_path}/p0", f"{tmp_path}/p1"], "/")
    found = numpy.load(tmp_path / "o")
    assert found.dtype == wanted and found.tolist() == (values * 2 if how == "sum" else values).tolist()


def test_another_header_does_not_stand_before_values_of_another_type(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *[b"HEAD" + array.array("h", [7]).tobytes()] * 2)
    with pytest.raises(ConsoleError, match=r"the header of .*p0 is of int16 values, and the sum is of int64 values"):
        combine(Output("o", "p", "sum", dtype="int16", header=4), f"{tmp_path}/o", parts, "/")
    for result, code in (("int16", "h"), ("int64", "q")):
        combine(Output("o", "p", "sum", dtype="int16", header=4, result_dtype=result), f"{tmp_path}/o", parts, "/")
        assert (tmp_path / "o").read_bytes() == b"HEAD" + array.array(code, [14]).tobytes()


def test_the_mean_of_integers_is_not_cut_off_and_keeps_their_byte_order(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *(number.to_bytes(4, "big", signed=True) for number in (1, -4)))
    combine(Output("o", "p", "mean", dtype=">i4"), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == struct.pack(">d", -1.5)


@pytest.mark.parametrize(
    "how, dtype, result, code, value, told",
    [
        ("sum", "uint8", "uint8", "B", 100, "too large for uint8"),
        ("sum", "int8", "uint64", "b", -1, "too large for uint64"),
        ("sum", "uint64", "", "Q", 1 << 63, "too large for uint64"),
        ("sum", "int64", "", "q", -(1 << 63), "too large for int64"),
        ("sum", "float32", "", "f", 3e38, "too large for float32"),
        ("sum", "float64", "", "d", 1.7e308, "too large for float64"),
        ("mean", "int32", "int32", "i", 1, "does not go into int32"),
        ("sum", "float32", "int64", "f", 1, "does not go into int64"),
        ("sum", "uint8", "bool", "B", 1, "does not go into bool"),
    ],
)
def test_a_sum_that_its_type_cannot_hold_is_an_error(
    tmp_path: Path, how: str, dtype: str, result: str, code: str, value: float, told: str
) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *[array.array(code, [value]).tobytes()] * 3)
    with pytest.raises(ConsoleError, match=told):
        combine(Output("o", "p", how, dtype=dtype, result_dtype=result), f"{tmp_path}/o", parts, "/")
    assert sorted(os.listdir(tmp_path)) == ["p0", "p1", "p2"]


def test_values_that_are_infinite_stay_infinite(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, *[array.array("f", [float("inf"), 1.0]).tobytes()] * 2)
    combine(Output("o", "p", "sum", dtype="float32"), f"{tmp_path}/o", parts, "/")
    assert (tmp_path / "o").read_bytes() == array.array("f", [float("inf"), 2.0]).tobytes()


@pytest.mark.parametrize("dtype, part", [("O", b"12345678"), ("S0", b"1234"), ("float64", b"12345")])
def test_arrays_that_cannot_be_added_up_are_named(tmp_path: Path, dtype: str, part: bytes) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, part)
    with pytest.raises(ConsoleError, match=r"cannot be added up|whole values"):
        combine(Output("o", "p", "sum", dtype=dtype), f"{tmp_path}/o", parts, "/")


def test_a_file_that_is_open_for_writing_gets_no_name_but_a_copy_of_it(tmp_path: Path) -> None:
    part, name, own = (str(tmp_path / one) for one in ("p.attempt", "p", "p.own"))
    Path(part).write_text("one")
    os.chmod(part, 0o640)
    with subprocess.Popen(["sleep", "300"], stdout=open(part, "a")) as holder:
        try:
            wait_until(lambda: held_by(part) == f"process {holder.pid} (sleep)", "the kernel and /proc name it")
            assert settle(part, name, own) == f"process {holder.pid} (sleep)"
            assert not os.path.samefile(part, name) and Path(name).read_text() == "one"
            assert os.stat(name).st_mode & 0o777 == 0o640 and sorted(os.listdir(tmp_path)) == ["p", "p.attempt"]
            link = tmp_path / "link"
            link.symlink_to("p.attempt")
            assert settle(str(link), str(link), own) and link.is_symlink(), "a program's own link stays"
            assert not held_by(part)
        finally:
            holder.kill()
    assert settle(part, name, own) == "" and not os.path.exists(part)
    assert held_by(f"{tmp_path}/none") == held_by(str(tmp_path)) == ""


def test_a_part_is_known_by_its_size_and_time(tmp_path: Path) -> None:
    path = str(tmp_path / "p")
    Path(path).write_text("one")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    left = written(path)
    assert is_still(path, [[left]], 0) and not is_still(path, [[(3, 5)]], 0) and is_still(path, [[(3, 5)], [left]], 0)
    os.utime(path, ns=(0, 1_700_000_000 * 10**9))
    assert is_still(path, [[left]], 0), "tar keeps whole seconds"
    os.utime(path, ns=(0, 1_700_000_001 * 10**9))
    assert not is_still(path, [[left]], 0)
    assert is_still(path, [], 0) and is_still(path, [[]], 0) and is_still(path, [[None]], 0), "nobody knows"
    assert written(str(tmp_path)) is None and written(f"{tmp_path}/none") is None
    with pytest.raises(FileNotFoundError):
        is_still(f"{tmp_path}/none", [[left]], 0)
