"""The text below a small machine's map: usage over time, nodes with their launchers, events. No I/O."""

from __future__ import annotations

from collections import Counter, deque

from rich.cells import cell_len, set_cell_size

from console.tui.format import elapsed, program_words, several
from console.tui.format import fitted as cut_off
from console.tui.model.machine import Event, Machine, State

# The usage of the machine in the last minutes, as a line of bars or as a chart. No I/O.


_BARS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " " + _BARS
KEPT = 360


class Usage:
    """The share of busy processors for each second of a boot of the mesh; None for a second in which nothing was up,
    or nothing could be read."""

    def __init__(self) -> None:
        self._shares: deque[float | None] = deque(maxlen=KEPT)
        self._boot = ""

    def add(self, busy: int, usable: int, boot: str = "", missed: int = 0) -> None:
        """Add the present value, after ``missed`` seconds without one. The values of another boot are dropped."""
        if boot != self._boot:
            self._shares.clear()
            self._boot = boot
        elif self._shares:
            self._shares.extend([None] * min(missed, KEPT))
        self._shares.append(busy / usable if usable else None)

    @property
    def now(self) -> float | None:
        """The last value; None before the first, and while nothing is up."""
        return self._shares[-1] if self._shares else None

    def seconds(self, width: int) -> int:
        """How many of the last ``width`` values are known."""
        return max(0, min(width, len(self._shares)))

    def bars(self, width: int) -> str:
        """The last ``width`` values as bars, or fewer; the lowest bar means zero."""
        shares = list(self._shares)[-width:] if width > 0 else []
        return "".join(
            " " if share is None else _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))] for share in shares
        )

    def chart(self, width: int, height: int) -> list[str]:
        """The last ``width`` values as a chart, ``height`` lines high, the newest second on the right."""
        shares = list(self._shares)[-width:] if width > 0 else []
        eighths = [round(8 * height * min(1.0, share or 0.0)) for share in shares]
        left = " " * (width - len(shares))
        return [
            left + "".join(_EIGHTHS[max(0, min(8, count - 8 * (height - 1 - y)))] for count in eighths)
            for y in range(height)
        ]


#: A text and the name of its style; empty for the default.
Part = tuple[str, str]
Line = list[Part]
LEAST = 6  # with fewer lines nothing useful fits
_MOST_CHART = 14
_WIDE = 70  # columns for whole sentences
_BROAD = 104  # columns for a node's usage in words, if the names of launchers leave room for them
_USAGE = 5  # the parts of a node's line before its reason and its launchers
_APART = 2  # columns between the launchers of a node
_LEAST_NAME = 6  # with fewer columns for each name, the letters stand alone
_AXIS = 5  # columns for ``100% ``


