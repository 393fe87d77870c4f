"""What every placement promises, and the definitions of those on a mesh, against brute force."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.cpa.placement import close_fit
from agents.cpa.placement import registry as placement
from agents.cpa.placement.along_curve import exact_or_longer, least_span
from agents.cpa.placement.close_fit import stretches
from agents.cpa.placement.layout import NoMesh, Unplaced
from agents.cpa.placement.registry import Geometry, Layout
from agents.wire.errors import AgentError
from db.topology import parse
from tests.support import placement_baselines  # noqa: F401  (mm and mc1x1)
from tests.support import placement_metrics as metrics
from tests.support.chance import examples
from tests.support.half_full import box, cabinets

RACKS = Layout(
    parse({"kind": "racks", "racks": {"a": ["n[0-4]"], "b": ["n[5-11]"]}}),
    [(f"n{one}", range(4 * one, 4 * one + 1 + one % 4)) for one in range(12)],
)
MACHINES = {
    "box": box(5, 4, 6),
    "odd": box(3, 5, 7),
    "line": box(1, 1, 40),
    "cabinets": Layout(cabinets(2, 5, 1, 3, service_columns=[0, 3])),
    "racks": RACKS,
}
ANYWHERE = ["default", "first_fit", "best_fit", "hilbert", "snake", "close_fit", "rack_packed", "host_packed", "random"]
MESH_ONLY = ["gen_alg", "mm", "mc1x1"]
Request = tuple[Layout, list[int], int]


def everybody(layout: Layout) -> list[int]:
    return sorted(one for one in layout.curve().seats if one < layout.size)


@st.composite
def requests(draw: st.DrawFn, machines: Sequence[str] = tuple(MACHINES)) -> Request:
    layout = MACHINES[draw(st.sampled_from(machines))]
    there = everybody(layout)
    # whole stretches busy and free, as jobs leave them, not only salt and pepper
    ends = draw(st.lists(st.integers(0, len(there)), max_size=12).map(sorted))
    pieces = zip([0, *ends], [*ends, len(there)], strict=True)
    keep = draw(st.integers(0, 1))
    free = [one for index, (a, b) in enumerate(pieces) if index % 2 == keep for one in there[a:b]]
    free = sorted(set(free) ^ draw(st.sets(st.sampled_from(there), max_size=6))) or there
    return layout, free, draw(st.integers(1, len(free)))


# --- what every placement promises -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANYWHERE)
@settings(deadline=None)
@given(request=requests())
def test_exactly_the_number_asked_for_and_only_free_ones(name: str, request: Request) -> None:
    layout, free, count = request
    chosen = placement.find(name)(free, count, layout)
    assert len(chosen) == count == len(set(chosen)) and set(chosen) <= set(free)


@pytest.mark.parametrize("name", MESH_ONLY)
@settings(max_examples=examples(20), deadline=None)
@given(request=requests(["box", "odd", "line", "cabinets"]))
def test_on_a_mesh_too(name: str, request: Request) -> None:
    layout, free, count = request
    chosen = placement.find(name)(free, count, layout)
    assert len(chosen) == count == len(set(chosen)) and set(chosen) <= set(free)


@pytest.mark.parametrize("name", [*ANYWHERE, *MESH_ONLY])
@settings(max_examples=examples(10), deadline=None)
@given(request=requests(["box", "cabinets"]))
def test_the_same_for_the_same_arguments_whatever_was_asked_before(name: str, request: Request) -> None:
    layout, free, count = request
    place = placement.find(name)
    before = list(free)
    first = place(free, count, layout)
    place(everybody(layout), 7, layout)
    assert place(tuple(free), count, Layout(layout.topology)) == first
    assert free == before


@pytest.mark.parametrize("name", ["default", "hilbert", "close_fit", "gen_alg", "mm", "mc1x1", "random"])
@settings(max_examples=examples(10), deadline=None)
@given(request=requests(["box", "cabinets"]))
def test_ranks_follow_the_curve(name: str, request: Request) -> None:
    layout, free, count = request
    chosen = placement.find(name)(free, count, layout)
    assert chosen == layout.curve().sort(chosen)


@pytest.mark.parametrize("name", ANYWHERE)
def test_without_a_topology_there_is_still_an_answer_or_a_reason(name: str) -> None:
    try:
        chosen = placement.find(name)([1, 2, 3, 9], 2, None)
    except NoMesh as error:
        assert name.endswith("packed") and "topology" in error.message and error.code == "invalid"
    else:
        assert len(set(chosen)) == 2 and set(chosen) <= {1, 2, 3, 9}


@pytest.mark.parametrize("name", [*MESH_ONLY, "block:2x2x1"])
def test_on_a_cluster_those_for_a_mesh_say_so(name: str) -> None:
    with pytest.raises(NoMesh) as caught:
        placement.find(name)(everybody(RACKS), 4, RACKS)
    assert name in caught.value.message and "racks" in caught.value.hint


def test_a_processor_the_topology_does_not_know_is_named_as_such() -> None:
    layout = MACHINES["box"]
    with pytest.raises(Unplaced, match="up to 119"):
        placement.find("hilbert")([1, 2, 500], 2, layout)
    for name in ("hilbert", "close_fit", "rack_packed", "host_packed"):
        with pytest.raises(Unplaced, match="30 processors up to 47"):
            placement.find(name)([0, 1, 2, 3], 2, RACKS)  # n0 has one processor, 1 to 3 are on no node


# --- best fit, against its definition ----------------------------------------------------------------------------

lines = st.lists(st.booleans(), min_size=1, max_size=60).map(bytes)


@settings(deadline=None)
@given(lines, st.integers(1, 20))
def test_the_smallest_run_that_suffices_is_found(taken: bytes, count: int) -> None:
    runs = [
        (end - start, start)
        for start, end in itertools.combinations(range(len(taken) + 1), 2)
        if all(taken[start:end])
        and (start == 0 or not taken[start - 1])
        and (end == len(taken) or not taken[end])
        and end - start >= count
    ]
    assert exact_or_longer(taken, count) == (min(runs)[1] if runs else -1)
    # close fit looks there first, and only where the whole request is free
    looked_at = stretches(taken, count, 64)
    assert (looked_at[0] == min(runs)[1]) if runs else (looked_at == [])
    assert all(all(taken[start : start + count]) for start in looked_at)
    assert all(start + count <= len(taken) for start in looked_at)


@settings(deadline=None)
@given(st.sets(st.integers(0, 200), min_size=1, max_size=40).map(sorted), st.data())
def test_the_least_span_is_found(seats: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(seats)))
    first = least_span(seats, count)
    chosen = seats[first : first + count]
    # neighbours are enough: taking others from the same span makes it no shorter
    assert chosen[-1] - chosen[0] == min(b - a for i, a in enumerate(seats) for b in seats[i + count - 1 :])


@settings(deadline=None)
@given(requests(["box", "odd", "cabinets"]), st.sampled_from(["hilbert", "snake"]))
def test_best_fit_along_a_curve_takes_the_smallest_interval_else_the_least_span(request: Request, name: str) -> None:
    layout, free, count = request
    curve = layout.curve(name)
    seats = sorted(curve.position[one] for one in free)
    runs = [list(run) for _, run in itertools.groupby(seats, key=lambda seat: seat - seats.index(seat))]
    enough = [run for run in runs if len(run) >= count]
    chosen = placement.find(name)(free, count, layout)
    if enough:
        assert chosen == [curve.seats[seat] for seat in min(enough, key=len)[:count]]
    else:
        assert metrics.span(curve, chosen) == min(b - a + 1 for a, b in zip(seats, seats[count - 1 :], strict=False))


def test_what_close_fit_remembers_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(close_fit, "MOST_KNOWN", 40)  # so that it forgets now and then
    chance, keeping = random.Random(5), box(5, 4, 6)
    for _ in range(60):
        free = sorted(chance.sample(range(120), chance.randint(30, 120)))
        count = chance.choice((4, 8, 16))
        assert close_fit.close_fit(free, count, keeping) == close_fit.close_fit(free, count, box(5, 4, 6))
    known = keeping.derived["places"]._known
    assert known and len(known) <= 40


@settings(deadline=None)
@given(requests(["box", "odd", "cabinets"]))
def test_close_fit_is_never_further_apart_than_best_fit(request: Request) -> None:
    layout, free, count = request
    best, close = (placement.find(name)(free, count, layout) for name in ("hilbert", "close_fit"))
    assert metrics.total_hops(layout, close) <= metrics.total_hops(layout, best)


# --- shells, against their definitions ---------------------------------------------------------------------------


def pairs(layout: Layout, chosen: Sequence[int]) -> int:
    mesh = layout.need_mesh("test")
    return sum(mesh.hops(one, other) or 0 for one, other in itertools.combinations(chosen, 2))


def nearest_sums(layout: Layout, free: list[int], count: int, centres: list[tuple[int, int, int]]) -> list[int]:
    """Pairwise hops of the L1-nearest of each centre, nearness first and the curve second."""
    mesh, curve = layout.need_mesh("test"), layout.curve()

    def far(one: int, centre: tuple[int, int, int]) -> int:
        x, y, z = (abs(a - b) for a, b in zip(mesh.place(one), centre, strict=True))
        return x + y + min(z, mesh.depth - z)

    ranked = (sorted(free, key=lambda one: (far(one, centre), curve.position[one])) for centre in centres)
    return [pairs(layout, one[:count]) for one in ranked]


@settings(max_examples=examples(15), deadline=None)
@given(requests(["box", "odd"]))
def test_gen_alg_and_mm_are_the_best_of_their_centres(request: Request) -> None:
    layout, free, count = request
    mesh = layout.need_mesh("test")
    free, count = free[:24], min(count, 9, len(free[:24]))
    places = [mesh.place(one) for one in free]
    crossings = list(itertools.product(*(sorted(set(axis)) for axis in zip(*places, strict=True))))
    for name, centres in (("gen_alg", places), ("mm", crossings)):
        chosen = placement.find(name)(free, count, layout)
        assert pairs(layout, chosen) == min(nearest_sums(layout, free, count, centres))


@settings(max_examples=examples(15), deadline=None)
@given(requests(["box", "odd"]))
def test_mc1x1_has_the_least_sum_of_shells(request: Request) -> None:
    layout, free, count = request
    mesh = layout.need_mesh("test")
    free, count = free[:30], min(count, 12, len(free[:30]))

    def shell(one: int, centre: int) -> int:
        x, y, z = (abs(a - b) for a, b in zip(mesh.place(one), mesh.place(centre), strict=True))
        return max(x, y, min(z, mesh.depth - z))

    chosen = placement.find("mc1x1")(free, count, layout)
    least = min(sum(sorted(shell(one, centre) for one in free)[:count]) for centre in free)
    assert min(sum(shell(one, centre) for one in chosen) for centre in free) == least


def test_a_machine_too_wide_for_the_shells_says_so() -> None:
    layout = box(300, 1, 1)
    with pytest.raises(AgentError) as caught:
        placement.find("gen_alg")(list(range(300)), 3, layout)
    assert "255" in caught.value.message
    assert placement.find("default")(list(range(300)), 3, layout) == [0, 1, 2]


# --- metrics -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(requests(["box", "odd", "line", "cabinets"]))
def test_mean_pairwise_hops_are_what_they_say(request: Request) -> None:
    layout, free, count = request
    chosen = free[:count]
    assert metrics.total_hops(layout, chosen) == pairs(layout, chosen)
    mean = metrics.mean_pairwise_hops(layout, chosen)
    assert mean == (pairs(layout, chosen) / (count * (count - 1) / 2) if count > 1 else 0)


@settings(deadline=None)
@given(requests(["racks"]))
def test_hops_in_a_cluster_are_between_nodes(request: Request) -> None:
    layout, free, count = request
    node = {one: name for name, there in layout.nodes for one in there}
    cluster = layout.cluster
    expected = sum(cluster.hops(node[a], node[b]) for a, b in itertools.combinations(free[:count], 2))
    assert metrics.total_hops(layout, free[:count]) == expected


def test_pieces_and_span() -> None:
    layout = box(4, 4, 8)
    mesh = layout.need_mesh("test")
    at: Any = mesh.at
    assert metrics.pieces(layout, [at(0, 0, 0), at(0, 0, 7)]) == 1  # the ring
    assert metrics.pieces(layout, [at(0, 0, 0), at(3, 0, 0), at(3, 1, 0)]) == 2
    curve = layout.curve()
    assert metrics.span(curve, curve.seats[5:9]) == 4 and metrics.span(curve, [curve.seats[9], curve.seats[2]]) == 8


# --- names -------------------------------------------------------------------------------------------------------


def test_every_placement_of_ours_is_found() -> None:
    for name in placement.HERE:
        assert callable(placement.find(f"{name}:2x1x1" if name == "block" else name))


@pytest.mark.parametrize(
    "name",
    ["", "hilbrt", "hilbert:4", "block", "block:", "block:4x4", "block:0x1x1", "block:4x4xx", "random:x", "best-fit"],
)
def test_a_wrong_name_or_argument_is_refused(name: str) -> None:
    with pytest.raises(AgentError) as caught:
        placement.find(name)
    assert caught.value.code == "invalid" and caught.value.hint


def test_third_parties_are_loaded_when_asked_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from_the_end.py").write_text("def place(free, count, geometry):\n    return list(free)[-count:]\n")
    told = tmp_path / "from_the_end-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: from-the-end\nVersion: 1\n")
    (told / "entry_points.txt").write_text(
        "[redmesh.placement]\nfrom_the_end = from_the_end:place\nbroken = from_the_end:missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(placement, "PLACEMENTS", dict(placement.PLACEMENTS))
    assert placement.find("from_the_end")([1, 2, 3], 2, None) == [2, 3]
    with pytest.raises(placement.UnknownPlacement, match="cannot be loaded"):
        placement.find("broken")
    with pytest.raises(placement.UnknownPlacement) as caught:
        placement.find("nobody's")
    assert "from_the_end" in caught.value.hint


def test_the_layout_of_the_databases_column() -> None:
    geometry: Geometry = placement.geometry(None)
    assert geometry is None
    geometry = placement.geometry('{"kind": "mesh", "rows": 1, "columns": 2, "cages": 1, "boards": 2}')
    assert geometry is not None and geometry.size == 16
    # nothing to place on: by ids, as without a topology
    assert placement.geometry('{"kind": "flat"}') is None
    assert placement.geometry('{"kind": "flat"}', [("n0", [0, 1])]) is not None
