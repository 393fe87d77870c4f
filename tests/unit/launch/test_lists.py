"""The list notation against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.options.lists import fold, parse_list


def expand(wanted: dict) -> list[int]:
    return [number for first, last in wanted["processors"] for number in range(first, last + 1)]


@given(st.lists(st.integers(0, 20000), unique=True, min_size=1))
def test_fold_is_read_back(ids: list[int]) -> None:
    assert expand(parse_list(fold(ids))) == ids


@given(st.integers(0, 99), st.integers(0, 50), st.integers(1, 4))
def test_brackets_pad_as_written(first: int, more: int, width: int) -> None:
    low = f"{first:0{width}d}"
    names = parse_list(f"node[{low}-{first + more}]")["nodes"]
    assert names == [f"node{number:0{len(low)}d}" for number in range(first, first + more + 1)]


@given(st.text(max_size=30))
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        wanted = parse_list(text)
    except UsageError:
        return
    assert wanted["processors"] or wanted["nodes"]


def test_the_seeds_example() -> None:
    wanted = parse_list("25..35,112..140,160")
    assert wanted == {"processors": [[25, 35], [112, 140], [160, 160]], "nodes": []}


def test_names_and_numbers_mix_and_keep_their_order() -> None:
    assert parse_list("n5,n[1-2]x[3-4],7") == {
        "processors": [[7, 7]],
        "nodes": ["n5", "n1x3", "n1x4", "n2x3", "n2x4"],
    }


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,,2", "1..", "3..1", "1,1", "0..5,3", "n1,n1", "n[1", "n]1", "[1-2]", "-x", "n1;rm", "n[3-1]", "a b"]
    + ["n[1-99999999]", "n[0-9999]x[0-9999]", "١..٣", "1.", "1...", "n[]", "n[1,]"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_list(text)
