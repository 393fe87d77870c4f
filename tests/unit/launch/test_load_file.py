"""Load files against a real shell and their own definition."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.options.load_file import commands, is_load_file, parse, read, total


def shapes(data: bytes, **options: object) -> list[tuple]:
    return [(s.size, s.wanted, s.argv) for s in parse(data, "job", **options)]  # type: ignore[arg-type]


def processors(*ranges: list[int]) -> dict:
    return {"processors": list(ranges), "nodes": []}


def test_a_file_like_the_originals() -> None:
    data = b"""# a coupled run
-sz 4 -list 0..3 ocean -in "south pole.nml"   # four of these

-list 8..9,12 ./ice 'a  b' c\\ d \\
      --more
atmosphere -sz 7 -list 3
"""
    segments = parse(data, "job", processors([20, 29]))
    assert [(s.line, s.size, s.wanted, s.argv) for s in segments] == [
        (2, 4, processors([0, 3]), [b"ocean", b"-in", b"south pole.nml"]),
        (4, 3, processors([8, 9], [12, 12]), [b"./ice", b"a  b", b"c d", b"--more"]),
        (6, 1, processors([20, 29]), [b"atmosphere", b"-sz", b"7", b"-list", b"3"]),
    ]
    assert total(segments) == 8


@pytest.mark.parametrize("option", ["-sz 3", "-sz=3", "-n 3", "--size 3", "--size=3", "--ntasks=3"])
def test_every_spelling_of_the_size(option: str) -> None:
    assert shapes(f"{option} prog".encode()) == [(3, None, [b"prog"])]


@pytest.mark.parametrize("option", ["-list 4,6", "-l 4,6", "-li=4,6", "--list 4,6", "-w 4,6", "--nodelist=4,6"])
def test_every_spelling_of_the_list(option: str) -> None:
    assert shapes(f"{option} prog".encode()) == [(2, processors([4, 4], [6, 6]), [b"prog"])]


def test_two_dashes_end_a_lines_options() -> None:
    assert shapes(b"-sz 2 -- -odd name") == [(2, None, [b"-odd", b"name"])]


def test_bytes_that_are_no_utf8_and_odd_line_ends_stay_what_they_are() -> None:
    data = b"\xef\xbb\xbfprog caf\xe9 'x\xff' a#b\r\n-sz 2 other ''"
    assert shapes(data) == [(1, None, [b"prog", b"caf\xe9", b"x\xff", b"a#b"]), (2, None, [b"other", b""])]


def test_how_many_a_list_has_room_for_is_the_cpas_to_say_where_nobody_else_knows() -> None:
    assert [size for size, _, _ in shapes(b"-list 0..7 p\n-sz 3 -list n[1-2] p\n-list n1 p")] == [8, 3, 0]
    assert shapes(b"-list 0..7 p", counted=False)[0][0] == 0
    assert total(parse(b"-list 0..7 p\n-list n1 p", "job")) == 0


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"ok\n-sz 0 p", 2, "above 0"),
        (b"-sz x p", 1, "'x'"),
        (b"-sz \xd9\xa3 p", 1, "whole number"),
        (b"\n\n-sz", 3, "needs a value"),
        (b"-sz 2", 1, "no program"),
        (b"-sz 2 -n 3 p", 1, "twice"),
        (b"-list 3..1 p", 1, "backwards"),
        (b"-list n[1- p", 1, "do not match"),
        (b"-servic p", 1, "no option -servic"),
        (b"-service=1 p", 1, "no value"),
        (b"-service -list 3 p", 1, "exclude"),
        (b"p 'a\nb\nc", 1, "has no end"),
        (b'p\np \\\n"a\nb', 3, "has no end"),
        (b"p\na\0b", 2, "NUL"),
        (b"-- ''", 1, "empty"),
        (b"-sz 999999999 p\n" * 5, 5, "more than"),
    ],
)
def test_errors_name_the_file_and_the_line(data: bytes, line: int, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(data, "runs/job")
    assert caught.value.message.startswith(f"runs/job:{line}: ") and says in caught.value.message
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("data", [b"", b"\n \n", b"# nothing but this", b"\\\n"])
def test_a_file_without_a_program_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="no program in this load file"):
        parse(data, "job")


# without what a shell would expand: a load file takes that as it is
LEXICON = st.text(alphabet="ab \"'\\#\t\n*", max_size=24)


@given(LEXICON)
def test_words_are_those_of_a_shell(text: str) -> None:
    assume(not text.endswith("\\"))  # what bash makes of that depends on the line before
    script = 'set -f\nmark() { printf \'%s\\0\' "$#" "$@"; }\n'
    try:
        lines = commands(text.encode(), "job")
    except UsageError:
        shell = subprocess.run(["bash", "-n", "-c", f"set -- {text}"], capture_output=True, check=False)
        assert b"unexpected EOF" in shell.stderr
        return
    for _, words in lines:
        again = " ".join("'" + word.decode().replace("'", "'\\''") + "'" for word in words)
        assert commands(again.encode(), "job") == [(1, words)]
    if not lines:
        return
    # each line of words becomes one call of mark in the shell
    body = _each_line_marked(text, [number for number, _ in lines])
    shell = subprocess.run(["bash", "-c", script + body], capture_output=True, check=True)
    assert shell.stdout == b"".join(b"\0".join([str(len(w)).encode(), *w]) + b"\0" for _, w in lines)


def test_a_backslash_at_the_very_end_stands_for_itself() -> None:
    assert commands(b"p a\\", "job") == [(1, [b"p", b"a\\"])]
    assert commands(b"p '\n'\\", "job") == [(1, [b"p", b"\n\\"])]


def _each_line_marked(text: str, numbers: list[int]) -> str:
    lines = text.split("\n")
    for number in numbers:
        lines[number - 1] = "mark " + lines[number - 1]
    return "\n".join(lines)


@given(st.binary(max_size=200))
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        segments = parse(data, "job")
    except UsageError:
        return
    assert segments and all((s.size or s.wanted) and s.argv and s.argv[0] for s in segments)


@given(st.lists(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=4), min_size=1, max_size=5))
def test_what_is_quoted_comes_back(rows: list[list[bytes]]) -> None:
    rows = [[word.replace(b"\0", b"").replace(b"\r", b"") + b"." for word in row] for row in rows]
    data = b"\n".join(b" ".join(b"'" + w.replace(b"'", b"'\\''") + b"'" for w in [b"p", *row]) for row in rows)
    assert [argv for _, _, argv in shapes(data)] == [[b"p", *row] for row in rows]


def test_a_load_file_is_told_from_a_program(tmp_path: Path) -> None:
    def make(name: str, data: bytes, mode: int) -> bytes:
        path = tmp_path / name
        path.write_bytes(data)
        path.chmod(mode)
        return os.fsencode(path)

    assert is_load_file(make("load", b"-sz 4 hostname\n", 0o644))
    assert is_load_file(make("comment", b"# four\nhostname\n", 0o600))
    assert not is_load_file(make("executable", b"-sz 4 hostname\n", 0o755))
    assert not is_load_file(make("script", b"#!/bin/sh\n", 0o644))
    assert not is_load_file(make("elf", b"\x7fELF\2\1\1", 0o644))
    assert not is_load_file(make("binary", b"a\0b", 0o644))
    assert not is_load_file(make("empty", b"", 0o644))
    assert not is_load_file(os.fsencode(tmp_path))
    assert not is_load_file(os.fsencode(tmp_path / "none"))


def test_reading_says_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(os.fsencode(tmp_path / "none"))
    path = tmp_path / "job"
    path.write_text("-sz 2 hostname\n")
    assert [s.argv for s in read(os.fsencode(path))] == [[b"hostname"]]


def test_a_line_may_ask_for_service_processors() -> None:
    compute, service = parse(b"-sz 4 solver\n--service -sz 2 viewer -service\n", "f")
    assert compute.wanted is None
    assert (service.size, service.wanted) == (2, {"processors": [], "nodes": [], "service": True})
    assert service.argv == [b"viewer", b"-service"]


def test_variables_stand_before_the_program() -> None:
    data = b"-sz 2 A=1 B='x y' ./prog C=3\n./other\nE= _f9=z p\n./x=y q\n"
    assert [(s.env, s.argv) for s in parse(data, "job")] == [
        ([b"A=1", b"B=x y"], [b"./prog", b"C=3"]),
        ([], [b"./other"]),
        ([b"E=", b"_f9=z"], [b"p"]),
        ([], [b"./x=y", b"q"]),
    ]
    with pytest.raises(UsageError, match="job:2: no program behind the variables"):
        parse(b"true\nA=1 B=2\n", "job")
