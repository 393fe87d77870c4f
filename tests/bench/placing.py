"""Placements beside random, beside the best of all and beside the exact optimum; time per decision.

``python -m tests.bench.placing`` prints the tables of docs/placement.md (some minutes).
"""

import random
import statistics
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agents.cpa.placement import gen_alg
from agents.cpa.placement.registry import Layout, find
from db.topology import Mesh, parse
from tests.bench.ratios import Bar, Row
from tests.support import placement_baselines  # noqa: F401  (mm and mc1x1)
from tests.support.half_full import Day, box, cabinets
from tests.support.optimum import least_hops
from tests.support.placement_metrics import mean_pairwise_hops, pieces, total_hops

SIZES = (16, 32, 64, 128, 256, 512)
DEFAULT = "close_fit"
QUICK = ("close_fit", "hilbert", "snake", "best_fit", "first_fit", "rack_packed", "host_packed", "random")
SLOW = ("mc1x1", "gen_alg", "mm")
gen_alg.MOST_WORK = None  # the measure of the others is taken with all their centres
#: Which placement had filled the machine, and the seed of its day.
DAYS = (("close_fit", 1), ("hilbert", 2), ("close_fit", 3), ("hilbert", 4))
STEPS = 1500


class Case(NamedTuple):
    """One decision: what was free, how many were asked for."""

    free: list[int]
    size: int


class Outcome(NamedTuple):
    """What one placement did in one case."""

    hops: float
    contiguous: bool
    seconds: float


def red_storm() -> Layout:
    """The machine of the example file."""
    text = (Path(__file__).resolve().parents[2] / "examples" / "red_storm.toml").read_text()
    return Layout(parse(tomllib.loads(text)["topology"]))


def hundred_thousand() -> Layout:
    """50 × 40 × 50."""
    return Layout(cabinets(rows=10, columns=50, cages=5, boards=10))


def compute(layout: Layout) -> range:
    """Its compute processors."""
    mesh = layout.topology
    assert isinstance(mesh, Mesh)
    return range(mesh.compute)


def day(layout: Layout, name: str, seed: int, load: float = 0.5, steps: int = STEPS) -> list[int]:
    """What is free after a day's jobs."""
    there = Day(find(name), layout, compute(layout), seed)
    there.go_on(steps, load)
    return there.at(load)


def outcome(layout: Layout, name: str, case: Case) -> Outcome:
    """One decision, measured."""
    place = find(name)
    began = time.perf_counter()
    chosen = place(case.free, case.size, layout)
    took = time.perf_counter() - began
    return Outcome(mean_pairwise_hops(layout, chosen), pieces(layout, chosen) == 1, took)


def half_full(layout: Layout, days: Sequence[tuple[str, int]] = DAYS) -> list[Case]:
    """Every size on every half-full machine."""
    return [Case(free, count) for free in (day(layout, *one) for one in days) for count in SIZES]


def compare(layout: Layout, cases: Sequence[Case], names: Sequence[str]) -> dict[str, list[Outcome]]:
    """What every placement does in every case."""
    return {name: [outcome(layout, name, case) for case in cases] for name in names}


def over(ours: Sequence[Outcome], theirs: Sequence[float]) -> float:
    """Mean of the ratios of hops, case by case."""
    return statistics.fmean(one.hops / other for one, other in zip(ours, theirs, strict=True))


def best_of(outcomes: dict[str, list[Outcome]]) -> list[float]:
    """The fewest hops in every case, whoever found them."""
    return [min(one.hops for one in of_case) for of_case in zip(*outcomes.values(), strict=True)]


def decision_ms(layout: Layout, name: str, machines: Sequence[list[int]]) -> float:
    """The worst of the cases' medians."""
    worst = 0.0
    for free in machines:
        for count in SIZES:
            case = Case(free, count)
            worst = max(worst, statistics.median(outcome(layout, name, case).seconds for _ in range(5)))
    return worst * 1e3


def small_boxes(sides: tuple[int, int, int], count: int, machines: int = 20) -> float:
    """Default ÷ exact optimum on small boxes of which 40 % are free, after their own short days."""
    ratios = []
    for seed in range(machines):
        layout = box(*sides)
        mesh = layout.need_mesh("optimum")
        there = Day(find(DEFAULT), layout, range(layout.size), seed)
        there.go_on(60, 0.6)
        free = there.at(0.6)
        chance = random.Random(seed)
        busy_too_many = len(free) - max(24, count)
        for _ in range(max(busy_too_many, 0)):  # whatever more is free is taken one by one
            free.remove(chance.choice(free))
        if len(free) >= count:
            chosen = find(DEFAULT)(free, count, layout)
            ratios.append(total_hops(layout, chosen) / least_hops(mesh, free, count))
    return statistics.fmean(ratios)


