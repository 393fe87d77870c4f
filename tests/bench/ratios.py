"""Taking turns: ours, theirs, ours, theirs …; medians, the ratio, and whether it meets its bar."""

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

RUNS = 7


class Bar(NamedTuple):
    """What a ratio must be and should be. ``at_least``: larger is better."""

    must: float
    aim: float
    at_least: bool = False

    def verdict(self, ratio: float) -> str:
        """``aim``, ``must`` or ``MISSED``."""
        for bound, word in ((self.aim, "aim"), (self.must, "must")):
            if (ratio >= bound) if self.at_least else (ratio <= bound):
                return word
        return "MISSED"


class Row(NamedTuple):
    """One line of the table; figures in the unit named in ``what``. ``theirs`` is None when there is no peer here."""

    what: str
    against: str
    ours: float
    theirs: float | None
    bar: Bar

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return self.ours / self.theirs if self.theirs else None


Command = Sequence[str]


def seconds(command: Command, env: Mapping[str, str] | None = None) -> float:
    """Wall time of a whole command that must succeed."""
    began = time.perf_counter()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-400:].decode(errors='replace')}"
        )
    return took


def in_turn(
    ours: Callable[[], float], theirs: Callable[[], float] | None, runs: int = RUNS
) -> tuple[float, float | None]:
    """Medians of ``runs`` runs each, taken in turn after one warm-up of both."""
    ours()
    if theirs is not None:
        theirs()
    mine: list[float] = []
    other: list[float] = []
    for _ in range(runs):
        mine.append(ours())
        if theirs is not None:
            other.append(theirs())
    return statistics.median(mine), statistics.median(other) if other else None


def show(rows: Sequence[Row]) -> str:
    """The table, as Markdown."""
    lines = [
        "| what | measured against | ours | theirs | ratio | must | aim | met |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        sign = "≥" if row.bar.at_least else "≤"
        theirs = "not here" if row.theirs is None else f"{row.theirs:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        verdict = "" if row.ratio is None else row.bar.verdict(row.ratio)
        lines.append(
            f"| {row.what} | {row.against} | {row.ours:.4g} | {theirs} | {ratio} "
            f"| {sign} {row.bar.must:g} | {row.bar.aim:g} | {verdict} |"
        )
    return "\n".join(lines)
