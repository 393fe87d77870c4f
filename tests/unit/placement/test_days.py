"""Placements at work for a day: nothing twice, nothing lost, and as near as they claim."""

import statistics

import pytest

from agents.cpa.placement import registry as placement
from tests.support.half_full import Day, box
from tests.support.optimum import least_hops
from tests.support.placement_metrics import mean_pairwise_hops, total_hops

NAMES = [
    "default",
    "first_fit",
    "best_fit",
    "hilbert",
    "snake",
    "close_fit",
    "rack_packed",
    "host_packed",
    "random",
    "gen_alg",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_processor_twice_and_none_lost(name: str) -> None:
    layout = box(6, 5, 6)
    day = Day(placement.find(name), layout, range(layout.size), seed=3)
    for _ in range(30):
        day.go_on(10, load=0.9)
        busy = [one for job in day.jobs for one in job]
        assert len(busy) == len(set(busy)) and day.free.isdisjoint(busy)
        assert len(busy) + len(day.free) == layout.size


def test_the_default_is_much_nearer_than_chance_on_a_half_full_machine() -> None:
    layout = box(12, 12, 12)
    day = Day(placement.default, layout, range(layout.size), seed=1)
    day.go_on(600)
    free = day.at(0.5)
    for count in (16, 64, 128):
        near = mean_pairwise_hops(layout, placement.default(free, count, layout))
        far = statistics.fmean(
            mean_pairwise_hops(layout, placement.find(f"random:{seed}")(free, count, layout)) for seed in range(5)
        )
        assert near < 0.55 * far, count


@pytest.mark.parametrize("seed", range(6))
def test_the_default_beside_the_exact_optimum(seed: int) -> None:
    layout = box(3, 4, 4)
    day = Day(placement.default, layout, range(layout.size), seed)
    day.go_on(40, load=0.6)
    free = day.at(0.6)
    count = min(6, len(free))
    found = total_hops(layout, placement.default(free, count, layout))
    least = least_hops(layout.need_mesh("test"), free, count)
    assert least <= found <= 1.5 * least


def test_the_optimum_is_exact_where_everybody_can_see_it() -> None:
    layout = box(4, 4, 4)
    mesh = layout.need_mesh("test")
    assert least_hops(mesh, list(range(layout.size))[:32], 4) == 4 * 1 + 2 * 2  # a square
    assert least_hops(mesh, [one for one in (mesh.at(x, 0, 0) for x in range(4)) if one is not None], 4) == 10
