"""Patterns in file names, against str.format and against names that mean harm."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.options.patterns import parse

VALUES = {"rank": 7, "launcher": 301, "local": 1}
PIECES = st.sampled_from(
    ["out", "/", ".", "{{", "}}", "%", "é", "{rank}", "{rank:04}", "{rank:4d}", "{local:2}", "{launcher}", "{node}"]
)


@given(st.lists(PIECES, min_size=1))
def test_it_is_the_format_of_python(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert parse(text, "--output").fill(7, "n3", 301, 1) == text.format(node="n3", **VALUES)


@given(st.text(alphabet="{}:rank04d!x.[]", max_size=14))
def test_what_is_taken_means_what_it_says_and_all_else_is_refused(text: str) -> None:
    try:
        pattern = parse(text, "--output")
    except UsageError as error:
        assert "--output" in error.message
        return
    assert pattern.fill(7, "n3", 301, 1) == text.format(node="n3", **VALUES)


@given(
    st.text(max_size=8), st.sampled_from(["out/{node}/x", "{node}", "out/{node}", "out/.{node}/x", "out/{node}{node}"])
)
def test_no_node_name_leaves_its_directory(node: str, text: str) -> None:
    filled = parse(text, "--output").fill(0, node, 1, 0)
    assert filled.count("/") == text.count("/") and "\0" not in filled
    parts = filled.split("/")
    assert ".." not in parts and "" not in parts and "." not in parts
    assert os.path.normpath(filled) == filled


@pytest.mark.parametrize("node", ["..", ".", "", "../../etc/passwd", "/", "a/../b", ".bashrc"])
def test_names_that_mean_harm(node: str) -> None:
    filled = parse("{node}", "--output").fill(0, node, 1, 0)
    assert "/" not in filled and not filled.startswith(".") and filled


@pytest.mark.parametrize(
    "text",
    ["", "a\0b", "{", "}", "{rank", "rank}", "{ranks}", "{}", "{0}", "{rank!r}", "{rank.real}", "{rank:x}", "{rank:}"]
    + ["{rank:+4}", "{rank:{local}}", "{node:9}", "{rank:99999999999}", "{rank:65}", "{ rank}", "{rank:٤}"],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, "--error")
    assert "--error" in caught.value.message and caught.value.exit_status == 2


def test_which_ranks_share_a_file() -> None:
    assert parse("{rank}", "-o").one_each
    assert parse("{node}.{local}", "-o").one_each
    assert not parse("{node}", "-o").one_each
    assert not parse("all", "-o").one_each
    assert parse("{node}-{launcher}", "-o").fields == {"node", "launcher"}
