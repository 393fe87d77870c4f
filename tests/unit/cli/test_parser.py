"""The words of a command line: prefixes, twins, letters, values."""

import pytest

from console.cli.options.parser import Word, forms, help_text, parse
from console.errors import UsageError

TABLE = [
    Word("sz", "int", "how many", twins="size", letter="n", metavar="N", original=True),
    Word("list", "text", "which", original=True),
    Word("show", "flag", "only show", original=True),
    Word("label", "flag", "name the rank"),
    Word("distribution", "block|cyclic", "how ranks are dealt"),
    Word("wait", "seconds", "how long"),
    Word("set", "texts", "again and again"),
]


def values(*arguments: str) -> dict:
    return parse(TABLE, arguments, stop=True).values


def test_options_end_at_the_program() -> None:
    parsed = parse(TABLE, ["-sz", "4", "program", "-sz", "--help"], stop=True)
    assert parsed.values == {"sz": 4}
    assert parsed.rest == ["program", "-sz", "--help"]


def test_without_stop_words_and_options_mix() -> None:
    parsed = parse(TABLE, ["1..3", "-show", "n1"], stop=False)
    assert (parsed.values, parsed.rest) == ({"show": True}, ["1..3", "n1"])


def test_words_of_the_original_win_their_prefixes() -> None:
    assert values("-l", "1..3") == {"list": "1..3"}
    assert values("-la") == {"label": True}
    assert values("--la") == {"label": True}


def test_an_ambiguous_prefix_names_what_it_may_be() -> None:
    with pytest.raises(UsageError, match="-sz, -show"):
        values("-s", "4")


def test_every_way_to_give_a_value() -> None:
    for arguments in (["-sz", "4"], ["-sz=4"], ["--size", "4"], ["--size=4"], ["-n", "4"], ["-n4"], ["--si=4"]):
        assert values(*arguments) == {"sz": 4}
    assert values("-set", "a", "--set=b") == {"set": ["a", "b"]}
    assert values("-wait", "0.5") == {"wait": 0.5}


def test_two_dashes_end_the_options() -> None:
    assert parse(TABLE, ["--", "-sz"], stop=True).rest == ["-sz"]


@pytest.mark.parametrize(
    "arguments",
    [["-sz"], ["-sz", "x"], ["-sz", "-1"], ["-sz", "1e3"], ["-sz", "٣"], ["-show=1"], ["-zz"], ["--nothing"]]
    + [["-distribution", "round"], ["-wait", "nan"], ["-wait", "-1"], ["-wait", "inf"]],
)
def test_what_does_not_fit_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        values(*arguments)


def test_a_typing_error_is_told_what_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        values("-labl")
    assert "-label" in caught.value.hint


def test_the_help_shows_every_form() -> None:
    page = help_text("yod [options] program", "Launches.", TABLE)
    for word in TABLE:
        assert forms(word) in page
