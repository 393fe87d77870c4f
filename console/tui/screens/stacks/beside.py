"""Two ranks, or one rank at two moments, side by side: their calls, and the source line of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from console.tui.actions.registry import bindings
from console.tui.model.launch import Run
from console.tui.model.stacks.beside import Side, calls, first_difference, pairs
from console.tui.model.stacks.rows import Row
from console.tui.model.stacks.source import Place
from console.tui.screens.base import Framed
from console.tui.sources.source_files import SourceFiles
from console.tui.widgets.bars import set_subtitle, set_title
from console.tui.widgets.lines import LineList
from console.tui.widgets.stacks.beside_list import BesideList
from console.tui.widgets.stacks.source_pane import SourcePane


class BesideScreen(Framed):
    """The comparison screen, which opens at the first call that differs."""

    TITLE_FOR_HELP = "side by side"
    AUTO_FOCUS = "#beside"
    BINDINGS: ClassVar[list[BindingType]] = bindings("beside")
    PLACES = ("beside", "lines")

    def __init__(self, run: Run, left: Side, right: Side, files: SourceFiles, *, whole: bool) -> None:
        super().__init__()
        self._run, self._sides, self._files, self._whole = run, (left, right), files, whole

    def facts(self) -> dict[str, str]:
        """The launcher, and both ranks."""
        ranks = ",".join(str(rank) for rank in sorted({side.rank for side in self._sides}))
        return {"launcher": str(self._run.launcher), "ranks": ranks, "rank": str(self._sides[1].rank)}

    def compose(self) -> Iterable[Widget]:
        """Both stacks, and below them both places in the source."""
        self._head = Static(id="beside-head")
        self._list = BesideList(id="beside")
        self._panes = (SourcePane(id="source-left"), SourcePane(id="source-right"))
        return self.framed(self._head, self._list, Horizontal(*self._panes, id="beside-sources"))

    def on_mount(self) -> None:
        """Draw both stacks."""
        self._draw()

    def _draw(self) -> None:
        self._calls = [calls(side, whole=self._whole) for side in self._sides]
        found = pairs(*self._calls)
        count = sum(pair.differs for pair in found)
        self._list.show(found, first_difference(found))
        names = [self._told(side) for side in self._sides]
        parts = [
            Content.styled(f" {self._run.launcher} ", "bold reverse"),
            Content.styled(f" {self._run.name}", "bold"),
        ]
        told = f"  {count} of {len(found)} lines differ" if count else "  no difference"
        parts.append(Content.styled(told, "$warning" if count else "$quiet"))
        self._head.update(Content("").join(parts))
        set_title(self._list, f"{names[0]}  ≠  {names[1]}")
        set_subtitle(self._list, "≠ differs · x exchanges the sides · escape: back")
        self._show_sources()

    def _told(self, side: Side) -> str:
        node = self._run.nodes[side.rank] if side.rank < len(self._run.nodes) else ""
        return f"rank {side.rank}{f' on {node}' if node else ''} at {side.at}"

    @on(LineList.Moved)
    def _show_sources(self) -> None:
        self.run_worker(self._read_sources, group="sources", exclusive=True)  # type: ignore[arg-type]

    async def _read_sources(self) -> None:
        """Read the source of each side at the cursor's line, or before it."""
        found = []
        for number, side in enumerate(self._sides):
            at = self._place(number)
            found.append((at, side, await self._files.read(at, live=self._run.live) if at is not None else None))
        for number, (pane, (at, side, text)) in enumerate(zip(self._panes, found, strict=True)):
            if at is None or text is None:
                pane.tell("no source line is known here")
            else:
                alone = {row.line: str(side.rank) for row in self._calls[number] if row.file == at.path}
                pane.show(text, at.line, alone)

    def _place(self, number: int) -> Place | None:
        for pair in reversed(self._list.pairs[: self._list.cursor + 1]):
            row: Row | None = (pair.left, pair.right)[number]
            if row is not None and row.file and row.line:
                return Place(row.file, row.line, self._sides[number].rank)
        return None

    def action_exchange(self) -> None:
        """Exchange left and right."""
        self._sides = self._sides[::-1]
        self._draw()

    def action_copy(self) -> None:
        """Copy both stacks as text, one after the other."""
        parts = []
        for side, found in zip(self._sides, self._calls, strict=True):
            parts.append(
                "\n".join([self._told(side), *("  " * row.depth + f"{row.call} {row.where}" for row in found)])
            )
        self.app.copy_to_clipboard("\n\n".join(parts))

    def action_back(self) -> None:
        """Go back to the tree."""
        self.dismiss()