def lines(machine: Machine, usage: Usage, width: int, height: int, age_s: float | None = None) -> list[Line]:
    """The lines that fit into the given space. ``age_s``: how old the picture is, if it is out of date."""
    if height < LEAST or not machine.cells:
        return []
    told = _chart(usage, width, max(3, min(_MOST_CHART, height // 3)), age_s)
    if machine.nodes_with_processors + 2 <= height - len(told):
        nodes = [index for index in range(len(machine.nodes)) if machine.node_cells(index)]
        told += [[], *_nodes(machine, nodes, width)]
    left = height - len(told) - 1
    if left > 0 and machine.events:
        told += [[], *(_event(event, machine.now, width) for event in machine.events[: -left - 1 : -1])]
    return [fitted(line, width) for line in told]


def _chart(usage: Usage, width: int, height: int, age_s: float | None = None) -> list[Line]:
    rows = usage.chart(width - _AXIS, height)
    seconds = usage.seconds(width - _AXIS)
    names = {0: "100%", height - 1: "0"}
    found: list[Line] = [[(f"{names.get(y, ''):>4} ", "quiet"), (row, "bars")] for y, row in enumerate(rows)]
    now = usage.now
    when = "now" if age_s is None else f"{elapsed(age_s)} ago"
    end = f"in use {when}: {100 * now:.0f}%" if now is not None else f"nothing is up {when}" if seconds else ""
    if age_s is not None:
        end = end.replace("is up", "was up")
    begin, last = width - seconds, max(0, width - len(end))  # the columns of the first bar and of the last words
    since = f"{elapsed(seconds + (age_s or 0.0))} ago" if seconds else ""
    if begin + len(since) >= last:
        since, begin = "", last
    return [*found, [(" " * begin + since.ljust(last - begin) + end, "quiet")]]


def _nodes(machine: Machine, nodes: list[int], width: int) -> list[Line]:
    names = min(24, max(len(machine.nodes[index].name) for index in nodes))
    states = max(len(machine.nodes[index].state) for index in nodes)
    users = [_users(machine, index) for index in nodes]
    rows = list(zip(nodes, users, strict=True))
    wordy = [_node(machine, index, names, states, held, width, brief=False) for index, held in rows]
    if width >= _BROAD and all(_has_names(line, width) for line in wordy):
        return wordy
    return [_node(machine, index, names, states, held, width, brief=True) for index, held in rows]


def _has_names(line: Line, width: int) -> bool:
    """Whether the line of a node fits, with the whole name of the program of each launcher."""
    cut = any(text == " " or "…" in "".join(text.split()[1:2]) for text, _ in line[_USAGE:])
    return not cut and sum(cell_len(text) for text, _ in line) <= width + _APART


def _users(machine: Machine, index: int) -> list[tuple[int, int]]:
    """The launchers on a node, each with its number of processors."""
    held = Counter(machine.processors[cell].launcher for cell in machine.node_cells(index))
    return sorted((one, count) for one, count in held.items() if one is not None)


def _node(
    machine: Machine, index: int, names: int, states: int, holders: list[tuple[int, int]], width: int, *, brief: bool
) -> Line:
    """Name, state, usage and users of a node; or why it is unusable. ``brief``: the usage without words."""
    node, cells = machine.nodes[index], machine.node_cells(index)
    free = sum(machine.states[cell] in (State.FREE, State.SERVICE) for cell in cells)
    busy = sum(count for _, count in holders)
    gauge = 8 if brief else 20
    full = round(gauge * busy / len(cells))
    told = f"  {busy:>3} of {several(len(cells), 'processor')} in use, {free:>3} free  "
    line: Line = [
        (f"{node.name[:names]:<{names}}  ", ""),
        (f"{node.state:<{states}}  ", "quiet" if node.state == "up" else "bad"),
        ("━" * full, "bars"),
        ("─" * (gauge - full), "quiet"),
        (f"  {busy:>3}/{len(cells)} " if brief else told, "quiet"),
    ]
    if node.reason:
        line.append((f"{node.reason}  ", "bad"))
    return line + _holders(machine, holders, width - sum(cell_len(text) for text, _ in line))


def _holders(machine: Machine, holders: list[tuple[int, int]], room: int) -> Line:
    """The launchers of a node with their processors: whole commands, or programs, or what fits of their names."""
    commands = []
    for number, _ in holders:
        launcher = machine.launchers.get(number)
        commands.append(program_words(launcher.command) if launcher is not None else [])
    counts = [f" {count}× " for _, count in holders]
    room -= sum(3 + len(count) + _APART for count in counts)
    names = [" ".join(words) for words in commands]
    most = _share([cell_len(name) for name in names], room)
    programs = [" ".join(words[:1]) for words in commands]
    if any(most < min(cell_len(name), cell_len(one) + _LEAST_NAME) for name, one in zip(names, programs, strict=True)):
        names, most = programs, _share([cell_len(one) for one in programs], room)
    named = most >= _LEAST_NAME or sum(map(cell_len, names)) <= room
    line: Line = []
    for (number, _), count, name in zip(holders, counts, names, strict=True):
        launcher = machine.launchers.get(number)
        pending = launcher is not None and launcher.state == "pending"
        badge, style = ("+", "pending") if pending else (machine.letter(number), f"hue-{machine.hue(number)}")
        told = f"{count}{cut_off(name, max(most, 1))}{' ' * _APART}" if named else " "
        line += [(f" {badge} ", style), (told, "")]
    return line


def _share(wanted: list[int], room: int) -> int:
    """The widest column that all can have: narrow ones leave what they do not need to the others."""
    left, most = room, 0
    for i, width in enumerate(sorted(wanted)):
        most = left // (len(wanted) - i)
        left -= min(width, most)
    return most


def _event(event: Event, now: float, width: int) -> Line:
    ago = elapsed(max(0.0, now - event.at))
    if width < _WIDE:
        return [(f"{ago:>8} ", "quiet"), (event.text or event.kind, "")]
    return [(f"{ago:>9} ago  ", "quiet"), (f"{event.kind:<18} ", ""), (event.text, "quiet")]


def fitted(line: Line, width: int) -> Line:
    """A line cut off at the width, with a mark."""
    kept: Line = []
    room = width
    for text, style in line:
        if cell_len(text.rstrip()) > room:
            return [*kept, (set_cell_size(text, room - 1) + "…", style)] if room > 1 else kept
        kept.append((text, style))
        room -= cell_len(text)
    return kept
