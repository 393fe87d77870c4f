"""Host files against their definition."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.options.hostfile import parse, read

names = st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True)
counts = st.none() | st.integers(1, 99)
blanks = st.text(" \t", max_size=2)


@given(st.lists(st.tuples(names, counts, st.sampled_from(["slots", "colon"]), blanks, blanks), min_size=1, max_size=8))
def test_what_is_written_is_read(lines: list[tuple[str, int | None, str, str, str]]) -> None:
    text, expected, seen = "# hosts\n\n", {}, {}
    for name, count, form, before, after in lines:
        number = "" if count is None else (f" slots={count}" if form == "slots" else f":{count}")
        text += f"{before}{name}{number}{after}# a comment\n"
        seen.setdefault(name, []).append(count)
    for name, found in seen.items():
        if found == [None]:
            expected[name] = None  # as many as it has processors
        else:
            expected[name] = sum(1 if count is None else count for count in found)
    assert parse(text, "hosts") == expected
    assert list(parse(text, "hosts")) == list(expected), "in the order written"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        hosts = parse(text, "hosts")
    except UsageError as error:
        assert error.message.startswith("hosts") and "\n" not in error.message
    else:
        assert hosts and all(count is None or count > 0 for count in hosts.values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no node"),
        ("# nothing\n\n", "no node"),
        ("n0 slots=0\n", "hosts:1: '0' is not a number"),
        ("n0\nn1 slots=x\n", "hosts:2: 'x' is not a number"),
        ("n0:\n", "is not a number"),
        ("n0:2 slots=2\n", "two numbers"),
        ("n0 cores=2\n", "not understood"),
        ("0..3\n", "is not a node's name"),
        ("n[0-\n", "brackets"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text, "hosts")
    assert says in error.value.message


def test_folded_names_and_open_mpis_maximum() -> None:
    assert parse("n[0-2] slots=2\nlogin max_slots=3\n", "hosts") == {"n0": 2, "n1": 2, "n2": 2, "login": 3}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be read"):
        read(str(tmp_path))
    file = tmp_path / os.fsdecode(b"h\xff")
    file.write_bytes(b"n0\xff\n")
    with pytest.raises(UsageError):
        read(str(file))
