"""What a key does not change is neither styled nor drawn again; what changed meanwhile is."""

from pathlib import Path

from rich.segment import Segment
from textual._compositor import LayoutUpdate
from textual.strip import Strip

from console.tui.app import ConsoleApp
from console.tui.screens.mesh import MeshScreen
from console.tui.screens.tables import TableScreen
from console.tui.widgets.machine_map import MachineMap
from tests.support.console import Keyboard, opened, screen_text, until
from tests.support.fixed_database import FixedDatabase, busy_machine
from tests.tui.test_painting import still


def the_map(app: ConsoleApp) -> MachineMap:
    return app.screen_stack[0].query_one(MachineMap)


def drawn(app: ConsoleApp) -> dict[int, Strip]:
    """The drawn lines of the map without the cursor's."""
    shown = the_map(app)
    cursor = shown._layout.place(shown.cursor)[1]
    return {y: strip for y, strip in shown._strips.items() if abs(y - cursor) > shown._layout.density.height}


def same(before: dict[int, Strip], after: dict[int, Strip]) -> bool:
    return bool(before) and all(after.get(y) is strip for y, strip in before.items())


async def on_the_map(app: ConsoleApp, keyboard: Keyboard) -> None:
    await until(keyboard, lambda: isinstance(app.screen, MeshScreen) and drawn(app), "the map is drawn")
    await still(app, keyboard)


async def test_the_map_is_not_drawn_again_when_one_comes_back(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await on_the_map(app, keyboard)
        before = drawn(app)
        for key in ("3", "?", "e", "ctrl+p"):
            await keyboard.press(key)
            await until(keyboard, lambda: not isinstance(app.screen, MeshScreen), f"{key} opens something")
            await keyboard.press("m" if key == "3" else "escape")
            await on_the_map(app, keyboard)
            assert same(before, drawn(app)), key
    database.close()


async def test_the_map_shows_what_changed_behind_a_table(tmp_path: Path) -> None:
    database = FixedDatabase(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await on_the_map(app, keyboard)
        await keyboard.press("3")
        await until(keyboard, lambda: isinstance(app.screen, TableScreen), "the table")
        database.down("n2")
        await until(keyboard, lambda: any(node.state == "down" for node in app.machine.nodes), "it is read")
        await keyboard.press("m")
        await until(keyboard, lambda: screen_text(app).count(" # ") >= 8, "eight processors that are down")
    database.close()


async def test_a_moved_focus_paints_two_widgets_and_restyles_nothing(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await on_the_map(app, keyboard)
        before, styles = drawn(app), dict(the_map(app)._component_styles)
        painted: list[object] = []
        take = app._display

        def noted(screen: MeshScreen, update: object) -> None:
            painted.append(update)
            take(screen, update)  # type: ignore[arg-type]

        app._display = noted  # type: ignore[method-assign, assignment]
        await keyboard.press("tab")
        await until(keyboard, lambda: painted and not the_map(app).has_focus, "the list has the focus")
        assert same(before, drawn(app))
        assert all(the_map(app)._component_styles[name] is style for name, style in styles.items())
        assert not [update for update in painted if isinstance(update, LayoutUpdate)]
    database.close()


async def test_another_theme_draws_all_again(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (120, 40)) as (app, keyboard):
        await on_the_map(app, keyboard)
        await keyboard.press("tab", "tab")

        def colours(strips: dict[int, Strip]) -> set[object]:
            segments: list[Segment] = [segment for strip in strips.values() for segment in strip]
            return {segment.style.bgcolor for segment in segments if segment.style and segment.text.isspace()}

        before = the_map(app)._base.bgcolor  # launchers have the same colours in both themes
        assert before in colours(drawn(app))
        app.theme = "redmesh-light"
        await until(keyboard, lambda: drawn(app) and before not in colours(drawn(app)), "no old background is left")
    database.close()
