"""Every text of every screen can be read: at least WCAG's 4.5 between a text and its background, in every theme."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color, blend_rgb
from rich.style import Style
from textual._wait import wait_for_idle
from textual.theme import Theme

from console.tui.terminal import themes
from console.tui.terminal.colours import contrast
from tests.support import scenes
from tests.support.chance import LONG
from tests.support.waiting import PATIENCE_S

LEAST = 4.5
THEMES = ("dark", "light", "mono")
ON_ALL = ("foreground", "primary", "accent", "warning", "error", "success")
#: Frames, bars, rules and shades carry no text; the program's own colours are another module's (colours.py).
DRAWN = set("─│╭╮╰╯┊━┃┆┈╌╸╺═█▉▊▋▌▍▎▏▇▆▅▄▃▂▁░▒▓▔▐╱ ")
#: What is dimmed on purpose: all that is behind a question or a page.
BEHIND = {"health", "tabs", "help", "palette", "job-task", "job-cancel", "wrong"}


def faint(app: Any) -> set[tuple[str, str, str, float]]:
    """The texts of the screen that are hard to read: text, its colour, its background, the contrast."""
    found = set()
    for strip in app.screen._compositor.render_strips():
        for text, style, control in strip:
            if control or not set(text) - DRAWN or style is None or style.color is None or style.bgcolor is None:
                continue
            front, back = colours(style)
            if (seen := contrast(front, back)) < LEAST:
                found.add((text.strip(), front.hex, back.hex, round(seen, 1)))
    return found


def colours(style: Style) -> Any:
    """The colours of a text and its background, as a terminal shows them."""
    assert style.color is not None and style.bgcolor is not None
    front, back = style.color.get_truecolor(), style.bgcolor.get_truecolor()
    if style.reverse:
        front, back = back, front
    return (blend_rgb(front, back, 0.5) if style.dim else front), back


@pytest.mark.parametrize("theme", themes.THEMES, ids=themes.NAMES)
def test_every_colour_of_text_differs_from_every_ground(theme: Theme) -> None:
    """Rows under the cursor, heads of tables and notes have grounds of their own."""
    named = {**theme.variables, **{name: getattr(theme, name) for name in ("background", "panel", *ON_ALL)}}
    fronts = [*ON_ALL, "quiet", "violet", "footer-key-foreground", "footer-description-foreground"]
    pairs = itertools.product(fronts, ("background", "bar", "panel", "select"))
    pairs = [*pairs, ("background", "accent"), ("background", "warning"), ("alarm-ink", "alarm")]
    seen = {pair: contrast(*(Color.parse(named[name]).get_truecolor() for name in pair)) for pair in pairs}
    assert not {pair: round(one, 1) for pair, one in seen.items() if one < LEAST}


@pytest.mark.storm
@pytest.mark.timeout(600)
async def test_every_text_of_every_screen_differs_from_its_background(tmp_path: Path) -> None:
    """The screens of each scene in one of the themes, in turn; in make storm in all of them."""
    seen: dict[str, Any] = {}
    turns = itertools.cycle(THEMES)
    of: dict[Any, str] = {}  # the theme of a scene's application: a change of it styles and paints every widget anew

    async def look(app: Any, name: str) -> None:
        if name in BEHIND:
            return
        if app not in of:
            of[app] = next(turns)
        for theme in THEMES if LONG else (of[app],):
            app.theme = f"redmesh-{theme}"
            deadline = time.monotonic() + PATIENCE_S
            while (found := faint(app)) and time.monotonic() < deadline:  # a theme is painted part by part
                await wait_for_idle(0)
            if found:
                seen[f"{name} {theme}"] = found

    await scenes.play(tmp_path, (120, 40), "dark", look, scenes.SMALL)
    assert not seen, "\n".join(f"{name}: {sorted(found)}" for name, found in seen.items())
