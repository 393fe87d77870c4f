"""The line at the foot: what can be done now, and by which key.

Drawn as one line: Textual's footer makes a widget of each key, all anew whenever one of them changes, and lays the
screen out again; that cost more than the map.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

_NEVER_LEFT_OUT = frozenset(("app.help", "app.quit"))  # how to learn the rest, and how to get out


class _Item(NamedTuple):
    shown: str
    label: str
    key: str
    possible: bool
    stays: bool  # also where there is not room for all


class KeyBar(Widget):
    """Follows the screen's bindings; a click on a key is the key."""

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
        self._shown: list[tuple[_Item, int]] = []  # what there was room for, and the column where it ends

    def on_mount(self) -> None:
        """Follows."""
        self.screen.bindings_updated_signal.subscribe(self, self._updated)
        self.call_after_refresh(self._updated, self.screen)

    def _updated(self, screen: Screen[object]) -> None:
        if not screen.is_mounted:
            return
        items: dict[object, _Item] = {}
        for _, binding, enabled, _tip in screen.active_bindings.values():
            if not binding.show:
                continue
            shown = self.app.get_key_display(binding)
            group = binding.group
            name = group if group is not None else binding.action
            before = items.get(name)
            if before is None:
                label = group.description if group is not None else binding.description
                items[name] = _Item(shown, label, binding.key, enabled, binding.id in _NEVER_LEFT_OUT)
            elif group is not None:
                items[name] = before._replace(shown=f"{before.shown} {shown}", possible=before.possible or enabled)
        if list(items.values()) != self._items:
            self._items = list(items.values())
            self.refresh()

    def render(self) -> Content:
        """As many as there is room for, further apart where there is more of it."""
        items = list(self._items)
        for gap in (2, 1):
            line = self._line(items, gap)
            if line.cell_length <= self.size.width + gap:
                return line
        for item in [item for item in reversed(items) if not item.stays]:
            items.remove(item)  # a word cut in half says nothing
            line = self._line(items, 1)
            if line.cell_length <= self.size.width + 1:
                break
        return line

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
        """Presses the key."""
        for item, end in self._shown:
            if event.x < end:
                if item.possible:
                    self.app.simulate_key(item.key)
                return
