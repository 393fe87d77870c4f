"""The mesh of cabinets against the patent's figures and against a plain search through its links."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.topology import Mesh, Side, TopologyError, check, from_json, parse
from tests.support.chance import examples

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"kind": "mesh", "rows": 2, "columns": 4, "cages": 2, "boards": 2, "service_columns": [0]}


@pytest.fixture(scope="module")
def red_storm() -> Mesh:
    mesh = parse(tomllib.loads((ROOT / "examples" / "red_storm.toml").read_text())["topology"])
    assert isinstance(mesh, Mesh)
    return mesh


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    columns = draw(st.integers(1, 5))
    section = {
        "kind": "mesh",
        "rows": draw(st.integers(1, 2)),
        "columns": columns,
        "cages": draw(st.integers(1, 2)),
        "boards": draw(st.integers(1, 4)),
        "routers": draw(st.integers(1, 4)),
        "service_columns": sorted(draw(st.sets(st.integers(0, columns - 1)))),
    }
    afters = sorted(draw(st.sets(st.integers(0, columns - 2)))) if columns > 1 else []
    section["switches"] = [{"name": f"s{after}", "after": after} for after in afters]
    section["open"] = draw(st.lists(st.sampled_from([f"s{after}" for after in afters]), unique=True)) if afters else []
    mesh = parse(section)
    assert isinstance(mesh, Mesh)
    return mesh


# --- Red Storm ---------------------------------------------------------------------------------------------------


def test_red_storm_has_the_figures_of_the_patent(red_storm: Mesh) -> None:
    assert (red_storm.compute, red_storm.service, red_storm.size) == (10_368, 768, 11_136)
    assert (red_storm.columns, red_storm.height, red_storm.depth) == (31, 16, 24)
    assert len(red_storm.compute_columns) == 27 and red_storm.service_columns == (0, 1, 29, 30)
    # "each of the 16 switch structures … 4×3×8=96 x-direction connections"
    assert [red_storm.links_cut(switch) for switch in red_storm.switches] == [4 * 96] * 4
    assert check(red_storm) == []


def test_the_switches_part_it_into_a_quarter_a_half_and_a_quarter(red_storm: Mesh) -> None:
    every = red_storm.with_open([switch.name for switch in red_storm.switches])
    of_compute = [sum(not every.is_service(one) for one in every.on(side)) for side in every.sides]
    assert of_compute == [0, 28 * 96, 52 * 96, 28 * 96, 0]
    assert [sum(map(every.is_service, every.on(side))) for side in every.sides] == [384, 0, 0, 0, 384]


def test_the_patents_examples_of_open_columns(red_storm: Mesh) -> None:
    """The right-hand users keep their service columns; then they get the compute cabinets up to the inner column."""
    right = red_storm.with_open(["right"])
    assert [(side.first, side.last) for side in right.sides] == [(0, 28), (29, 30)]
    assert {right.side_of(one) for one in range(right.compute)} == {1}
    quarter = red_storm.with_open(["right-quarter"])
    assert [sum(not quarter.is_service(one) for one in quarter.on(side)) for side in quarter.sides] == [7680, 2688]
    assert red_storm.sides == [Side(1, 0, 30)]


def test_a_piece_without_service_columns_is_reported(red_storm: Mesh) -> None:
    found = check(red_storm.with_open(["left", "left-quarter"]))
    assert found == ["columns 2..8 are cut off from every service column: nobody can launch there"]


def test_numbers_run_through_boards_cages_cabinets_and_columns(red_storm: Mesh) -> None:
    assert [red_storm.place(one) for one in (0, 1, 3, 4)] == [(2, 0, 0), (2, 1, 0), (2, 3, 0), (2, 0, 1)]
    assert red_storm.place(96) == (2, 4, 0) and red_storm.place(4 * 96) == (3, 0, 0)
    assert [red_storm.place(10_368 + one) for one in (0, 1, 2)] == [(0, 0, 0), (0, 2, 0), (0, 0, 1)]
    assert red_storm.name(10_367) == "c28-3c2s7n3" and red_storm.named("c28-3c2s7n3") == 10_367


# --- any mesh ----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(meshes())
def test_places_names_and_numbers_are_one_to_one(mesh: Mesh) -> None:
    everybody = range(mesh.size)
    assert [mesh.at(*mesh.place(one)) for one in everybody] == list(everybody)
    assert [mesh.named(mesh.name(one)) for one in everybody] == list(everybody)
    assert list(zip(*mesh.coordinates, strict=True)) == [mesh.place(one) for one in everybody]
    assert all((mesh.place(one)[0] in mesh.service_columns) == mesh.is_service(one) for one in everybody)


@settings(deadline=None)
@given(meshes())
def test_what_was_read_is_written_and_read_again(mesh: Mesh) -> None:
    again = parse(mesh.to_dict())
    assert isinstance(again, Mesh)
    assert again.to_dict() == mesh.to_dict() and again.coordinates == mesh.coordinates and again.sides == mesh.sides


def links(mesh: Mesh) -> dict[tuple[int, int, int], set[tuple[int, int, int]]]:
    """Every router's links, by the patent's words: series in x and y, torus in z, none over an open column."""
    cut = {switch.after for switch in mesh.switches if switch.name in mesh.open}
    found: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {
        (x, y, z): set() for x in range(mesh.columns) for y in range(mesh.height) for z in range(mesh.depth)
    }
    for x, y, z in found:
        steps = [(x, y + 1, z), (x, y, (z + 1) % mesh.depth)] + ([(x + 1, y, z)] if x not in cut else [])
        for step in steps:
            if step in found and step != (x, y, z):
                found[x, y, z].add(step)
                found[step].add((x, y, z))
    return found


@settings(max_examples=examples(20), deadline=None)
@given(meshes(), st.data())
def test_hops_are_the_shortest_way_over_the_links(mesh: Mesh, data: st.DataObject) -> None:
    if not mesh.size:
        return
    start = data.draw(st.integers(0, mesh.size - 1))
    graph = links(mesh)
    far = {mesh.place(start): 0}
    line = list(far)
    for router in line:  # grows while it is walked: breadth first
        for near in graph[router] - far.keys():
            far[near] = far[router] + 1
            line.append(near)
    for other in range(mesh.size):
        assert mesh.hops(start, other) == far.get(mesh.place(other))
        assert (mesh.side_of(start) == mesh.side_of(other)) == (mesh.place(other) in far)
    next_door = {mesh.at(*router) for router in graph[mesh.place(start)]} - {None}
    assert sorted(mesh.neighbours(start)) == sorted(one for one in next_door if one is not None)


@settings(deadline=None)
@given(meshes())
def test_every_processor_is_on_exactly_one_side(mesh: Mesh) -> None:
    assert sorted(one for side in mesh.sides for one in mesh.on(side)) == list(range(mesh.size))
    assert all(mesh.side_of(one) == side.number for side in mesh.sides for one in mesh.on(side))


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": 0}, "rows must be a whole number from 1"),
        ({"rows": 10**9}, "rows must be a whole number from 1 to 4000000"),
        ({"rows": True}, "rows"),
        ({"rows": "4"}, "rows"),
        ({"boards": None}, "lacks boards"),
        ({"columns": 4_000_000}, "more than"),
        ({"colums": 3}, "'colums'"),
        ({"service_columns": [4]}, "4 is not one of 0..3"),
        ({"service_columns": [1, 1]}, "twice"),
        ({"service_columns": 3}, "list of whole numbers"),
        ({"compute_processors": 7}, "compute_processors is 7"),
        ({"switches": [{"name": "a", "after": 3}]}, "no column follows"),
        ({"switches": [{"name": "a", "after": 1}, {"name": "b", "after": 1}]}, "'b'"),
        ({"switches": [{"name": "a", "after": 1, "side": "left"}]}, "'side'"),
        ({"switches": [{"after": 1}]}, "lacks name"),
        ({"switches": [{"name": "a=b", "after": 1}]}, "no command could name it"),
        ({"switches": [{"name": "a\x1b[2J", "after": 1}]}, "'a\\x1b[2J' contains a character that cannot be shown"),
        ({"kind": "racks", "racks": {"a\x1b[2J": ["n1"]}}, "cannot be shown"),
        ({"kind": "racks", "racks": {"a": ["n\u202e1"]}}, "cannot be shown"),
        ({"switches": ["a"]}, "must be a table, not a text"),
        ({"switches": {}}, "list of tables"),
        ({"open": ["a"]}, "not a switch"),
        ({"kind": "maze"}, "maze"),
        ({"kind": 7}, "7"),
        ({"kind": None}, "lacks kind"),
    ],
)
def test_a_mistake_is_named_where_it_stands(change: dict[str, Any], says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(SMALL | change)
    assert says in caught.value.message and caught.value.exit_status == 2


def test_a_machine_without_compute_or_without_the_service_processors_it_names_is_reported() -> None:
    assert check(parse(SMALL | {"service_columns": [0, 1, 2, 3]})) == [
        "every column is a service column: there is no compute processor"
    ]
    assert check(parse(SMALL | {"service_routers": []})) == [
        "service_routers is empty: the service columns have no processors"
    ]
    assert check(parse(SMALL)) == []


def test_a_misspelt_key_gets_the_nearest_one() -> None:
    with pytest.raises(TopologyError) as caught:
        parse(SMALL | {"colums": 3})
    assert caught.value.hint == "did you mean columns?"


@pytest.mark.parametrize("processor", [-1, 2 * 4 * 16, 10**9])
def test_there_is_no_processor_beyond_the_last(processor: int) -> None:
    mesh = parse(SMALL)
    assert isinstance(mesh, Mesh)
    with pytest.raises(TopologyError):
        mesh.place(processor)


@settings(deadline=None)
@given(st.text(alphabet="c-0123456789sn", max_size=12))
def test_other_names_are_nobodys(name: str) -> None:
    mesh = parse(SMALL)
    assert isinstance(mesh, Mesh)
    found = mesh.named(name)
    assert found is None or mesh.name(found) == name


def test_the_column_of_the_database_is_read_too() -> None:
    assert from_json(None).kind == "flat" and from_json("{}").kind == "flat"
    with pytest.raises(TopologyError, match="not JSON"):
        from_json("{")


# --- check -------------------------------------------------------------------------------------------------------


def nodes_of(mesh: Mesh) -> list[tuple[str, str, list[int]]]:
    return [(mesh.name(one), "service" if mesh.is_service(one) else "compute", [one]) for one in range(mesh.size)]


def test_the_machine_as_described_has_no_findings() -> None:
    mesh = parse(SMALL)
    assert isinstance(mesh, Mesh)
    assert check(mesh, nodes_of(mesh)) == []


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (("n", "compute", [999]), "processor 999"),
        (("n", "compute", [0]), "on nodes"),
        (("n", "compute", [96]), "compute node, and its processors are on service boards"),
        (("n", "service", [1]), "has the role service"),
        (("c1-0c0s0n1", "compute", [0]), "the name of processor 1"),
        (("n", "compute", [0, 1, 2, 3, 4]), "2 boards"),
    ],
)
def test_what_does_not_fit_is_found(node: tuple[str, str, list[int]], says: str) -> None:
    mesh = parse(SMALL)
    assert isinstance(mesh, Mesh)
    found = check(mesh, [*nodes_of(mesh), node])
    assert any(says in finding for finding in found)


def test_missing_processors_are_counted_and_long_lists_cut() -> None:
    mesh = parse(SMALL)
    assert isinstance(mesh, Mesh)
    assert check(mesh, nodes_of(mesh)[5:]) == ["5 compute processors are on no node, the first is 0"]
    assert check(mesh, [(f"n{one}", "compute", [1000 + one]) for one in range(40)])[-1] == "and 31 more"


# --- viewers -----------------------------------------------------------------------------------------------------


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, db.topology; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"typing", "json", "re", "dataclasses", "enum", "peewee", "pymysql", "difflib", "collections"}
    assert not heavy.intersection(loaded)
