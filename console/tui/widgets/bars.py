"""The top bar: the present place, open tabs, and the state of the machine."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.keys import key_to_character
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from console.tui.context import AppContext, context
from console.tui.format import HELD, elapsed, fitted
from console.tui.model.launch import Phase
from console.tui.model.machine import State

_MORE = 7  # columns for the number of tabs that do not fit
_UNUSABLE = (State.DOWN, State.SUSPECT, State.DRAINED, State.SERVICE)
_MARKS = {Phase.ATTACHING: "…", Phase.WAITING: "…", Phase.LOADING: "…", Phase.RUNNING: "▸", Phase.GONE: "?"}


class TopBar(Widget):
    """Clickable tabs, and the state of the machine and the age of the last reading."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "top-bar--brand",
        "top-bar--tab",
        "top-bar--here",
        "top-bar--good",
        "top-bar--bad",
        "top-bar--quiet",
        "top-bar--bars",
    }

    @property
    def console(self) -> AppContext:
        """The application."""
        return context(self)

    def on_mount(self) -> None:
        """Subscribe to changes of the machine, the runs and the mode."""
        self.console.machine_changed.subscribe(self, lambda _: self.refresh())
        self.console.runs_changed.subscribe(self, lambda _: self.refresh())
        self.console.mode_change_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> Content:
        """Brand, tabs, and on the right the state."""
        right = self._state()
        left = Content.assemble((" Redmesh ", self.get_visual_style("top-bar--brand")))
        room = self.size.width - left.cell_length - right.cell_length
        tabs = self._tabs()
        here = next((i for i, (name, _) in enumerate(tabs) if name == self.console.current_mode), 0)
        count = len(tabs)
        # If not all fit, the tabs furthest from the present one are left out first.
        while len(tabs) > 1 and sum(cell_len(title) + 2 for _, title in tabs) + _MORE * (len(tabs) < count) > room:
            drop = 2 if here > 2 or (here == len(tabs) - 1 and len(tabs) > 3) else len(tabs) - 1
            if tabs[drop][0] == self.console.current_mode:
                break
            del tabs[drop]
            here -= drop < here
        for name, title in tabs:
            style = self.get_visual_style("top-bar--here" if name == self.console.current_mode else "top-bar--tab")
            meta = Style.from_meta({"@click": f"app.show({name!r})"})
            left = left.append(Content.styled(f" {title} ", style + meta))
        if len(tabs) < count:
            meta = Style.from_meta({"@click": "app.choose_tab"})
            left = left.append(
                Content.styled(f" +{count - len(tabs)} ▾ ", self.get_visual_style("top-bar--tab") + meta)
            )
        gap = max(1, self.size.width - left.cell_length - right.cell_length)
        return left.append(" " * gap).append(right)

    def _tabs(self) -> list[tuple[str, str]]:
        table = self.console.navigator.table
        tabs = [("mesh", "Mesh"), ("launch", "Launch"), (table, table.capitalize())]
        told: dict[str, str] = {}
        for launcher, run in self.console.runs.items():
            mark = HELD if run.held and run.live else _MARKS.get(run.phase) or ("✗" if run.failed else "✓")
            mark = "…" if run.past and mark == _MARKS[Phase.RUNNING] else mark
            told[f"run-{launcher}"] = f"{mark} {launcher} {fitted(run.name, 14)}".rstrip()
        for job in self.console.open_jobs:
            mark = "▸" if job.live else "✓" if job.state == "done" else "✗"
            told[f"job-{job.id}"] = f"{mark} {fitted(job.name or job.id, 14)}"
        tabs += [(tab.mode, told[tab.mode]) for tab in self.console.open_tabs]
        return tabs

    async def on_click(self, event: events.Click) -> None:
        """A click on the mark of problems lists them."""
        problems = len(self.console.problems)
        if problems and event.x >= self.size.width - len(f"▲ {problems} "):
            await self.app.run_action("health")

    def _state(self) -> Content:
        console = self.console
        quiet, bad = self.get_visual_style("top-bar--quiet"), self.get_visual_style("top-bar--bad")
        if console.trouble:
            age = console.picture_age_s()
            text = "nothing read yet" if age is None else f"last read {elapsed(age)} ago"
            return Content.assemble((f" {text} ", bad))
        if console.replaying:
            return Content.assemble((f" {console.where_told()} ", self.get_visual_style("top-bar--here")))
        counts = console.machine.counts()
        if console.machine.cells and counts[State.DOWN] == console.machine.cells:
            return Content.assemble((" nothing is up ", bad))
        bars = console.usage.bars(max(0, min(30, (self.size.width - 84) // 2)))
        usable = console.machine.cells - sum(counts[state] for state in _UNUSABLE)
        only = (" read only ", self.get_visual_style("top-bar--bad")) if console.read_only else ("", quiet)
        return Content.assemble(
            only,
            (f" use {bars} ", self.get_visual_style("top-bar--bars")) if bars else ("", quiet),
            (f" {counts[State.FREE]:,} of {usable:,} free ", quiet),
            (f"▲ {len(console.problems)} ", bad)  # no link: a link has the text's colour, which is faint on the mark's
            if console.problems
            else ("● ", self.get_visual_style("top-bar--good") if console.health_known else quiet),
        )


# The key bar: possible actions with their keys. It is drawn as one line, because Textual's footer makes a widget of
# each key, and after any change creates all of them and lays out the screen again, which cost more than the map.


_NEVER_LEFT_OUT = frozenset(("app.help", "app.quit"))  # the keys for help and for quitting


class _Item(NamedTuple):
    shown: str
    label: str
    key: str
    possible: bool
    stays: bool  # shown even if not all fit


class KeyBar(Widget):
    """Shows the screen's bindings; a click on a key presses it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-bar--key", "key-bar--label", "key-bar--dim"}
    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $footer-background; }
    KeyBar .key-bar--key { color: $footer-key-foreground; text-style: bold; }
    KeyBar .key-bar--label { color: $footer-description-foreground; }
    KeyBar .key-bar--dim { color: $quiet; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._items: list[_Item] = []
        self._more: list[_Item] = []  # further possible actions, if there is room
        self._shown: list[tuple[_Item, int]] = []  # the shown items, each with the column of its end

    def on_mount(self) -> None:
        """Subscribe to changes of the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._updated)
        self.call_after_refresh(self._updated, self.screen)

    def _updated(self, screen: Screen[object]) -> None:
        if not screen.is_mounted:
            return
        items: dict[object, _Item] = {}
        typing = screen.focused
        before_more, self._more = self._more, []
        for _, binding, enabled, _tip in screen.active_bindings.values():
            shown = self.app.get_key_display(binding)
            letter = shown if len(shown) == 1 and shown.isascii() else key_to_character(binding.key)  # slash is no name
            if typing is not None and typing.check_consume_key(binding.key, letter):
                continue  # the line takes it as a letter
            if not binding.show:
                if enabled and (binding.id or "").partition(".")[0] in ("app", *getattr(screen, "PLACES", ())[:1]):
                    self._more.append(
                        _Item(self.app.get_key_display(binding), binding.description, binding.key, True, False)
                    )
                continue
            group = binding.group
            name = group if group is not None else binding.action
            before = items.get(name)
            if before is None:
                label = group.description if group is not None else binding.description
                items[name] = _Item(shown, label, binding.key, enabled, binding.id in _NEVER_LEFT_OUT)
            elif group is not None:
                items[name] = before._replace(shown=f"{before.shown} {shown}", possible=before.possible or enabled)
        once = {item.label: item for item in reversed(items.values())}  # enter and a letter may do the same
        unique = [item for item in items.values() if once[item.label] is item]
        self._more = [
            item for item in {item.label: item for item in reversed(self._more)}.values() if item.label not in once
        ]
        self._more.reverse()
        if (unique, self._more) != (self._items, before_more):
            self._items = unique
            self.refresh()

    def render(self) -> Content:
        """As many items as fit, spread if there is room."""
        items = list(self._items)
        for gap in (2, 1):
            line = self._line(items, gap)
            if line.cell_length <= self.size.width + gap:
                return self._filled(items, gap)
        for item in [item for item in reversed(items) if not item.stays]:
            items.remove(item)  # leave out a whole item rather than cut a word
            line = self._line(items, 1)
            if line.cell_length <= self.size.width + 1:
                break
        return line

    def _filled(self, items: list[_Item], gap: int) -> Content:
        """The line with further items that fit, before those that are always at the end (help and quit)."""
        first, last = [item for item in items if not item.stays], [item for item in items if item.stays]
        room = self.size.width + gap - self._line(items, gap).cell_length
        for item in self._more:
            width = cell_len(item.shown) + 1 + cell_len(item.label) + gap
            if width <= room:
                first.append(item)
                room -= width
        return self._line([*first, *last], gap)

    def _line(self, items: list[_Item], gap: int) -> Content:
        key_style, label_style = self.get_visual_style("key-bar--key"), self.get_visual_style("key-bar--label")
        dim = self.get_visual_style("key-bar--dim")
        line = Content(" ")
        self._shown = []
        for item in items:
            styles = (key_style, label_style) if item.possible else (dim, dim)
            part = Content.assemble((item.shown, styles[0]), (f" {item.label}", styles[1]))
            line = line.append(part).append(" " * gap)
            self._shown.append((item, line.cell_length))
        return line

    def on_click(self, event: events.Click) -> None:
        """Press the key that was clicked."""
        for item, end in self._shown:
            if event.x < end:
                if item.possible:
                    self.app.simulate_key(item.key)
                return


# Titles of frames: plain text without markup, redrawn only after a change. Textual would redraw the whole widget.


def set_title(widget: Widget, text: str) -> None:
    """The title in the frame's upper edge."""
    title = Content(text)
    if widget.border_title != title.markup:
        widget._border_title = title
        _redraw_edge(widget, 0)


def set_subtitle(widget: Widget, text: str) -> None:
    """The title in the frame's lower edge."""
    title = Content(text)
    if widget.border_subtitle != title.markup:
        widget._border_subtitle = title
        _redraw_edge(widget, widget.outer_size.height - 1)


def _redraw_edge(widget: Widget, y: int) -> None:
    left, top = widget.content_offset
    widget.refresh(Region(-left, y - top, widget.outer_size.width, 1))
