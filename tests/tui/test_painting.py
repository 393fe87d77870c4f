"""What is written to the terminal piece by piece adds up to the screen, whatever changes and in whatever order."""

import asyncio
import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from textual import events
from textual._compositor import Compositor, LayoutUpdate
from textual.renderables.background_screen import BackgroundScreen
from textual.widgets._toast import Toast

from console.tui.app import ConsoleApp
from console.tui.screens.dialogs import Entry
from console.tui.screens.help import Help
from console.tui.terminal.compositor import CellsCompositor, PromptScreen, lines_behind
from console.tui.widgets.bars import TopBar
from console.tui.widgets.machine_map import MachineMap
from tests.support.big_machine import BigDatabase, storm
from tests.support.chance import long
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, Row, busy_machine
from tests.support.painted import Watched

KEYS = [*"hjklwbzvcosgG134mynre?:", "tab", "escape", "enter", "space", "ctrl+p", "pagedown", "home"]
SIZES = [(80, 24), (140, 50), (60, 15), (240, 70)]
WIDE = ["日本語 シミュレーション 🚀", "./a 漢字漢字漢字漢字漢字漢字", "e\u0301te\u0301 🔬"]


def churn(database: FixedDatabase, chance: random.Random, processors: int = 10_368) -> None:
    """Processors all over the machine change hands."""
    some = chance.sample(range(processors), min(processors // 4, 200))
    rows = [(chance.choice([None, 1, 2, 3]), one) for one in some]

    def work(t: Any) -> None:
        for owner, one in rows:
            t.change(f"UPDATE processor SET launcher = ?, changed = {t.stamp} WHERE id = ?", (owner, one))

    database.store.run(work)


async def still(app: ConsoleApp, keyboard: Keyboard) -> None:
    """Until all that changed has been painted."""

    def done() -> bool:
        screen = app.screen
        waits = isinstance(screen, PromptScreen) and screen._compositor.put_off
        waits = waits or screen._layout_required or screen._scroll_required
        return not (waits or screen._dirty_widgets or screen._compositor._dirty_regions)

    await keyboard.pause(0.6)  # two readings
    await until(keyboard, done, "everything painted")


async def agrees(app: ConsoleApp, keyboard: Keyboard, terminal: Watched, did: object) -> None:
    """Once all is still, what is shown is what the screen has; a clock may move between the two looks."""
    for _ in range(3):
        await still(app, keyboard)
        if not terminal.differences():
            return
    raise AssertionError("\n".join([f"after {did} on {app.screen}", *terminal.differences()]))


@pytest.mark.parametrize("size", [(80, 24), (140, 50)])
async def test_pieces_add_up(tmp_path: Path, size: tuple[int, int]) -> None:
    database, chance = storm(tmp_path), random.Random(5)
    async with opened(database.url, tmp_path, size) as (app, keyboard):
        await until(keyboard, lambda: "processor" in screen_text(app), "the details")
        terminal = Watched(app)
        for keys in ("lljj", "vllv", "T", ["escape"], "w", ["enter"], ["escape"], "?", ["escape"], "z", "Gg", "3", "m"):
            churn(database, chance)
            for key in keys:
                await keyboard.press(key)
                await keyboard.pause(chance.uniform(0.0, 0.05))
            await agrees(app, keyboard, terminal, keys)
        assert terminal.slices > 50  # much that changes at once is painted in several turns
    database.close()


def wide_names(folder: Path) -> FixedDatabase:
    """A small machine whose launchers and troubles are told in wide characters."""
    database = FixedDatabase(folder, nodes=5)
    database.put(
        Row(tuple(range(6)), WIDE[0], "佳子"), Row((6, 7, 8, 9), WIDE[1]), Row((10, 11), WIDE[2], "lin", "pending")
    )
    database.down("n3", "電源が切れた 🔥")
    return database


async def act(app: ConsoleApp, keyboard: Keyboard, chance: random.Random) -> object:
    """Something that a person or a terminal may do at any moment; what it was."""
    kind, size = chance.choice(("key", "key", "key", "size", "theme", "note", "click", "wheel")), app.size
    if kind == "key":
        key = chance.choice(KEYS)
        app.post_message(events.Key(key, key if len(key) == 1 else None))
        return key
    if kind == "size":
        await keyboard.resize_terminal(*chance.choice(SIZES))
    elif kind == "theme":
        app.theme = f"redmesh-{chance.choice(('dark', 'light', 'contrast', 'mono'))}"
    elif kind == "note":
        app.notify(chance.choice(WIDE), markup=False, timeout=chance.choice((0.1, 0.3)))
    else:
        at: dict[str, Any] = {"x": chance.randrange(size.width), "y": chance.randrange(size.height)}
        more: dict[str, Any] = {"delta_x": 0, "delta_y": 0, "button": 1, "shift": False, "meta": False, "ctrl": False}
        kinds = (events.MouseDown, events.MouseUp) if kind == "click" else (events.MouseScrollDown,)
        for one in kinds:
            app.post_message(one(None, **at, **more))
    return kind, tuple(app.size)


@pytest.mark.storm
@pytest.mark.parametrize(("make", "processors"), [(wide_names, 40), (storm, 10_368)])
async def test_nothing_stays_behind(tmp_path: Path, make: Any, processors: int) -> None:
    database, chance = make(tmp_path), random.Random(11)
    async with opened(database.url, tmp_path, (140, 50)) as (app, keyboard):
        terminal = Watched(app)
        for _ in range(long(4, 40)):
            did = []
            for _ in range(chance.randint(3, 12)):
                churn(database, chance, processors)
                did.append(await act(app, keyboard, chance))
                await asyncio.sleep(chance.choice((0, 0, 0.003, 0.02, 0.05)))
            await agrees(app, keyboard, terminal, did)
    database.close()


async def test_a_note_that_is_gone_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody asked for the places of widgets after it left and before all was laid out again."""
    database: BigDatabase = storm(tmp_path)
    async with opened(database.url, tmp_path, (140, 50)) as (app, keyboard):
        terminal, lay_out = Watched(app), CellsCompositor.reflow
        app.notify("x" * 50, timeout=30)
        await until(keyboard, lambda: "xxxx" in screen_text(app), "the note")
        await agrees(app, keyboard, terminal, "a note")

        def asked_before(self: CellsCompositor, *words: Any) -> Any:
            self._full_map_invalidated = True
            assert self.full_map
            return lay_out(self, *words)

        monkeypatch.setattr(CellsCompositor, "reflow", asked_before)
        await app.screen.query_one(Toast).remove()
        await agrees(app, keyboard, terminal, "it left")
        assert "xxxx" not in "".join(terminal.shown.text(y) for y in range(50))
    database.close()


async def test_the_name_of_a_node_that_is_back_is_painted_like_the_others(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        terminal = Watched(app)
        await agrees(app, keyboard, terminal, "opening")
        database.down("n2")
        await until(keyboard, lambda: "down 8" in screen_text(app), "the node is down")
        await agrees(app, keyboard, terminal, "a node went down")
        database.store.run(
            lambda t: t.change(f"UPDATE node SET state = 'up', changed = {t.stamp} WHERE name = ?", ("n2",))
        )
        await until(keyboard, lambda: "down 0" in screen_text(app), "the node is up")
        await agrees(app, keyboard, terminal, "the node came back")


async def test_behind_a_dialog_only_what_has_changed_is_painted(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await keyboard.press("?")
        await until(keyboard, lambda: isinstance(app.screen, Help), "the help")
        await still(app, keyboard)
        terminal = Watched(app)
        await still(app, keyboard)
        painted: list[object] = []
        take = app._display

        def noted(screen: Any, update: Any) -> None:
            painted.append(update)
            take(screen, update)

        app._display = noted  # type: ignore[method-assign]
        for _ in range(3):
            before = len(painted)
            app.screen_stack[0].query_one(TopBar).refresh()
            await until(keyboard, lambda before=before: len(painted) > before, "the bar is painted")
        assert not [update for update in painted if isinstance(update, LayoutUpdate)]
        await agrees(app, keyboard, terminal, "three changes behind the help")
    database.close()


async def test_a_line_behind_a_dialog_is_as_textual_paints_it(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await keyboard.press("?")
        await until(keyboard, lambda: isinstance(app.screen, Help), "the help")
        await still(app, keyboard)
        whole = BackgroundScreen(app.screen_stack[0], app.screen.styles.background)
        wanted = list(Segment.split_and_crop_lines(app.console.render(whole, app.console_options), 120, pad=False))
        for y, line in enumerate(wanted[:40]):
            assert _differing(line, lines_behind(app.screen, [y]).get(y, ())) == []
    database.close()


async def test_lines_behind_a_dialog_are_whole_while_a_layout_is_due(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await keyboard.press("?")
        await until(keyboard, lambda: isinstance(app.screen, Help), "the help")
        await still(app, keyboard)
        behind = app.screen_stack[0]
        places = behind._compositor
        hidden = next(widget for widget in behind.walk_children() if widget not in places.visible_widgets)
        with app.batch_update():
            behind.query_one("#side").styles.width = 60
            await until(keyboard, lambda: behind._layout_required, "a layout is due")
            places.update_widgets({hidden})  # of what was not placed before, the next question places all
            lengths = {sum(segment.cell_length for segment in line) for line in places.lines(range(40)).values()}
        assert lengths == {120}
    database.close()


def _differing(one: Iterable[Segment], other: Iterable[Segment]) -> list[object]:
    """The columns that differ in their letter or style."""
    cells = [
        [(letter, segment.style) for segment in line for letter in segment.text.rstrip("\n")] for line in (one, other)
    ]
    return [(x, a, b) for x, (a, b) in enumerate(zip_longest(*cells)) if a != b]


async def test_a_letter_in_a_line_of_a_dialog_lays_out_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand nodes the layout of both screens was a third of the time of a letter."""
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, keyboard):
        await until(keyboard, lambda: app.machine.nodes, "the machine")
        await keyboard.press("3", "slash", "c")
        await until(keyboard, lambda: isinstance(app.screen, Entry), "the line")
        await still(app, keyboard)
        laid_out: list[object] = []
        lay_out = Compositor.reflow

        def noted(self: Compositor, *words: Any) -> Any:
            laid_out.append(self)
            return lay_out(self, *words)

        monkeypatch.setattr(Compositor, "reflow", noted)
        before = screen_text(app)
        await keyboard.press("3")
        await until(keyboard, lambda: "/c3" in screen_text(app), "the filter")
        await still(app, keyboard)
        assert screen_text(app) != before and not laid_out
    database.close()


async def test_a_dialog_lays_out_nothing_behind_it_and_paints_that_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind was laid out when a dialog opened and when it closed, and painted twice while it opened."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await still(app, keyboard)
        behind = app.screen._compositor
        laid_out, painted = counted(monkeypatch, behind)
        await keyboard.press("?")
        await until(keyboard, lambda: isinstance(app.screen, Help), "the help")
        await still(app, keyboard)
        assert not laid_out and sum(lines == 40 for lines in painted) == 1, painted
        await keyboard.press("escape")
        await until(keyboard, lambda: app.screen._compositor is behind, "the map")
        await still(app, keyboard)
        assert not laid_out
    database.close()


async def test_another_chart_of_the_map_lays_out_the_screen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await until(keyboard, lambda: "processor" in screen_text(app), "the details")
        keys = ("z", "z", "enter")
        await keyboard.press(*keys, "escape")  # the first ones make the scroll bars
        await still(app, keyboard)
        laid_out, _ = counted(monkeypatch, app.screen._compositor)
        for key in keys:
            await keyboard.press(key)
            await still(app, keyboard)
            assert len(laid_out) == 1, key
            laid_out.clear()
    database.close()


def counted(monkeypatch: pytest.MonkeyPatch, watched: Compositor) -> tuple[list[object], list[int]]:
    """Gets an entry for each layout of that screen, and the number of lines for each time that it is painted for a
    dialog."""
    laid_out: list[object] = []
    painted: list[int] = []
    lay_out, lines = Compositor.reflow, CellsCompositor.lines

    def noted(self: Compositor, *words: Any) -> Any:
        laid_out.extend([self] if self is watched else [])
        return lay_out(self, *words)

    def lines_noted(self: CellsCompositor, wanted: Any) -> Any:
        painted.append(len(wanted))
        return lines(self, wanted)

    monkeypatch.setattr(Compositor, "reflow", noted)
    monkeypatch.setattr(CellsCompositor, "lines", lines_noted)
    return laid_out, painted


async def test_a_map_that_is_scrolled_aside_shows_what_is_there(tmp_path: Path) -> None:
    """Only the columns in sight, and some beside them, are drawn."""
    database = storm(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await until(keyboard, lambda: "processor" in screen_text(app), "the details")
        await keyboard.press("z")
        shown = app.screen.query_one(MachineMap)
        await until(keyboard, lambda: shown.virtual_size.width > 2 * shown.size.width, "a map that is wider than seen")
        most = shown.virtual_size.width - shown.size.width
        for x in (0, 7, 16, 33, most - 1, most, 5):
            shown.scroll_to(x=x, animate=False, immediate=True, force=True)
            width = shown.size.width
            seen = [shown.render_line(y).text for y in range(20)]
            shown._columns = range(10_000)
            lines = shown._layout.lines[shown.scroll_offset.y :][:20]
            assert seen == [shown._draw(line).crop_extend(x, x + width, shown._base).text for line in lines], x
    database.close()