def placing() -> list[Row]:
    """The rows of issue 5 about placement."""
    layout = red_storm()
    cases = half_full(layout, DAYS[:2])
    outcomes = compare(layout, cases, (DEFAULT, "hilbert", "snake", "random", "mc1x1", "mm"))
    ours = statistics.fmean(one.hops for one in outcomes[DEFAULT])
    chance = [one.hops for one in outcomes["random"]]
    hops = "mean pairwise hops, half-full 10,368, sizes 16–512: default"
    rows = [
        # ratios are means over the cases, so "theirs" is what makes the ratio come out
        Row(hops, "random", ours, ours / over(outcomes[DEFAULT], chance), Bar(0.35, 0.27)),
        Row(hops, "the best of all", ours, ours / over(outcomes[DEFAULT], best_of(outcomes)), Bar(1.25, 1.08)),
    ]
    optimum = small_boxes((4, 4, 4), 8)
    rows.append(Row("pairwise hops, 8 of 4×4×4, 24 free: default", "exact optimum", optimum, 1.0, Bar(1.35, 1.15)))
    large = hundred_thousand()
    for what, machine, bar, steps in (("10,368", layout, Bar(3, 1), STEPS), ("100,000", large, Bar(30, 8), 600)):
        crowded = [day(machine, DEFAULT, 1, load, steps) for load in (0.5, 0.9)]
        for name in ("hilbert", DEFAULT):
            took = decision_ms(machine, name, crowded)
            rows.append(Row(f"{name} on a fragmented {what}, ms", "one millisecond", took, 1.0, bar))
    return rows


# --- the tables of docs/placement.md -----------------------------------------------------------------------------


def table_of_decisions() -> None:
    """Hops at every size, ratios, contiguity, time."""
    layout = red_storm()
    cases = half_full(layout)
    outcomes = compare(layout, cases, (*QUICK, *SLOW))
    chance, best = [one.hops for one in outcomes["random"]], best_of(outcomes)
    print("| placement |" + "".join(f" {size} |" for size in SIZES) + " ÷ random | ÷ best | in one piece | ms |")
    print("|---|" + "--:|" * (len(SIZES) + 4))
    for name, found in outcomes.items():
        by_size = [
            statistics.fmean(one.hops for one, case in zip(found, cases, strict=True) if case.size == size)
            for size in SIZES
        ]
        whole = statistics.fmean(one.contiguous for one in found)
        took = statistics.median(one.seconds for one in found) * 1e3
        print(
            f"| `{name}` |" + "".join(f" {hops:.2f} |" for hops in by_size),
            f"{over(found, chance):.3f} | {over(found, best):.3f} | {whole:.0%} | {took:.2g} |",
        )


def table_of_days(loads: Sequence[float] = (0.5, 0.8, 0.93)) -> None:
    """Every placement fills the machine by itself for a day: hops over a cube's, and contiguity."""
    layout = red_storm()
    print("| placement |" + "".join(f" {load:.0%} busy: ÷ cube | in one piece |" for load in loads))
    print("|---|" + "--:|--:|" * len(loads))
    for name in QUICK:
        cells = ""
        for load in loads:
            there = Day(find(name), layout, compute(layout), 5)
            there.go_on(3 * STEPS, load)
            jobs = [job for job in there.placed[len(there.placed) // 3 :] if 16 <= len(job) <= 512]
            far = statistics.fmean(mean_pairwise_hops(layout, job) / cube(len(job)) for job in jobs)
            whole = statistics.fmean(pieces(layout, job) == 1 for job in jobs[::4])
            cells += f" {far:.3f} | {whole:.0%} |"
        print(f"| `{name}` |{cells}")


def cube(count: int) -> float:
    """Mean pairwise hops in a cube of ``count`` cells, be its side whole or not: (a² − 1) / a, between two."""
    side: float = count ** (1 / 3)
    return (side - 1 / side) * count / (count - 1)


def table_of_optima() -> None:
    """Default ÷ exact optimum."""
    print("| box | asked for | default ÷ optimum |\n|---|--:|--:|")
    for sides in ((4, 4, 4), (3, 4, 6), (6, 2, 5)):
        for count in (4, 6, 8, 10):
            print(f"| {'×'.join(map(str, sides))} | {count} | {small_boxes(sides, count):.3f} |")


if __name__ == "__main__":
    for table in (table_of_decisions, table_of_days, table_of_optima):
        if not sys.argv[1:] or table.__name__ in sys.argv[1:]:
            table()
            print(flush=True)
