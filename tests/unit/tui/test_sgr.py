"""Colours of programs in the output: what is parsed, what stays sanitised, and that text can always be read."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from console.tui.format import one_line
from console.tui.model.gather import Gathered
from console.tui.model.output import MAX_LINE, STDERR, STDOUT, Line, Output
from console.tui.model.sgr import PLAIN, RGB, Look, changed, cut, sequence
from console.tui.sources.spool import save
from console.tui.terminal.colours import style_of

RED, GREEN = Look(front=1), Look(front=2)
#: What ``read`` takes out of a line, written a second time.
TAKEN_OUT = re.compile("\x1b\\[[0-9;:]*[mK]|\x1b\\(B|\x0f")
BASE = Style(color="#d5dbe3", bgcolor="#14171c")


def lines(*pieces: bytes, rank: int = 0) -> list[Line]:
    output = Output()
    for piece in pieces:
        output.feed(rank, STDOUT, piece)
    output.finish()
    return output.lines(0)


def spans(line: Line) -> list[tuple[str, Look]]:
    """The pieces of a line with their looks."""
    return [piece for piece in cut(line.text, line.changes, 0, len(line.text)) if piece[0]]


@pytest.mark.parametrize(
    ("parameters", "look"),
    [
        ("31", RED),
        ("01;31", Look(front=1, bold=True)),
        ("97;104", Look(front=15, back=12)),
        ("38;5;208", Look(front=208)),
        ("38:5:208", Look(front=208)),
        ("48;2;1;2;3", Look(back=RGB | 0x010203)),
        ("48:2:1:2:3", Look(back=RGB | 0x010203)),
        ("48:2::1:2:3", Look(back=RGB | 0x010203)),
        ("38;5;1;48;5;2;4", Look(front=1, back=2, underline=True)),
        ("58;5;9;3", Look(italic=True)),
        ("4:3", Look(underline=True)),
        ("2;3;7;9", Look(dim=True, italic=True, reverse=True, strike=True)),
        ("1;2;3;4;7;9;22;23;24;27;29", PLAIN),
        ("31;42;39;49", PLAIN),
        ("31;", PLAIN),
        ("8", PLAIN),  # conceal
        ("5;6", PLAIN),  # blink
        ("38;5", PLAIN),
        ("38;5;256", PLAIN),
        ("38;2;1;2", PLAIN),
        ("38;9;31", PLAIN),
        ("38", PLAIN),
        ("1:2", PLAIN),
        ("999999999999999999999", PLAIN),
        ("1;" * 100 + "31", PLAIN),  # nobody writes such a sequence
    ],
)
def test_what_parameters_mean(parameters: str, look: Look) -> None:
    assert changed(PLAIN, parameters) == look
    assert changed(RED, sequence(look)[2:-1]) == look


def test_the_text_is_plain_and_the_colours_stand_beside_it() -> None:
    [line] = lines(b"a \x1b[31mred \x1b[32mgreen\x1b[0m end\n")
    assert line.text == "a red green end"
    assert spans(line) == [("a ", PLAIN), ("red ", RED), ("green", GREEN), (" end", PLAIN)]
    [plain] = lines(b"plain\n")
    assert plain.changes == () and plain.written == ""


def test_a_colour_goes_on_in_the_ranks_next_line_and_in_no_other() -> None:
    output = Output()
    output.feed(0, STDOUT, b"\x1b[31mone\n")
    output.feed(1, STDOUT, b"other\n")
    output.feed(0, STDERR, b"errors\n")
    output.feed(0, STDOUT, b"two\n\n\x1b[mthree\nfour\n")
    output.note("a note")
    assert [spans(line) for line in output.lines(0)] == [
        [("one", RED)], [("other", PLAIN)], [("errors", PLAIN)], [("two", RED)], [], [("three", PLAIN)],
        [("four", PLAIN)], [("a note", PLAIN)],
    ]  # fmt: skip
    output.feed(0, STDOUT, b"\x1b[31mfive\n")
    output.finish(0)  # the rank has ended
    output.feed(0, STDOUT, b"six\n")
    assert spans(output.line(output.end - 1)) == [("six", PLAIN)]


def test_columns_are_those_of_the_plain_text() -> None:
    [line] = lines("\t\x1b[32mtab\t漢\tgreen\x1b[m\tplain\n".encode())
    assert line.text == one_line("\ttab\t漢\tgreen\tplain")
    assert [text for text, look in spans(line) if look == GREEN] == ["tab     漢      green"]
    [bell] = lines(b"\x07\x1b[31m\x08x\n")
    assert spans(bell) == [("␇", PLAIN), ("␈x", RED)]


def test_progress_bars_have_colours_too() -> None:
    [line] = lines(b"\x1b[34m10%\x1b[0m", b"\r\x1b[32m20%", b"\x1b[0m done\r\x1b[31m", b"3", b"\n")
    assert line.text == "30% done"
    assert spans(line) == [("3", RED), ("0%", GREEN), (" done", PLAIN)]
    bar = b"".join(b"\x1b[38;2;%d;0;0m-" % shade for shade in range(200))
    output = Output()
    for _ in range(10):
        output.feed(0, STDOUT, b"\r" + bar)
    assert len(output) == 1 and len(output.line(0).changes) == 200


def test_long_lines_keep_their_colours_in_every_piece() -> None:
    found = lines(b"\x1b[31m" + b"x" * 3000 + b"\x1b[32m" + b"y" * 3000 + b"\n")
    assert [spans(line) for line in found] == [
        [("x" * 3000, RED), ("y" * (MAX_LINE - 3000), GREEN)],
        [("y" * (6000 - MAX_LINE), GREEN)],
    ]


def test_what_colours_take_is_limited() -> None:
    output = Output(max_characters=100_000)
    for number in range(2_000):
        output.feed(0, STDOUT, b"".join(b"\x1b[38;5;%dm%d" % (at, number % 10) for at in range(200)) + b"\n")
    assert sum(len(line.text) + len(line.written) for line in output.lines(0)) <= 100_000
    [line] = lines(b"".join(b"\x1b[38;2;1;2;%dmx" % (at % 256) for at in range(4_000)) + b"\n")
    assert line.text == "x" * 4_000 and not line.changes  # too much of a good thing


def test_many_plain_lines_do_not_count_twice() -> None:
    """Line ends were counted as characters and never freed: after 16 million lines, none was kept."""
    output = Output(max_lines=3_000, max_characters=100_000)
    for _ in range(100):
        output.feed(0, STDOUT, b"x\n" * 2_000)
    assert len(output) >= 3_000


def test_equal_lines_are_gathered_whatever_their_colours() -> None:
    output = Output()
    output.feed(0, STDOUT, b"\x1b[31mstep\x1b[0m\n")
    output.feed(1, STDOUT, b"\x1b[32mstep\x1b[0m\n")
    output.feed(2, STDOUT, b"step\n")
    rows = Gathered(output)
    rows.refresh()
    assert [(rows.who(at), spans(rows.line(at))) for at in range(len(rows))] == [("0-2", [("step", RED)])]


def test_saved_output_has_no_colours(tmp_path: object) -> None:
    path = f"{tmp_path}/saved"
    save(path, lines(b"a \x1b[31mb\x1b[0m\n"), "/nowhere", None, overwrite=False, labels=False)
    with open(path) as file:
        assert file.read() == "a b\n"


fragments = st.sampled_from(
    [b"\x1b", b"[", b"\x1b[", b"31", b";", b":", b"m", b"K", b"\x1b[31m", b"\x1b[m", b"\x1b[1;38;5;9m", b"\x1b[K",
     b"\x1b[2K", b"\x1b[8m", b"\x1b]0;t\x07", b"\x1b(B", b"\x1b(", b"\x0f", b"\x9b", b"\x1b[2J", b"\x1b[?25l", b"\n",
     b"\t", b"a", b"bc", "漢".encode(), "\u0301".encode(), "\u200b".encode(), "🚀".encode(), b"\xff", b"\xe6"]
)  # fmt: skip
streams = st.lists(fragments | st.binary(max_size=4), max_size=40).map(b"".join)


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(streams, st.lists(st.integers(0, 200), max_size=6))
def test_pieces_give_what_the_whole_gives_and_no_control_character(data: bytes, places: list[int]) -> None:
    data = data.replace(b"\r", b"")
    found = lines(*cuts(data, places))
    wanted = data.decode("utf-8", "replace").split("\n")
    if not wanted[-1]:
        wanted.pop()
    if b"\xe6" not in data and data.endswith(b"\n"):  # else an incomplete character at the end is not shown
        assert [line.text for line in found] == [one_line(TAKEN_OUT.sub("", line)) for line in wanted]
    _harmless(found)


@given(st.lists(streams, max_size=4), st.lists(st.integers(0, 200), max_size=6))
def test_pieces_of_lines_with_carriage_returns_give_what_the_whole_gives(parts: list[bytes], places: list[int]) -> None:
    data = b"\r".join(parts) + b"\n"
    found, whole = lines(*cuts(data, places)), lines(data)
    assert [(line.text, line.changes) for line in found] == [(line.text, line.changes) for line in whole]
    _harmless(found)


def _harmless(found: list[Line]) -> None:
    for line in found:
        assert "\x1b" not in line.text and not re.search("[\x00-\x1f\x7f-\x9f]", line.text)
        assert [change.at for change in line.changes] == sorted({change.at for change in line.changes})
        assert all(0 <= change.at < len(line.text) for change in line.changes)
        assert "".join(text for text, _ in spans(line)) == line.text


colours = st.integers(-1, 255) | st.integers(RGB, RGB | 0xFFFFFF)
looks = st.builds(Look, colours, colours, *[st.booleans()] * 6)


@given(looks, looks, st.booleans())
def test_every_look_can_be_written_and_read(look: Look, before: Look, dark: bool) -> None:
    assert changed(before, sequence(look)[2:-1]) == look
    base = BASE if dark else Style(color="#1d232b", bgcolor="#f7f8fa")
    style = style_of(look, base, dark=dark)
    assert not style.blink and not style.conceal and style.link is None
    assert style.color is not None and style.bgcolor is not None
    front, back = style.color.triplet, style.bgcolor.triplet
    assert front is not None and back is not None and _contrast(front, back) > 2.4


def _contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(rgb: tuple[int, int, int]) -> float:
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_without_colours_bold_and_underline_remain() -> None:
    style = style_of(Look(front=1, back=2, bold=True, underline=True), BASE, dark=True, colours=False)
    assert style == BASE + Style(bold=True, underline=True)


def test_in_the_terminals_own_colours_text_differs_from_its_background() -> None:
    own = Style(color="default", bgcolor="default")
    red = style_of(RED, own, dark=True).color
    assert red is not None and red.number == 1
    same = style_of(Look(front=1, back=1), own, dark=True)
    assert same.color != same.bgcolor
