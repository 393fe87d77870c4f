"""The map of a machine of cabinets, of racks, and what an open switch looks like in it."""

from console.cli.map.cabinets import cabinets, racks
from console.cli.map.drawing import Cell, Group
from db.topology import Cluster, Mesh, parse

SMALL = {"kind": "mesh", "rows": 2, "columns": 3, "cages": 1, "boards": 2, "service_columns": [2]}
RED_STORM = {
    "kind": "mesh", "rows": 4, "columns": 31, "cages": 3, "boards": 8, "service_columns": [0, 1, 29, 30],
    "switches": [{"name": "left", "after": 1}, {"name": "right", "after": 28}],
}  # fmt: skip


def mesh(section: dict[str, object]) -> Mesh:
    found = parse(section)
    assert isinstance(found, Mesh)
    return found


def drawn(machine: Mesh, busy: dict[int, int], width: int, *, full: bool = False) -> list[str]:
    def cell(one: int) -> Cell:
        if machine.is_service(one):
            return Cell("service", None)
        return Cell("busy", busy[one]) if one in busy else Cell("free", None)

    return cabinets(machine, cell, {1: "a", 2: "b"}, width, colour=False, full=full)


def test_every_processor_stands_where_its_cabinet_is() -> None:
    lines = drawn(mesh(SMALL), {0: 1, 5: 2}, 40)
    # row 0: processor 0 is on the first router of the first board, 5 on the second of the second
    assert lines[:3] == ["r0  0    1    2     r1  0    1    2", "c0  a... .... , ,   c0  .... .... , ,",
                         "    .b.. .... , ,       .... .... , ,"]  # fmt: skip


def test_a_machine_wider_than_the_screen_has_a_character_for_each_board() -> None:
    machine = mesh(RED_STORM)
    lines = drawn(machine, {0: 1, 1: 1, 2: 1, 3: 1, 4: 2}, 80)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60  # a screen or two, for eleven thousand processors
    assert sum(line.count("a") for line in lines) == 1
    assert sum(line.count("%") for line in lines) == 1  # processor 4 has a board with three free ones
    assert sum(line.count(".") for line in lines) == 10368 // 4 - 2
    assert sum(line.count(",") for line in lines) == 768 // 2


def test_full_shows_every_processor_whatever_that_takes() -> None:
    lines = drawn(mesh(RED_STORM), {}, 80, full=True)
    assert sum(line.count(".") for line in lines) == 10368
    assert max(map(len, lines)) <= 80


def test_an_open_switch_is_a_line_between_its_columns() -> None:
    machine = mesh(RED_STORM).with_open(["left"])
    for width, each in ((80, 1), (200, 5)):
        lines = drawn(machine, {}, width)
        body = [line for line in lines if "|" in line]
        assert len(body) == machine.depth * (2 if width == 80 else 4)
        assert {line.index("|") for line in body} == {4 + 2 * each - (each > 1)}


def test_racks_stand_side_by_side_with_their_nodes_below() -> None:
    cluster = parse({"kind": "racks", "racks": {"r1": ["n[1-2]"], "r2": ["n3"]}})
    assert isinstance(cluster, Cluster)
    free = Cell("free", None)
    groups = [Group("n1", [free, free]), Group("n2", [Cell("busy", 1), free]), Group("n3", [free] * 3),
              Group("odd", [free])]  # fmt: skip
    assert racks(cluster, groups, {1: "a"}, 40, colour=False) == [
        "r1       r2       no rack", "n1 ..    n3 ...   odd .", "n2 a.", ""]  # fmt: skip
    assert racks(cluster, groups, {1: "a"}, 8, colour=False)[0] == "r1"
