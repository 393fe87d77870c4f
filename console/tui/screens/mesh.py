"""``m``: the machine, live from the database."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from console.tui.actions import commands
from console.tui.actions.registry import bindings
from console.tui.format import several
from console.tui.map.zoom import MACHINE
from console.tui.model.expressions import ExpressionError, choose
from console.tui.model.machine import Changed
from console.tui.screens.base import Framed
from console.tui.screens.commands import CommandDialogs
from console.tui.screens.dialogs import Entry
from console.tui.sources.node import Probe
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.details import Details
from console.tui.widgets.grids.grid import CellGrid
from console.tui.widgets.lines import LineList
from console.tui.widgets.machine_map import Legend, MachineMap
from console.tui.widgets.sidebar import Activity, LauncherList
from console.tui.widgets.wrong_line import WrongLine

_HINTS = "H launch · D drain · R resume · B reserve · T term · K kill · y copy"


class MeshScreen(Framed):
    """Map, launchers, details, legend."""

    TITLE_FOR_HELP = "mesh"
    AUTO_FOCUS = "#map"
    BINDINGS: ClassVar[list[BindingType]] = bindings("mesh")
    PLACES = ("mesh", "map", "launchers", "cells", "wrong")
    HORIZONTAL_BREAKPOINTS = [*Framed.HORIZONTAL_BREAKPOINTS, (170, "-broad")]

    def compose(self) -> Iterable[Widget]:
        """What is wrong; the map, and the activity where it leaves room; launchers and details beside; the legend."""
        machine = self.console.machine
        self._map = MachineMap(machine, id="map")
        self._launchers = LauncherList(machine, id="launchers")
        self._details = Details(machine, id="details")
        self._probe = Probe(machine)
        self._legend = Legend(machine, id="legend")
        self._possible: tuple[object, ...] = ()
        self._boot = machine.boot_id
        self._missed: set[int] = set()  # cells that changed while another screen was in front
        self._selection: tuple[object, str] = ((), "")  # what is selected, in words
        self._commands = CommandDialogs(self, self.target)
        self._wrong = WrongLine()
        self._activity = Activity(machine, self.console.usage, id="activity")
        self._left = Vertical(self._map, self._activity, id="machine")
        side = Vertical(self._launchers, self._details, id="side")
        return self.framed(self._wrong, Horizontal(self._left, side, id="mesh-body"), self._legend)

    def on_mount(self) -> None:
        """Subscribe to changes of the machine."""
        self.console.machine_changed.subscribe(self, self._machine_changed)
        self._redraw()

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was in front."""
        self._redraw()
        missed, self._missed = self._missed, set()
        self._map.repaint(missed)

    def on_resize(self) -> None:
        """The map's size may be unchanged although its column's is not."""
        self.call_after_refresh(self._map.rebuild)

    def _redraw(self) -> None:
        self._map.rebuild()
        self._update_lists()

    def _machine_changed(self, changed: Changed) -> None:
        if not self.is_current:
            self._missed = set() if changed.shape else self._missed | changed.cells
            return
        if changed.shape:
            if not self._map.is_current:
                self._map.rebuild()
            self._share_room()  # at once, so that the machine is painted only once
        elif changed.cells:
            self._map.repaint(changed.cells)
        self._update_lists()

    def _update_lists(self) -> None:
        machine = self.console.machine
        if self._boot != machine.boot_id:
            self._boot = machine.boot_id
            self._map.select(())  # the numbers of its processors are those of others now
        if self._wrong.update_wrongs():
            self.call_after_refresh(self._map.rebuild)
        self._titles()
        self._map.message = self.console.trouble or "reading …"
        set_title(self._launchers, f"launchers ({len(machine.launchers):,})")
        self._launchers.update_launchers()
        self._legend.update_counts(self._map.has_mixed)
        self._activity.update_activity()
        self._show_details()
        self._ask_node()
        self.set_class(bool(self.console.trouble), "-old")

    @on(MachineMap.LaidOut)
    def _share_room(self) -> None:
        """Give the map the space it needs, and the rest to the activity; at once where a key asks for another chart,
        or the screen is laid out twice."""
        left = self._left.size.height - self._map.needs if self._map.cells else 0
        self._activity.take_room(left)
        self._map.styles.height = self._map.needs if self._activity.display else "1fr"

    def _ask_node(self) -> None:
        """Query the PCT of the node that the details are about, if that is due."""
        node, settings = self._details.node, self.console.settings
        if node is None or self.console.replaying:
            return
        if self._probe.due(node, settings.mesh, settings.state_dir):

            async def hear() -> None:
                await self._probe.ask(node)
                self._show_details()

            self.run_worker(hear, group="probe", exclusive=True)  # type: ignore[arg-type]

    def _titles(self) -> None:
        machine, shown = self.console.machine, self._map
        path = f" › {shown.path}" if shown.place != MACHINE else ""
        side = f", {shown.side_seen}" if shown.side_seen else ""
        set_title(shown, f"mesh {machine.mesh}".rstrip() + side + path)
        if shown.selected:
            of = (shown.selected, machine.shapes)
            if self._selection[0] != of:
                self._selection = of, commands.told(machine, shown.selected_cells)
            hints = f" · {_HINTS}" if shown.size.width > 100 else " · ? verbs"
            set_subtitle(shown, f"{self._selection[1]} selected{hints}")
        elif machine.cells and shown.place == MACHINE:
            nodes, processors = several(machine.nodes_with_processors, "node"), several(machine.cells, "processor")
            set_subtitle(shown, f"{processors} · z shows each" if shown.merged else f"{nodes}, {processors}")
        else:
            set_subtitle(shown, several(shown.cells, "processor") if shown.cells else "")

    def _show_details(self) -> None:
        if self._launchers.has_focus and self._launchers.selected is not None:
            self._details.show_launcher(self._launchers.selected)
        elif self._map.cell is not None:
            where, mixture = self._map.where(self._map.cell), self._map.mixture
            self._details.show_cell(self._map.cell, where, len(self._map.under), mixture)
        else:
            self._details.show_nothing()

    @on(CellGrid.Moved)
    @on(LineList.Moved)
    def _moved(self) -> None:
        self._show_details()
        self._update_bindings()

    @on(MachineMap.Selected)
    def _selected(self) -> None:
        self._titles()
        self._show_details()
        self._update_bindings()

    def _update_bindings(self) -> None:
        """Update only if something became possible or impossible, because every binding is asked."""
        shown = self._map
        possible = (self._launcher is None, bool(shown.selected), shown.ranging, shown.place)
        if possible != self._possible:
            self._possible = possible
            self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        """The details are about the focused widget."""
        self._show_details()
        self.refresh_bindings()

    # Navigation

    @on(CellGrid.Chosen)
    def _cell_chosen(self) -> None:
        if self._map.zoom_in():
            self._share_room()
        else:
            self.action_attach()

    @on(LineList.Chosen)
    def _launcher_chosen(self) -> None:
        self.action_attach()

    def action_out(self) -> None:
        """End a range; else clear the selection; else zoom out."""
        if self._map.ranging:
            self._map.begin_range()
        elif self._map.selected:
            self._map.select(())
        elif self._map.zoom_out():
            self._share_room()
        else:
            self._map.focus()

    def action_whole(self) -> None:
        """Show everything on one screen, or every processor as a cell."""
        self._map.whole = not self._map.whole
        self._map.rebuild()
        self._share_room()
        self._titles()

    def go_to(self, kind: str, name: str) -> bool:
        """Show a node or a cabinet; False if it does not exist."""
        found = self._map.find_place(kind, name)
        if found is None:
            return False
        self._map.show(*found)
        self._map.focus()
        return True

    def select(self, cells: Iterable[int]) -> None:
        """Select these cells, and show the first."""
        chosen = sorted(cells)
        self._map.select(chosen)
        if chosen:
            self._map.show(MACHINE, chosen[0])
        self._map.focus()

    @property
    def _launcher(self) -> int | None:
        return self._launchers.selected if self._launchers.has_focus else self._map.launcher

    def action_attach(self) -> None:
        """Open the tab of the launcher under the cursor."""
        if self._launcher is not None:
            self.console.attach(self._launcher)

    def possible(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action is dimmed or hidden now."""
        if not self.is_mounted:
            return True
        if action in ("attach", "select_launcher"):
            return True if self._launcher is not None else None
        if action == "out":
            return bool(self._map.selected or self._map.ranging or self._map.place != MACHINE)
        if action == "invert":
            return True if self._map.selected else None
        return True

    # Selection

    def action_select(self) -> None:
        """Select or unselect what is under the cursor."""
        if self._launchers.has_focus and self._launchers.selected is not None:
            self._map.toggle(self.console.machine.cells_of_launcher(self._launchers.selected))
        else:
            self._map.toggle(self._map.under)

    def action_range(self) -> None:
        """Start or end a range."""
        self._map.begin_range()
        self._map.focus()

    def action_select_group(self) -> None:
        """Select the cabinet or node of the processor under the cursor."""
        if self._map.cell is not None:
            self._map.toggle(self._map.group_cells(self._map.cell))

    def action_select_launcher(self) -> None:
        """Select all processors of the launcher under the cursor."""
        if self._launcher is not None:
            self._map.toggle(self.console.machine.cells_of_launcher(self._launcher))

    def action_select_state(self) -> None:
        """Select all processors in the state of the one under the cursor."""
        machine, cell = self.console.machine, self._map.cell
        if cell is not None:
            state = machine.states[cell]
            self._map.toggle([other for other in range(machine.cells) if machine.states[other] == state])

    def action_invert(self) -> None:
        """Invert the selection."""
        chosen = set(self._map.selected_cells)
        self._map.select([cell for cell in range(self.console.machine.cells) if cell not in chosen])

    def action_expression(self) -> None:
        """Select by an expression, which is evaluated while it is typed."""
        before = set(self._map.selected)

        def told(text: str) -> str:
            if not text.strip():
                self._map.select_processors(before)
                return "free, busy, suspect …, node[1-8], c3-*, 0..15, user=ada, launcher=7, job=4242 with & | ! ( )"
            try:
                cells = choose(text, self.console.machine, os.getuid())
            except ExpressionError as error:
                return f"!{error.message}" + (f" ({error.hint})" if error.hint else "")
            self._map.select(cells)
            return f"{commands.told(self.console.machine, cells)} selected" if cells else "none are"

        def answered(text: str | None) -> None:
            if not (text or "").strip():
                self._map.select_processors(before)

        self.app.push_screen(Entry("select", told, placeholder="node[1-8] & free"), answered)

    # Commands

    def action_do(self, name: str) -> None:
        """Ask for confirmation, then run the command."""
        self._commands.do(name)

    def action_copy(self, what: str) -> None:
        """Copy the selection as a list of nodes, or of processors."""
        found = self.target()
        self._commands.copy(found.node_list if what == "nodes" else found.processor_list)

    def target(self) -> commands.Target:
        """The selection, or else what is under the cursor."""
        machine = self.console.machine
        cells = self._map.selected_cells
        if not cells and self._launchers.has_focus and self._launchers.selected is not None:
            cells = machine.cells_of_launcher(self._launchers.selected)
        return commands.target(machine, cells or self._map.under)

    def facts(self) -> dict[str, str]:
        """Values for the command lines in help and palette."""
        found = self.target()
        facts = {"nodes": commands.shortened(found.node_list), "processors": commands.shortened(found.processor_list)}
        facts = {key: value for key, value in facts.items() if value}
        return facts if self._launcher is None else {**facts, "launcher": str(self._launcher)}

    def action_launch_here(self) -> None:
        """Open the launch form with the selection."""
        found = self.target()
        if found.processors:
            self.console.launch_on(found.processor_list, len(found.processors))
