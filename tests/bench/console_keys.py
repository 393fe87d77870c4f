"""From a key to the last byte of its answer, on a machine of 11,136 processors on which nothing else changes."""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.consoles import bare, screen
from tests.bench.ratios import Bar, Row
from tests.support.big_machine import storm

PRESSES = 150
RIGHT, DOWN, LEFT, UP, PAGE_DOWN, PAGE_UP = (f"\x1b[{end}" for end in ("C", "B", "D", "A", "6~", "5~"))
#: What is measured: the keys before from the map, the keys in turn, and the keys back to the map.
_KINDS = (
    ("arrows on the map", (), (RIGHT, DOWN, DOWN, LEFT, UP), ("g",)),
    ("arrows and pages on the map of all processors", ("z",), (RIGHT, DOWN, LEFT, PAGE_DOWN, PAGE_UP), ("z",)),
    ("z on the map", (), ("z",), ()),
    ("zoom into a cabinet and out", (), ("\r", "\x1b"), ()),
    ("tabs", (), ("3", "m", "1", "m", "4", "m"), ()),
    ("scrolling in the table of nodes", ("3",), ("j", "j", PAGE_DOWN, "k", PAGE_UP, "G", "g"), ("m",)),
    ("sorting of the table of nodes", ("3",), ("s", "r"), ("m",)),
    ("search in the table of nodes", ("3", "/"), ("c", "3", "\x7f", "\x7f"), ("\x1b", "m")),
    ("selection by an expression", ("e",), ("c", "3", "*", "\x7f", "\x7f", "\x7f"), ("\x1b",)),
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
                took, cpu, bare_took = [], [], []
                for key in there:
                    one.answer(key)
                for number in range(PRESSES + len(keys)):
                    time.sleep(chance.uniform(0.0, 0.03))
                    used = one.own_s
                    took.append(1000 * one.answer(keys[number % len(keys)]))
                    cpu.append(1000 * (one.own_s - used))
                    bare_took.append(1000 * other.answer("lh"[number % 2]))
                for key in back:
                    one.answer(key)
                rows += _rows(what, took[len(keys) :], cpu[len(keys) :], bare_took)  # the first ones load code
        database.close()
    return rows


def _rows(what: str, took: list[float], cpu: list[float], bare_took: list[float]) -> list[Row]:
    p99, cpu_p99, bare_p99 = (sorted(some)[int(0.99 * len(some))] for some in (took, cpu, bare_took))
    print(
        f"{what}: median {statistics.median(took):.1f} ms, p99 {p99:.1f} ms; bare: median"
        f" {statistics.median(bare_took):.1f} ms, p99 {bare_p99:.1f} ms",
        file=sys.stderr,
    )
    return [
        Row(f"key to the end of its answer, {what}, p99 (ms)", "1 ms", p99, 1.0, Bar(33, 16)),
        Row(f"CPU of it, {what}, p99 (ms)", "1 ms", cpu_p99, 1.0, Bar(33, 16)),
        Row(f"key to the end of its answer, {what}, median (ms)", "a bare Textual application",
            statistics.median(took), statistics.median(bare_took), Bar(10, 5)),
    ]  # fmt: skip
