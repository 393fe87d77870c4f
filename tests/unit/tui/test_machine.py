"""The machine in the console: pictures in, cells and changes out."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from console.tui.map.zoom import node_blocks
from console.tui.model.machine import GLYPHS, Launcher, Machine, Node, Picture, Processor, State


def launcher(number: int, state: str = "busy", **more: object) -> Launcher:
    row = Launcher(number, "ada", 1000, "hostname", 1, state, "login1", 4711, number, "", 100.0, 101.0)
    return row._replace(**more)


def picture(
    processors: list[Processor],
    launchers: Sequence[Launcher] = (),
    *,
    nodes: Sequence[Node] = (),
    ended: Sequence[int] = (),
    whole: bool = False,
    counter: int = 1,
) -> Picture:
    return Picture(whole, counter, 200.0, "main", list(nodes), processors, list(launchers), list(ended))


NODES = [Node(1, "n0"), Node(2, "n1")]
ROWS = [Processor(id, 1 + id // 4, id % 4) for id in range(8)]


def machine() -> Machine:
    made = Machine()
    assert made.apply(picture(ROWS, nodes=NODES, whole=True)).shape
    return made


def test_processors_stand_node_by_node_in_slot_order() -> None:
    made = Machine()
    made.apply(picture(list(reversed(ROWS)), nodes=list(reversed(NODES)), whole=True))
    assert [row.id for row in made.processors] == list(range(8))
    assert [(block.label, block.first, block.cells) for block in node_blocks(made)] == [("n0", 0, 4), ("n1", 4, 4)]


def test_only_what_changed_is_told() -> None:
    made = machine()
    taken = [ROWS[1]._replace(launcher=1), ROWS[5]._replace(launcher=1)]
    changed = made.apply(picture(taken, [launcher(1)], counter=2))
    assert (changed.shape, changed.cells, changed.launchers) == (False, {1, 5}, True)
    assert made.appearance(1)[0] == "a"
    changed = made.apply(picture(taken, counter=3))
    assert changed.cells == set()


def test_a_launcher_turning_busy_changes_its_cells_though_no_processor_row_did() -> None:
    made = machine()
    made.apply(picture([ROWS[2]._replace(launcher=7)], [launcher(7, "pending")], counter=2))
    assert made.appearance(2)[0] == GLYPHS[State.PENDING]
    changed = made.apply(picture([], [launcher(7)], counter=3))
    assert changed.cells == {2}
    assert made.appearance(2)[0] == "g"


def test_a_node_that_goes_takes_its_cells_with_it_and_gives_them_back() -> None:
    made = machine()
    changed = made.apply(picture([], nodes=[Node(2, "n1", state="down")], counter=2))
    assert changed.cells == {4, 5, 6, 7}
    assert made.counts()[State.DOWN] == 4
    changed = made.apply(picture([], nodes=[Node(2, "n1", state="suspect")], counter=3))
    assert made.counts()[State.SUSPECT] == 4 and changed.cells == {4, 5, 6, 7}
    made.apply(picture([], nodes=[Node(2, "n1")], counter=4))
    assert made.counts()[State.FREE] == 8


def test_draining_nodes_are_drained_where_nothing_runs() -> None:
    made = machine()
    busy = ROWS[4]._replace(launcher=1)
    made.apply(picture([busy], [launcher(1)], nodes=[Node(2, "n1", state="draining")], counter=2))
    assert [State(state).name for state in made.states[4:]] == ["DRAINING", "DRAINED", "DRAINED", "DRAINED"]


def test_letters_stay_while_others_come_and_go() -> None:
    made = machine()
    made.apply(picture([ROWS[0]._replace(launcher=3)], [launcher(3)], counter=2))
    assert made.letter(3) == "c"
    made.apply(picture([ROWS[1]._replace(launcher=65)], [launcher(65)], counter=3))
    assert made.letter(65) == "d"  # 65 would be c again: the next one
    made.apply(picture([ROWS[0]], ended=[3], counter=4))
    assert made.letter(65) == "d"
    assert made.letter(3) == "?"


def test_a_whole_picture_of_the_same_machine_repaints_what_differs_alone() -> None:
    made = machine()
    made.apply(picture([ROWS[0]._replace(launcher=1)], [launcher(1)], counter=2))
    changed = made.apply(picture(ROWS, nodes=NODES, whole=True, counter=9))
    assert (changed.shape, changed.cells) == (False, {0})


def test_a_new_node_is_another_shape() -> None:
    made = machine()
    more = [Processor(8, 3, 0)]
    assert made.apply(picture(more, nodes=[Node(3, "n2")], counter=2)).shape
    assert made.cells == 9 and made.counts()[State.FREE] == 9


ROW = st.builds(
    lambda id, launcher, reserved: ROWS[id]._replace(launcher=launcher, reserved_for=reserved),
    st.integers(0, 7),
    st.sampled_from([None, 1, 2, 64]),
    st.sampled_from(["", "ada"]),
)
CHANGE = st.tuples(
    st.lists(ROW, max_size=4),
    st.lists(st.builds(launcher, st.sampled_from([1, 2, 64]), st.sampled_from(["pending", "busy"])), max_size=2),
    st.lists(st.builds(Node, st.just(2), st.just("n1"), state=st.sampled_from(["up", "down", "suspect"])), max_size=1),
    st.lists(st.sampled_from([1, 2, 64]), max_size=1),
)


@given(st.lists(CHANGE, max_size=12))
def test_changes_add_up_to_the_whole(
    changes: list[tuple[list[Processor], list[Launcher], list[Node], list[int]]],
) -> None:
    """Whatever came piece by piece, the cells are those of a machine that read everything at once, and what
    was not told as changed looks as it did."""
    made = machine()
    processors, launchers, nodes = dict(enumerate(ROWS)), {}, {node.id: node for node in NODES}
    for counter, (rows, live, moved, ended) in enumerate(changes, 2):
        before = [made.appearance(cell) for cell in range(8)]
        ended = [number for number in ended if number not in {row.id for row in live}]
        changed = made.apply(picture(rows, live, nodes=moved, ended=ended, counter=counter))
        for cell in range(8):
            if cell not in changed.cells:
                assert made.appearance(cell) == before[cell]
        processors.update((row.id, row) for row in rows)
        nodes.update((node.id, node) for node in moved)
        launchers.update((row.id, row) for row in live)
        for number in ended:
            launchers.pop(number, None)
    whole = Machine()
    whole.apply(picture(list(processors.values()), list(launchers.values()), nodes=list(nodes.values()), whole=True))
    assert made.states == whole.states
    assert made.launchers == whole.launchers
