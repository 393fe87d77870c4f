"""The machine as it stands, in any room."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.tui.actions import commands
from console.tui.map.charts import Chart, cabinets
from console.tui.map.zoom import MACHINE, Place, Structure
from console.tui.model.machine import Machine, Node, Picture, Processor
from db.topology import Mesh, parse
from tests.support.chance import examples

RED_STORM = Path(__file__).parents[3] / "examples" / "red_storm.toml"


def red_storm() -> Mesh:
    mesh = parse(tomllib.loads(RED_STORM.read_text())["topology"])
    assert isinstance(mesh, Mesh)
    return mesh


def all_once(chart: Chart, cells: int) -> None:
    """Every cell in one tile, every tile in one place, no two in the same."""
    assert sorted(cell for members in chart.members for cell in members) == list(range(cells))
    places = [chart.place(tile) for tile in range(len(chart.members))]
    assert len(set(places)) == len(places)
    for tile, (x, y) in enumerate(places):
        assert chart.at(x, y) == tile


@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [(36, 18, 372), (72, 33, 1488), (180, 64, 5568), (340, 94, 11136)],
)
def test_red_storm_fits_and_gets_finer_with_the_room(width: int, height: int, tiles: int) -> None:
    chart = cabinets(red_storm(), lambda one: one, width, height)
    assert len(chart.members) == tiles and chart.width <= width and len(chart.lines) <= height
    all_once(chart, 11136)


def test_every_processor_a_tile_on_demand() -> None:
    chart = cabinets(red_storm(), lambda one: one, 80, 24, whole=False)
    assert all(len(members) == 1 for members in chart.members)
    all_once(chart, 11136)


sections = st.fixed_dictionaries(
    {
        "kind": st.just("mesh"),
        "rows": st.integers(1, 4),
        "columns": st.integers(2, 9),
        "cages": st.integers(1, 3),
        "boards": st.integers(1, 8),
        "routers": st.integers(1, 5),
    }
)


@settings(max_examples=examples(25), deadline=None)
@given(sections, st.integers(0, 2), st.integers(1, 300), st.integers(1, 90), st.booleans())
def test_any_mesh_in_any_room(section: dict[str, object], service: int, width: int, height: int, whole: bool) -> None:
    columns = int(section["columns"])  # type: ignore[call-overload]
    cut = [{"name": "cut", "after": 0}]
    mesh = parse({**section, "service_columns": list(range(min(service, columns))), "switches": cut, "open": ["cut"]})
    assert isinstance(mesh, Mesh)
    all_once(cabinets(mesh, lambda one: one, width, height, whole=whole), mesh.size)


def machine(topology: str, nodes: int, each: int) -> Machine:
    made = Machine()
    rows = [Processor(id, 1 + id // each, id % each) for id in range(nodes * each)]
    made.apply(
        Picture(True, 1, 1.0, "m", [Node(i + 1, f"n{i}") for i in range(nodes)], rows, [], [], topology=topology)
    )
    return made


RACKS = '{"kind": "racks", "racks": {"r1": ["n[0-3]"], "r2": ["n[4-6]"]}}'


@pytest.mark.parametrize("topology", ["", RACKS, "no JSON", '{"kind": "of tomorrow"}'])
@pytest.mark.parametrize(("width", "height"), [(8, 3), (30, 10), (78, 20), (200, 60)])
def test_clusters_in_any_room(topology: str, width: int, height: int) -> None:
    made = machine(topology, 9, 4)  # two nodes are in no rack
    structure = Structure(made)
    all_once(structure.chart(MACHINE, width, height), 36)
    assert structure.has_cabinets == (topology == RACKS)


def test_zooming_in_and_out() -> None:
    made = machine(RACKS, 7, 4)
    structure = Structure(made)
    rack = structure.inside(MACHINE, 17)
    assert rack == Place("cabinet", "r2") and structure.path(rack, 17) == "rack r2"
    chart = structure.chart(rack, 60, 20)
    assert sorted(cell for members in chart.members for cell in members) == list(range(16, 28))
    node = structure.inside(rack, 17)
    assert node == Place("node", "n4") and structure.path(node, 17) == "rack r2 › node n4"
    assert [members[0] for members in structure.chart(node, 60, 20).members] == [16, 17, 18, 19]
    assert structure.inside(node, 17) == node
    assert structure.outside(node, 17) == rack and structure.outside(rack, 17) == MACHINE
    flat = Structure(machine("", 7, 4))
    assert flat.inside(MACHINE, 5) == Place("node", "n1") and flat.outside(Place("node", "n1"), 5) == MACHINE


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n0"], "n0"),
        (["n0", "n1", "n2", "login"], "n[0-2],login"),
        (["node008", "node009", "node010"], "node[008-010]"),
        (["c3-0c0s1n2", "c3-0c0s1n3"], "c3-0c0s1n[2-3]"),
        (["a-1", "b-2"], "a-1,b-2"),
        ([], ""),
    ],
)
def test_lists_of_nodes_are_such_as_every_command_takes(names: list[str], folded: str) -> None:
    from console.launch.options.lists import fold_nodes, parse_list

    assert fold_nodes(names) == folded
    if folded:
        assert parse_list(folded)["nodes"] == names


def test_commands_of_verbs() -> None:
    made = machine(RACKS, 7, 4)
    chosen = commands.target(made, [0, 1, 8])
    assert (chosen.processors, chosen.nodes) == ([0, 1, 8], ["n0", "n2"])
    words = {verb.name: commands.line(commands.command(verb, chosen, "ada")) for verb in commands.VERBS.values()}
    assert words["drain"] == "mesh drain n0,n2 --reason ada" and words["resume"] == "mesh resume n0,n2"
    assert words["reserve"] == "pingd -reserve ada -list 0..1,8"
    assert words["kill"] == "pingd -kill -list 0..1,8"
    assert commands.problem(commands.VERBS["kill"], chosen) == "nothing runs there"
    assert commands.problem(commands.VERBS["drain"], commands.target(made, [])) == "nothing is selected"
