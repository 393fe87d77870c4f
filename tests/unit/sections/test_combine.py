"""Whole outputs out of parts: the bytes, and what is left when it fails."""

import array
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from console.errors import ConsoleError
from console.sections.combine import Output, combine


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
    assert "resume" in caught.value.hint
    assert os.listdir(tmp_path) == ["p0"]


def test_two_processes_that_combine_at_once_leave_a_whole_output(tmp_path: Path) -> None:
    parts = parts_in(tmp_path, b"one\n", b"two\n")
    slow = Output("o", "p", "command", ("sh", "-c", 'echo begun; sleep 0.5; cat "$@"', "sh", "{parts}"))
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(combine, slow, f"{tmp_path}/o", parts, "/") for _ in range(2)]
        assert [one.result() for one in both] == [14, 14]
    assert (tmp_path / "o").read_bytes() == b"begun\none\ntwo\n"
    assert sorted(os.listdir(tmp_path)) == ["o", "p0", "p1"]


@pytest.mark.parametrize("dtype, part", [("O", b"12345678"), ("S0", b"1234"), ("float64", b"12345")])
def test_arrays_that_cannot_be_added_up_are_named(tmp_path: Path, dtype: str, part: bytes) -> None:
    pytest.importorskip("numpy")
    parts = parts_in(tmp_path, part)
    with pytest.raises(ConsoleError, match=r"cannot be added up|whole values"):
        combine(Output("o", "p", "sum", dtype=dtype), f"{tmp_path}/o", parts, "/")
