"""The live launchers, beside the map."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType

from console.tui.actions.registry import bindings
from console.tui.machine import HUES, Launcher, Machine, hue
from console.tui.widgets.line_list import LineList
from console.tui.words import elapsed


class LauncherList(LineList):
    """Letter, number, user, processors, time and command of every live launcher."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"launcher-list--hue-{number}" for number in range(HUES)),
        "launcher-list--pending",
    }
    BINDINGS: ClassVar[list[BindingType]] = bindings("launchers")
    EMPTY = "nothing runs; n launches a program"

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._launchers: dict[int, Launcher] = {}  # those listed: the machine's may have gone before a line is painted

    def update_launchers(self) -> None:
        """Shows the launchers the machine has now."""
        self._launchers = dict(self._machine.launchers)
        self.set_keys(sorted(self._launchers))

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """`` a 12  ada  16p  2:05 hostname``: the command takes the room that is left."""
        launcher = self._launchers[key]
        quiet = base + self.look("line-list--quiet")
        if launcher.state == "pending":
            badge, style = "+", self.look("launcher-list--pending")
        else:
            badge = self._machine.letter(key)
            style = self.look(f"launcher-list--hue-{hue(key)}")
        time = elapsed(launcher.elapsed_s(self._machine.now))
        left = f" {key:<3} "
        user = f" {set_cell_size(launcher.user, 8)}" if width >= 46 else ""
        right = f"{launcher.size:>5}{user} {time:>7} "
        room = max(6, width - 3 - len(left) - len(right))
        command = launcher.command
        if cell_len(command) > room:
            command = set_cell_size(command, room - 1) + "…"
        return [
            Segment(f" {badge} ", style),
            Segment(left, quiet),
            Segment(set_cell_size(command, room), base),
            Segment(right, quiet),
        ]
