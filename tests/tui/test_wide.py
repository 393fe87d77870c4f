"""Wide characters, combining marks and tabs: whole cells, and frames and columns in their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from console.tui.app import ConsoleApp
from console.tui.format import fitted, one_line
from console.tui.model.launch import Phase
from tests.support.console import opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row
from tests.support.painted import Painted, Watched
from tests.support.scripted_yod import ScriptedYod
from tests.tui.test_painting import agrees

NAMES = (
    "/srv/日本語/計算シミュレーション長い名前 --入力 データ.txt",
    "./🚀🔬🚀🔬🚀🔬🚀🔬 --x",
    "./e\u0301te\u0301e\u0301te\u0301e\u0301te\u0301 --naïve",
    "./plain 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
)
LINES = ("日本\t語|", "ab\tcd|", "e\u0301\tx|", "🚀\tfly|", "漢" * 100, "\t漢\tend|")


TABBED = (
    ("日本\tx", "日本    x"),
    ("ab\tx", "ab      x"),
    ("e\u0301\tx", "e\u0301       x"),
    ("漢漢漢漢\t🚀\tx", "漢漢漢漢        🚀      x"),
)


@pytest.mark.parametrize(("text", "shown"), TABBED)
def test_tabs_count_columns(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize("columns", range(1, 9))
def test_a_text_is_cut_off_between_characters(columns: int) -> None:
    for text in (*NAMES, *LINES):
        assert cell_len(fitted(text, columns)) <= columns
    assert fitted("漢字漢", 5) == "漢字…" and fitted("漢字", 4) == "漢字"


DOUBTFUL = (
    *("\U0001fae8 new", "1\ufe0f\u20e3 keycap", "❤\ufe0f heart", "👍🏽 tone", "🇩🇪 flag"),
    *("ﷺ long", "\u0301 alone", "各 e\u0301"),
)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("text", DOUBTFUL)
def test_a_frame_stays_where_it_is_on_a_terminal_with_other_widths(text: str, width: int) -> None:
    """Output with an emoji that is newer than the terminal moved the frame (the monkey, seed 106)."""

    def width_of(character: str) -> int:
        certain = character.isascii() or character in "│各" or cell_len(character) == 0
        return cell_len(character) if certain else width

    strip = Strip([Segment(f"│ {text}", Style(bold=True))]).extend_cell_length(20) + Strip([Segment("│", Style())])
    shown = Painted(30, 1, width_of)
    shown.feed("\x1b[1;1H" + "x" * 30 + "\x1b[1;1H" + strip.render(Console(color_system="truecolor")))
    cells = [cell for cell, _ in shown.rows[0]]
    assert cells[0] == "│" and cells[20] == "│" and cells[21:] == ["x"] * 9
    assert "x" not in cells[:20] or "x" in text


def frames(app: ConsoleApp, terminal: Watched) -> list[int]:
    """The lines of the terminal whose frames are not in the columns in which the corners above them are."""
    corners: set[int] = set()
    wrong = []
    for y, row in enumerate(terminal.shown.rows):
        texts: list[Any] = [text for text, _ in row]
        begin = {x for x, text in enumerate(texts) if text in ("╭", "╮")}
        corners = begin or corners if begin else corners
        if texts[0] == "│" and not {x for x in corners if x in (0, len(texts) - 1)} <= {
            x for x, text in enumerate(texts) if text in ("│", "╯", "╰", "╮", "╭")
        }:
            wrong.append(y)
    return wrong


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_every_list_and_the_output_have_whole_cells(tmp_path: Path, size: tuple[int, int]) -> None:
    database = FixedDatabase(tmp_path, nodes=4)
    database.put(*(Row((2 * i, 2 * i + 1), name, "佳子") for i, name in enumerate(NAMES)))
    database.down("n3", "電源が切れた 🔥")
    async with ScriptedYod(tmp_path, 1) as yod, opened(database.url, tmp_path, size) as (app, pilot):
        yod.hello(NAMES[0], 2)
        yod.started(["n0"] * 2)
        terminal = Watched(app)
        app.notify("電源が切れた 🔥 " * 20, markup=False, timeout=600)
        await until(pilot, lambda: "が切れた 🔥 電源" in screen_text(app), "the note")
        await agrees(app, pilot, terminal, "a note")
        app.clear_notifications()
        for keys in ("", "1", "3", "4", "n", "m"):
            if app.current_mode == "launch":
                await pilot.press("escape")
            await pilot.press(*keys)
            await agrees(app, pilot, terminal, keys)
            assert not frames(app, terminal), screen_text(app)
        app.attach(1)
        await until(pilot, lambda: app.runs[1].phase is Phase.RUNNING, "it runs")
        for line in LINES:
            yod.output(0, line.encode() + b"\n")
        await until(pilot, lambda: "end|" in screen_text(app), "the output")
        for keys in ("", "w", "w", "G"):
            await pilot.press(*keys)
            await agrees(app, pilot, terminal, f"output {keys}")
            assert not frames(app, terminal), screen_text(app)
        rows = ["".join(text or "\0" for text, _ in row) for row in terminal.shown.rows]
        stops = {row.index(end) for end in ("語|", "cd|", "x|", "fly|") for row in rows if end in row}
        assert len(stops) == 1, "the tabs end at one column"
