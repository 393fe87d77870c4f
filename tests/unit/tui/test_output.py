"""Output that is filtered, gathered, read again from a spool, saved."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.wire import control, frames
from console.tui.model.filter import Filter, Selection, parse_filter
from console.tui.model.gather import Gathered
from console.tui.model.launch import Run
from console.tui.model.output import NOTE, STDERR, STDOUT, Line, Output, lines_of
from console.tui.model.patterns import FilterError, Pattern, TooSlowError
from console.tui.sources.search import seek
from console.tui.sources.sift import errors_of, sift
from console.tui.sources.spool import STEP, AllRows, Archive, for_each_frame, run_frame, save

NODES = ["n0", "n0", "n1", "login1"]


def kept(words: str, *lines: Line) -> list[str]:
    keep = parse_filter(words).keeps(NODES)
    return [line.text for line in lines if keep is None or keep(line)]


LINES = (
    Line(0, STDOUT, "residual 1e-3"),
    Line(1, STDERR, "oops"),
    Line(2, STDOUT, "Residual 2"),
    Line(3, STDOUT, "done"),
    Line(-1, NOTE, "SIGTERM sent"),
)


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("", ["residual 1e-3", "oops", "Residual 2", "done", "SIGTERM sent"]),
        ("resid", ["residual 1e-3", "Residual 2"]),
        ("Resid", ["Residual 2"]),
        ("!resid", ["oops", "done", "SIGTERM sent"]),
        ("rank:0,2-3", ["residual 1e-3", "Residual 2", "done", "SIGTERM sent"]),
        ("rank:0-2 resid", ["residual 1e-3", "Residual 2"]),
        ("node:n0", ["residual 1e-3", "oops", "SIGTERM sent"]),
        ("node:n*", ["residual 1e-3", "oops", "Residual 2", "SIGTERM sent"]),
        ("node:n1,login1 rank:3", ["done", "SIGTERM sent"]),
        ("stream:err", ["oops"]),
        ("stream:yod", ["SIGTERM sent"]),
        ("stream:out !\\d", ["done"]),
        ("http:x", []),
    ],
)
def test_what_a_filter_keeps(words: str, texts: list[str]) -> None:
    assert kept(words, *LINES) == texts


@pytest.mark.parametrize("words", ["rank:x", "rank:", "rank:0-99999999", "stream:x", "(", "rank:3-1"])
def test_a_filter_that_makes_no_sense_says_why(words: str) -> None:
    with pytest.raises(FilterError):
        parse_filter(words)


def test_no_filter_costs_nothing() -> None:
    assert parse_filter("  ") == Filter() and Filter().keeps(NODES) is None


texts = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c"])), max_size=40)


@given(texts, st.randoms(use_true_random=False))
def test_gathering_does_not_depend_on_the_order_in_which_ranks_are_heard(
    written: list[tuple[int, str]], chance: random.Random
) -> None:
    def groups(order: list[tuple[int, str]]) -> list[tuple[str, str]]:
        output = Output()
        rows = Gathered(output)
        for rank, text in order:
            output.feed(rank, STDOUT, text.encode() + b"\n")
            if chance.random() < 0.3:
                rows.refresh()
        rows.refresh()
        return sorted((rows.who(at), rows.line(at).text) for at in range(len(rows)))

    shuffled = [(rank, text) for rank in chance.sample(range(4), 4) for who, text in written if who == rank]
    assert groups(written) == groups(shuffled)


def test_gathered_rows_name_their_ranks() -> None:
    output = Output()
    for rank in (2, 0, 1):
        output.feed(rank, STDOUT, b"step 1\nstep 1\n")
    output.feed(3, STDERR, b"step 1\n")
    output.note("over")
    rows = Gathered(output)
    rows.refresh()
    told = [(rows.who(at), rows.line(at).text) for at in range(len(rows))]
    assert told == [("0-2", "step 1"), ("0-2", "step 1"), ("3", "step 1"), ("yod", "over")]


def test_rows_of_an_output_that_begins_anew_are_outdated() -> None:
    output = Output()
    output.feed(0, STDOUT, b"old\n")
    rows, chosen = Gathered(output), Selection(output, lambda line: True)
    for one in (rows, chosen):
        one.refresh()
        assert not one.scan.outdated
    output.clear()
    output.feed(0, STDOUT, b"new\n")
    assert rows.scan.outdated and chosen.scan.outdated, "they are made anew"


def spool(path: Path, lines: int, chance: random.Random) -> list[Line]:
    """A spool of that many lines of four ranks, in pieces that respect nothing; the lines as one reading has them."""
    run = Run(1)
    with path.open("wb") as file:
        for number in range(lines):
            text = f"line {number} " + "é" * chance.randrange(40) + "\n" * (chance.random() < 0.9)
            data = text.encode()
            cut = chance.randrange(len(data))
            rank, kind = chance.randrange(4), chance.choice((STDOUT, STDERR))
            for piece in (data[:cut], data[cut:]):
                file.write(frames.output(kind, rank, piece))
                run.output.feed(rank, kind, piece)
            if chance.random() < 0.001:
                event = {"event": "note", "at": 1.0, "node": "n1", "text": f"note {number}"}
                file.write(control.control(event))
                run.take(event)
    return run.output.lines(0)


def read(path: Path) -> AllRows:
    """Read a spool as a watched launch is read, with 500 lines in memory."""
    output, archive, run = Output(max_lines=500), Archive(str(path)), Run(1)
    run.output = output
    offset = 0
    archive.reached(0, output)
    take = run_frame(run)

    def one(kind: int, payload: bytes) -> None:
        nonlocal offset
        take(kind, payload)
        offset += frames.HEADER_SIZE + len(payload)
        archive.reached(offset, output)

    for_each_frame(str(path), 0, 1 << 60, one)
    assert path.stat().st_size > 3 * STEP and output.first > 10_000
    rows = AllRows(output, archive)
    rows.refresh()
    return rows


@pytest.mark.parametrize("step", [1, -1])
async def test_a_search_goes_through_the_spool_and_the_memory_and_goes_on_where_it_was_stopped(
    tmp_path: Path, step: int
) -> None:
    path = tmp_path / "1.frames"
    lines = spool(path, 15_000, random.Random(4))
    rows, last = read(path), len(lines) - 1
    looked: list[int] = []

    async def found(pattern: str, begin: int, end: int, stops: bool = False) -> int | None:
        looked.clear()
        return await seek(rows, Pattern(pattern), begin, end, step, lambda at: looked.append(at) or not stops)

    ends = (0, last) if step > 0 else (last, 0)
    for at in (0, 1, 7_000, rows.kept - 1, rows.kept, last):
        text = re.escape(lines[at].text) + "$"
        same = [number for number, line in enumerate(lines) if re.search(text, line.text)]
        assert await found(text, *ends) == same[0 if step > 0 else -1]
        assert await found(text, at, at) == at, "both ends are included"
    assert await found("no such line", *ends) is None
    assert looked[-1] == ends[1] and looked == sorted(looked, reverse=step < 0) and len(looked) > 3
    assert await found("no such line", *ends, stops=True) is None
    assert len(looked) == 1 and looked[0] not in ends, "it was stopped on its way"
    on = looked[0] + step
    rest = (number for number in range(on, ends[1] + step, step) if lines[number].text)
    assert await found(".", on, ends[1]) == next(rest)
    path.unlink()
    assert await found("no such line", *ends) is None, "what cannot be read any more is passed over"


async def test_a_search_gives_up_an_endless_expression(tmp_path: Path) -> None:
    path = tmp_path / "1.frames"
    lines = spool(path, 15_000, random.Random(4))
    rows = read(path)
    for begin in (0, len(lines) - 1):  # in the spool, and in memory
        with pytest.raises(TooSlowError):
            await seek(rows, Pattern(r"(((.|..)+)+)+$(?!$)"), begin, begin, 1, lambda _: True)


@pytest.mark.parametrize("words", ["7 ", "!9", "stream:err rank:1-2"])
async def test_a_filter_and_gathering_look_at_the_spool_too(tmp_path: Path, words: str) -> None:
    path = tmp_path / "1.frames"
    lines = spool(path, 15_000, random.Random(4))
    keep = parse_filter(words).keeps([])
    assert keep is not None
    rows, looked = read(path), list[int]()
    output, archive = rows._output, rows._archive
    wanted = [(number, line) for number, line in enumerate(lines) if keep(line)]
    newest = Selection(output, keep)
    while not newest.scan.caught_up:
        newest.refresh()
    assert [newest.line(at) for at in range(len(newest))] == [line for number, line in wanted if number >= output.first]
    assert newest.scan.start == output.first
    chosen, gathered, same = (
        Selection(output, keep, 0),
        Gathered(output, keep, 0),
        Gathered(whole := Output(1 << 30), keep),
    )
    for one in (chosen, gathered):
        await sift(one, rows, lambda one=one: looked.append(one.scan.seen))
        assert one.scan.caught_up and one.scan.start == 0 and not one.dropped
    assert [(chosen.number(at), chosen.line(at)) for at in range(len(chosen))] == wanted
    whole._lines = lines
    while not same.scan.caught_up:
        same.refresh()
    told = [[(one.who(at), one.number(at)) for at in range(len(one))] for one in (gathered, same)]
    assert told[0] == told[1]
    errors = await errors_of(frozenset((1,)), output, archive, looked.append)
    own = [line for line in lines if line.rank == 1 and line.stream == STDERR]
    assert [errors.line(at) for at in range(len(errors))] == own
    path.unlink()
    lost = Selection(output, keep, 0)
    await sift(lost, rows, lambda: None)
    assert lost.scan.start == output.first and len(lost) == len(newest), "what cannot be read is not claimed"


def test_every_line_can_be_scrolled_back_to(tmp_path: Path) -> None:
    chance = random.Random(4)
    path = tmp_path / "1.frames"
    lines = spool(path, 15_000, chance)
    rows = read(path)
    assert len(rows) == len(lines)
    for at in [0, 1, 7, len(lines) - 1, *(chance.randrange(len(lines)) for _ in range(60))]:
        assert rows.line(at) == lines[at], at
    path.unlink()
    gone = Archive(str(path))
    gone.reached(0, Output())
    with pytest.raises(IndexError):
        gone.line(3)


def test_saving_writes_all_of_a_spool_or_what_passes(tmp_path: Path) -> None:
    source = tmp_path / "1.frames"
    lines = spool(source, 3_000, random.Random(5))
    whole = tmp_path / "whole"
    assert save(str(whole), [], str(source), None, overwrite=False, labels=False) >= len(lines)
    written = whole.read_text().split("\n")
    assert written[: len(lines)] == [line.text for line in lines]
    with pytest.raises(FileExistsError):
        save(str(whole), [], str(source), None, overwrite=False, labels=False)
    keep = parse_filter("rank:2 stream:err").keeps(NODES)
    save(str(whole), [], str(source), keep, overwrite=True, labels=True)
    want = [f"2: {line.text}" for line in lines if line.rank == 2 and line.stream == STDERR]
    assert whole.read_text().splitlines()[: len(want)] == want


def test_saving_without_a_spool_writes_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "some"
    count = save(str(path), list(LINES), str(tmp_path / "none"), None, overwrite=False, labels=True)
    assert count == 5 and path.read_text().splitlines()[1] == "1: oops" and "yod: SIGTERM sent" in path.read_text()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"abcdef\rxy\n", "xycdef"),
        (b"50%\r\n", "50%"),
        (b"abcdef\r\x1b[Kxy\n", "xy"),
        (b"abcdef\r\x1b[32mxy\x1b[0m\x1b[K\n", "xy"),
        (b"abc\x1b[2K\rz\n", "z"),
        ("漢字漢字\rab\n".encode(), "ab字漢字"),
        ("漢字漢字\rabc\n".encode(), "abc 漢字"),  # half of a wide character is overwritten, the other half cleared
        ("abcdef\r漢\n".encode(), "漢cdef"),
        ("e\u0301f\rx\n".encode(), "xf"),  # the accent has no column of its own
        ("漢字\ra\x1b[K\n".encode(), "a"),
        ("漢\ra\rbcd\n".encode(), "bcd"),
        ("ab漢字\r漢\x1b[1K\n".encode(), "  漢字"),
    ],
)
def test_a_carriage_return_draws_over_the_line_as_a_terminal_does(written: bytes, shown: str) -> None:
    for cut in range(len(written)):
        output = Output()
        output.feed(0, STDOUT, written[:cut])
        output.feed(0, STDOUT, written[cut:])
        assert [line.text.rstrip() for line in output.lines(0)] == [shown], cut


def test_a_progress_bar_is_seen_while_it_is_drawn_and_keeps_its_line() -> None:
    output = Output()
    rows, chosen, gathered = (
        AllRows(output, Archive("")),
        Selection(output, lambda line: "done" in line.text),
        Gathered(output),
    )
    output.feed(0, STDOUT, b"loading 10%")
    assert not len(output)
    for percent in (20, 30):
        output.feed(0, STDOUT, b"\rloading %d%%" % percent)
        output.feed(1, STDOUT, b"other\n")
        for one in (rows, chosen, gathered):
            one.refresh()
        assert (
            output.line(0).text == f"loading {percent}%" and not len(chosen) and len(gathered) == (percent - 10) // 10
        )
    output.feed(0, STDOUT, b"\rdone       \nnext\n")
    for one in (rows, chosen, gathered):
        one.refresh()
    assert [rows.line(at).text.rstrip() for at in range(len(rows))] == ["done", "other", "other", "next"]
    assert [chosen.number(at) for at in range(len(chosen))] == [0]
    assert sorted(gathered.line(at).text.rstrip() for at in range(len(gathered))) == ["done", "next", "other", "other"]


def test_a_line_that_was_overwritten_does_not_stay_with_its_old_text() -> None:
    output = Output()
    chosen = Selection(output, lambda line: "10%" in line.text)
    output.feed(0, STDOUT, b"loading 5%\rloading 10%\rloading 10%")
    chosen.refresh()
    assert [chosen.line(at).text for at in range(len(chosen))] == ["loading 10%"]
    output.feed(0, STDOUT, b"\rloading 50%\r")
    chosen.refresh()
    assert not len(chosen)
    output.feed(0, STDOUT, b"at 10% again\n")
    chosen.refresh()
    assert [chosen.line(at).text.rstrip() for at in range(len(chosen))] == ["at 10% again"]


def test_a_line_drawn_over_for_ever_takes_no_memory() -> None:
    output = Output()
    for step in range(5_000):
        output.feed(0, STDOUT, b"\rstep %d" % step)
    assert len(output) == 1 and output.line(0).text == "step 4999" and len(output.unfinished().open[0, STDOUT]) < 40
    output.finish()
    assert [line.text for line in output.lines(0)] == ["step 4999"]


def test_a_line_without_an_end_is_open_until_it_is_continued_or_ends() -> None:
    output = Output()
    output.now = 10.0
    output.feed(1, STDOUT, b"done\nContinue? [y] ")
    output.feed(2, STDOUT, b"\x1b[31mfail")
    output.feed(3, STDOUT, b" 10 %\r 20 %")
    output.now = 11.0
    output.feed(4, STDOUT, b"half a line")
    assert [line.text for line in output.lines(0)] == ["done", " 20 %"]
    opened = output.open_lines(10.5)
    assert [(line.rank, line.text) for line in opened] == [(1, "Continue? [y] "), (2, "fail")], "4 may go on at once"
    assert opened[1].changes and not opened[0].changes
    output.feed(1, STDOUT, b"y\n")
    assert [line.text for line in output.lines(2)] == ["Continue? [y] y"]
    output.finish()
    assert output.open_lines(99.0) == [] and len(output) == 5


def test_last_lines_are_what_a_terminal_shows() -> None:
    assert [line.text for line in lines_of("a\n10 %\r\x1b[31m100 %\x1b[0m\nleft \x07")] == ["a", "100 %", "left \u2407"]
