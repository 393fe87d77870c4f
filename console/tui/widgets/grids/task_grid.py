"""The tasks of a job, or its sections: a cell for each, or for several if there is not enough room."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from console.tui.format import clock, fitted
from console.tui.map.layout import Block, Layout, Lines
from console.tui.model.jobs import TaskMap, TaskState
from console.tui.sources.jobs import Line
from console.tui.widgets.grids.grid import CellGrid
from console.tui.widgets.lines import LineList

#: Readable without colour: every state has its own glyph.
TASK_GLYPHS = {
    TaskState.WAITING: "·",
    TaskState.RUNNING: "▸",
    TaskState.DONE: "✓",
    TaskState.FAILED: "✗",
    TaskState.CANCELLED: "x",
}
TASK_STYLES = {
    TaskState.WAITING: "rank-waiting",
    TaskState.RUNNING: "rank-running",
    TaskState.DONE: "rank-exited",
    TaskState.FAILED: "rank-failed",
    TaskState.CANCELLED: "rank-lost",
}
_LEVELS = "▁▂▃▄▅▆▇█"
_NICE = (1, 2, 5)
_WIDEST_NAME = 20  # columns of the name of a task or node in a list


class TaskGrid(CellGrid):
    """States of tasks with a cursor. Draws :class:`TaskMap` and never changes it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"cell-grid--{name}" for name in TASK_STYLES.values())}

    def __init__(self, tasks: TaskMap, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tasks = tasks
        self._span: tuple[int, int] | None = None  # the shown indices; None: all
        self.per = 1  # tasks in a cell

    @property
    def span(self) -> tuple[int, int]:
        """The first shown index, and the one after the last."""
        first, end = self._span or (0, len(self._tasks))
        return min(first, len(self._tasks)), min(end, len(self._tasks))

    @property
    def zoomed(self) -> bool:
        """True if only some tasks are shown."""
        return self._span is not None

    @property
    def cells(self) -> int:
        """How many cells there are."""
        first, end = self.span
        return -(-(end - first) // self.per)

    def members(self, cell: int) -> tuple[int, int]:
        """The first and last index in a cell."""
        first, end = self.span
        at = first + cell * self.per
        return at, min(end, at + self.per) - 1

    def zoom(self, cell: int | None) -> None:
        """Show the tasks of one cell; None: all again, with the cursor where it was."""
        at = self.members(self.cursor)[0]
        self._span = None if cell is None else (self.members(cell)[0], self.members(cell)[1] + 1)
        self.rebuild()
        self.go_to(at)

    def go_to(self, place: int) -> None:
        """Put the cursor on a task."""
        first, end = self.span
        if not first <= place < end:
            self._span = None
            self.rebuild()
            first = 0
        if self.cells:
            self.cursor = min(self.cells - 1, max(0, (place - first) // self.per))

    def lay_out(self, width: int, height: int) -> Lines:
        """Runs of ten or more, labelled by their first; several tasks in a cell if there is not enough room."""
        first, end = self.span
        count = end - first
        label = max((len(self._tasks.name(place)) for place in {first, max(first, end - 1)}), default=1) if count else 1
        room = max(8, width - label - 2) * max(1, height)
        self.per = 1 if count <= room * 3 // 4 else _nice(count * 4 // (room * 3) + 1)
        cells = self.cells
        run = 10 if cells <= 60 else 20 if cells <= 400 else 50
        blocks = []
        for at in range(0, cells, run):
            blocks.append(Block(self._tasks.name(self.members(at)[0]), at, min(run, cells - at)))
        return Layout(blocks, width, height, halves=False)

    def appearance(self, cell: int) -> tuple[str, str]:
        """Glyph and style: a task's state; for several the worst state, and their progress."""
        first, last = self.members(cell)
        tasks = self._tasks
        if first == last:
            state = TaskState(tasks.states[first])
            progress = tasks.progress.get(first) if state is TaskState.RUNNING else None
            return TASK_GLYPHS[state] if progress is None else _level(progress), TASK_STYLES[state]
        counts = {state: tasks.count(state, first, last) for state in TaskState}
        size = last - first + 1
        for state, count in counts.items():
            if count == size:
                return TASK_GLYPHS[state], TASK_STYLES[state]
        for state in (TaskState.FAILED, TaskState.CANCELLED):
            if counts[state]:
                return TASK_GLYPHS[state], TASK_STYLES[state]
        shown = TaskState.RUNNING if counts[TaskState.RUNNING] else TaskState.WAITING
        return _level(counts[TaskState.DONE] / size), TASK_STYLES[shown]

    def update_tasks(self, changed: set[int] | None) -> None:
        """Repaint the tasks at these indices; None: all."""
        if changed is None:
            self.rebuild()
            return
        first, end = self.span
        cells = {(place - first) // self.per for place in changed if first <= place < end}
        if cells:
            self.repaint(cells)


def _level(part: float) -> str:
    return _LEVELS[max(0, min(len(_LEVELS) - 1, int(part * len(_LEVELS))))]


def _nice(number: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is at least ``number``."""
    power = 1
    while True:
        for one in _NICE:
            if one * power >= number:
                return one * power
        power *= 10


class JobLines(LineList):
    """Failed tasks with their last output, or the job's log."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"cell-grid--rank-failed"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._widest = 0  # columns of a name

    def show(self, lines: list[Line], *, end: bool) -> None:
        """Show these lines; ``end``: with the cursor on the last."""
        self._lines = lines
        self._widest = min(_WIDEST_NAME, max((cell_len(line.name) for line in lines), default=0))
        self.set_keys(list(range(len(lines))))
        if end:
            self.action_move(len(lines))
        self.refresh()

    def line(self, key: int) -> Line | None:
        """The line of that key."""
        return self._lines[key] if 0 <= key < len(self._lines) else None

    def draw(self, key: int, width: int, base: Style) -> list[Segment]:
        """When, which task or node, what."""
        line = self._lines[key]
        quiet = base + self.look("line-list--quiet")
        at = f" {clock(line.at)} " if line.at else " "
        name = fitted(line.name, self._widest)
        name += " " * (self._widest - cell_len(name) + 2) if self._widest else ""
        failed = f" {TASK_GLYPHS[TaskState.FAILED]} "
        mark = [Segment(failed, self.look("cell-grid--rank-failed")), Segment(" ", base)] if line.bad else []
        text = Segment(fitted(line.text, max(0, width - cell_len(at + name) - (len(failed) + 1 if mark else 0))), base)
        return [Segment(at, quiet), *mark, Segment(name, base + Style(bold=True)), text]
