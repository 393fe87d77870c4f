"""``m``: the machine, straight from the database and live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from console.tui.actions.registry import bindings
from console.tui.machine import Changed
from console.tui.screens.frame import Framed
from console.tui.widgets.cell_grid import CellGrid
from console.tui.widgets.details import Details
from console.tui.widgets.launcher_list import LauncherList
from console.tui.widgets.legend import Legend
from console.tui.widgets.line_list import LineList
from console.tui.widgets.machine_map import MachineMap
from console.tui.widgets.titles import set_subtitle, set_title
from console.tui.words import several


class MeshScreen(Framed):
    """Map, launchers, details, legend."""

    TITLE_FOR_HELP = "mesh"
    AUTO_FOCUS = "#map"
    BINDINGS: ClassVar[list[BindingType]] = bindings("mesh")
    PLACES = ("mesh", "map", "launchers", "cells")

    def body(self) -> Iterable[Widget]:
        """Map on the left, launchers and details on the right, the legend below."""
        machine = self.console.machine
        self._map = MachineMap(machine, id="map")
        self._launchers = LauncherList(machine, id="launchers")
        self._details = Details(machine, id="details")
        self._legend = Legend(machine, id="legend")
        yield Horizontal(self._map, Vertical(self._launchers, self._details, id="side"), id="mesh-body")
        yield self._legend

    def on_mount(self) -> None:
        """Follows the machine."""
        self.console.machine_changed.subscribe(self, self._machine_changed)
        self._redraw()

    def on_screen_resume(self) -> None:
        """Nothing was drawn while another screen was in front."""
        self._redraw()

    def _redraw(self) -> None:
        self._map.rebuild()
        self._update_lists()

    def _machine_changed(self, changed: Changed) -> None:
        if not self.is_current:
            return
        if changed.shape:
            self._map.rebuild()
        elif changed.cells:
            self._map.repaint(changed.cells)
        self._update_lists()

    def _update_lists(self) -> None:
        machine = self.console.machine
        nodes = len(machine.blocks())
        size = f"{several(nodes, 'node')}, {several(machine.cells, 'processor')}"
        set_title(self._map, f"mesh {machine.mesh}".rstrip())
        set_subtitle(self._map, size if machine.cells else "")
        self._map.message = self.console.trouble or "reading …"
        set_title(self._launchers, f"launchers ({len(machine.launchers)})")
        self._launchers.update_launchers()
        self._legend.refresh()
        self._show_details()
        self.set_class(bool(self.console.trouble), "-old")
        self.refresh_bindings()

    def _show_details(self) -> None:
        if self._launchers.has_focus and self._launchers.selected is not None:
            self._details.show_launcher(self._launchers.selected)
        else:
            self._details.show_cell(self._map.cursor)

    @on(CellGrid.Moved)
    @on(LineList.Moved)
    def _moved(self) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        """Details belong to what has the focus."""
        self._show_details()
        self.refresh_bindings()

    @on(CellGrid.Chosen)
    @on(LineList.Chosen)
    def _chosen(self) -> None:
        self.action_attach()

    def action_attach(self) -> None:
        """Opens the run view of the launcher under the cursor."""
        launcher = self._launchers.selected if self._launchers.has_focus else self._map.launcher
        if launcher is not None:
            self.console.attach(launcher)
