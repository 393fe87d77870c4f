"""The space below a small machine's map: usage over time, nodes, events."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.tui.actions.action import Action
from console.tui.actions.registry import ALL, bindings
from console.tui.context import context
from console.tui.format import HELD, elapsed, program_words
from console.tui.model.machine import HUES, Launcher, Machine, State
from console.tui.model.usage import LEAST, Line, Usage, lines
from console.tui.widgets.bars import set_title
from console.tui.widgets.lines import LineList

_EDGES = 2


class Activity(Widget):
    """Draws :mod:`console.tui.model.usage`; only changed lines are repainted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "activity--quiet",
        "activity--bad",
        "activity--bars",
        "launcher-list--pending",
        *(f"launcher-list--hue-{number}" for number in range(HUES)),
    }

    def __init__(self, machine: Machine, usage: Usage, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine, self._usage = machine, usage
        self._lines: list[Line] = []
        self._styles: dict[str, Style] = {}

    def take_room(self, height: int) -> None:
        """Set the number of lines below the map; with too few lines the widget is hidden."""
        self.display = height >= LEAST + _EDGES
        self.styles.height = max(1, height)

    def update_activity(self) -> None:
        """Show the present activity."""
        if not self.display:
            return
        set_title(self, "activity")
        width, height = self.size
        before = self._lines
        console = context(self)
        age_s = console.picture_age_s() if console.trouble else None
        self._lines = lines(self._machine, self._usage, width, height, age_s)
        pairs = zip_longest(before, self._lines)
        changed = [Region(0, y, width, 1) for y, (old, new) in enumerate(pairs) if old != new]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        self.update_activity()

    def notify_style_update(self) -> None:
        """Forget the cached styles: the theme has changed."""
        super().notify_style_update()
        self._styles.clear()

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            base = self.rich_style
            group = "launcher-list" if name.startswith(("hue", "pending")) else "activity"
            over = self.get_component_rich_style(f"{group}--{name}", partial=True) if name else Style.null()
            style = self._styles[name] = base + over
        return style

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        line = self._lines[y] if y < len(self._lines) else []
        segments = [Segment(text, self._style(style)) for text, style in line]
        return Strip(segments).adjust_cell_length(self.size.width, self._style(""))


# The live launchers, beside the map.


#: For new users: the actions with their keys, and what they are for.
_FIRST_STEPS = (
    ("app.launch", "launch a program"),
    ("map.zoom-in", "zoom in, then its launch"),
    ("app.launchers", "to 7: tables, events, jobs"),
    ("app.go-to", "any place or action by name"),
    ("app.help", "every key (q quits)"),
)


def first_steps(keys_of: Callable[[Action], str]) -> tuple[str, ...]:
    """Five lines of help for a new user, with the configured keys."""
    return tuple(f" {keys_of(ALL[name]):<5} {told}" for name, told in _FIRST_STEPS)


class LauncherList(LineList):
    """Letter, number, user, processors, time and command of every live launcher."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"launcher-list--hue-{number}" for number in range(HUES)),
        "launcher-list--pending",
        "launcher-list--lost",
    }
    BINDINGS: ClassVar[list[BindingType]] = bindings("launchers")
    EMPTY = " nothing runs; n launches a program"

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        # a copy, because the machine may drop a launcher before its line is painted
        self._launchers: dict[int, Launcher] = {}
        self._harmed: frozenset[int] = frozenset()

    def update_launchers(self) -> None:
        """Show the machine's present launchers."""
        self._launchers = dict(self._machine.launchers)
        console = context(self)
        self._harmed = frozenset(console.harmed)
        self.below = () if self._launchers and not console.first_start else first_steps(console.keys_of)
        self.EMPTY = self._why_empty()
        self.set_keys(sorted(self._launchers))

    def _why_empty(self) -> str:
        machine, console = self._machine, context(self)
        if machine.counter < 0:
            return " what runs is not known yet"
        if machine.cells and machine.counts()[State.DOWN] == machine.cells:
            return f" nothing is up; {console.keys_of(ALL['app.health'])} says what to do"
        return type(self).EMPTY

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """`` a 12  ada  16p  2:05 hostname``: the command gets the remaining space. ``▲``: it has lost a node."""
        launcher = self._launchers[key]
        quiet = base + self.look("line-list--quiet")
        held = key in self._machine.held
        if launcher.state == "pending":
            badge, style = "+", self.look("launcher-list--pending")
        else:
            badge = HELD if held else self._machine.letter(key)
            style = self.look(f"launcher-list--hue-{self._machine.hue(key)}")
        time = "held" if held else elapsed(launcher.elapsed_s(self._machine.now))
        mark = "▲" if key in self._harmed else " "
        left = f"{key:<3} "
        user = f" {set_cell_size(launcher.user, 8)}" if width >= 46 else ""
        right = f"{launcher.size:>5}{user} {time:>7} "
        room = max(6, width - 4 - len(left) - len(right))
        command = " ".join(program_words(launcher.command))
        if cell_len(command) > room:
            command = set_cell_size(command, room - 1) + "…"
        return [
            Segment(f" {badge} ", style),
            Segment(mark, base + self.look("launcher-list--lost")),
            Segment(left, quiet),
            Segment(set_cell_size(command, room), base),
            Segment(right, quiet),
        ]
