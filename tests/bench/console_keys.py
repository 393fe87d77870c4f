"""From a key to the last byte of its answer, on a machine of 11,136 processors on which nothing else changes."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.consoles import Screen, bare, screen
from tests.bench.ratios import Bar, Row
from tests.support.big_machine import storm

PRESSES = 150
RIGHT, DOWN, LEFT, UP, PAGE_DOWN, PAGE_UP = (f"\x1b[{end}" for end in ("C", "B", "D", "A", "6~", "5~"))
ESCAPE, DELETE, PALETTE = "\x1b", "\x7f", "\x10"
#: What is measured: the keys before from the map, the keys in turn, and the keys back to the map.
_KINDS = (
    ("arrows on the map", (), (RIGHT, DOWN, DOWN, LEFT, UP), ("g",)),
    ("arrows and pages on the map of all processors", ("z",), (RIGHT, DOWN, LEFT, PAGE_DOWN, PAGE_UP), ("z",)),
    ("z on the map", (), ("z",), ()),
    ("zoom into a cabinet and out", (), ("\r", ESCAPE), ()),
    ("selection of processors and cabinets", (), (" ", RIGHT, "c", DOWN), (ESCAPE, "g")),
    ("from the map to the list of launchers", (), ("\t",), ()),
    ("tabs", (), ("3", "m", "1", "m", "4", "m"), ()),
    ("a launch's tab and back", ("1",), ("\r", "1"), ("m",)),
    ("scrolling in the table of nodes", ("3",), ("j", "j", PAGE_DOWN, "k", PAGE_UP, "G", "g"), ("m",)),
    ("sorting of the table of nodes", ("3",), ("s", "r"), ("m",)),
    ("marks in the table of nodes", ("3",), (" ",), (ESCAPE, "m")),
    ("search in the table of nodes", ("3", "/"), ("c", "3", DELETE, DELETE), (ESCAPE, "m")),
    ("selection by an expression", ("e",), ("c", "3", "*", DELETE, DELETE, DELETE), (ESCAPE,)),
    ("what is wrong, help, tabs, a place, and back", (), ("!", ESCAPE, "?", ESCAPE, "5", ESCAPE, ":", ESCAPE), ()),
    ("the palette and back", (), (PALETTE, ESCAPE), ()),
)  # fmt: skip


def console_keys() -> list[Row]:
    """Milliseconds of each kind; beside it those of a bare application of Textual's in between."""
    rows = []
    chance = random.Random(3)
    with tempfile.TemporaryDirectory(prefix="redmesh-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        database = storm(home)
        with screen(database.url, home) as one, bare(home) as other:
            for what, there, keys, back in _KINDS:
                took, bare_took = Times(), Times()
                for key in there:
                    one.answer(key)
                for number in range(PRESSES + len(keys)):
                    time.sleep(chance.uniform(0.0, 0.03))
                    took.press(one, keys[number % len(keys)])
                    bare_took.press(other, "lh"[number % 2])
                for key in back:
                    one.answer(key)
                rows += _rows(what, took.after(len(keys)), bare_took.after(len(keys)))  # the first ones load code
        database.close()
    return rows


class Times:
    """Milliseconds of keys: until the last byte of the answer, and of the processor's time."""

    def __init__(self, wall: Sequence[float] = (), cpu: Sequence[float] = ()) -> None:
        self.wall, self.cpu = list(wall), list(cpu)

    def press(self, one: Screen, key: str) -> None:
        """Press a key and wait for the end of its answer."""
        used = one.own_s
        self.wall.append(1000 * one.answer(key))
        self.cpu.append(1000 * (one.own_s - used))

    def after(self, number: int) -> Times:
        """Without the first ``number``."""
        return Times(self.wall[number:], self.cpu[number:])

    def __str__(self) -> str:
        return ", ".join(
            f"{name} median {statistics.median(some):.1f}, p99 {p99(some):.1f} ms"
            for name, some in (("wall", self.wall), ("CPU", self.cpu))
        )


def p99(some: list[float]) -> float:
    """The 99th percentile."""
    return sorted(some)[int(0.99 * len(some))]


def _rows(what: str, took: Times, bare: Times) -> list[Row]:
    """Milliseconds, and beside them those of the bare application's keys in between: on a shared machine only the
    ratios mean something."""
    print(f"{what}: {took}; bare: {bare}", file=sys.stderr)
    peer = "a bare Textual application"
    return [
        Row(f"key to the end of its answer, {what}, p99 (ms)", "1 ms", p99(took.wall), 1.0, Bar(33, 16)),
        Row(f"key to the end of its answer, {what}, p99 (ms)", peer, p99(took.wall), p99(bare.wall), Bar(8, 4)),
        Row(f"CPU of it, {what}, p99 (ms)", "1 ms", p99(took.cpu), 1.0, Bar(33, 16)),
        Row(f"CPU of it, {what}, p99 (ms)", peer, p99(took.cpu), p99(bare.cpu), Bar(8, 4)),
        Row(f"CPU of it, {what}, median (ms)", peer, statistics.median(took.cpu), statistics.median(bare.cpu),
            Bar(8, 4)),
    ]  # fmt: skip
