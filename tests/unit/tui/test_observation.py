"""Facts that are kept by a number belong to a boot of the mesh and of a node: numbers are used again."""

from typing import Any

from console.tui.model.launch import Phase, Run
from console.tui.model.machine import Event, Machine, NodeStatus, Picture
from console.tui.model.observation import Identity, Observation
from console.tui.model.usage import Usage, _chart
from console.tui.sources.database import Translator
from console.tui.sources.node import read
from console.tui.widgets.launch_summary import heading
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, Reading
from tests.unit.tui.test_machine import NODES, ROWS

STATUS = NodeStatus((3.2, 1.0, 0.5), (1000, 250), {7: [(0, 11), (1, 12)]})


def booted(boot: str, nodes: dict[str, str]) -> Machine:
    """A machine in this boot, with nodes of these names, which were started in these boots."""
    machine = Machine()
    boot_again(machine, boot, nodes)
    return machine


def boot_again(machine: Machine, boot: str, nodes: dict[str, str]) -> None:
    rows = [NODES[i]._replace(name=name, boot_id=node) for i, (name, node) in enumerate(nodes.items())]
    machine.apply(Picture(True, machine.counter + 1, 10.0, "main", rows, ROWS, [], [], boot_id=boot, booted_at=5.0))


def test_a_fact_is_old_after_its_interval() -> None:
    fact = Observation("3.2", 100.0, Identity("a", "b"), 15.0)
    assert (fact.old(115.0), fact.old(140.0), fact.old(225.0)) == ("", "40s ago", "2:05 ago")


def test_the_status_of_a_node_is_not_that_of_the_next_node_with_its_number() -> None:
    machine = booted("a", {"n0": "a-0", "n1": "a-1"})
    node = machine.nodes[0]
    machine.statuses[node.id] = Observation(STATUS, 1.0, machine.identity(node), 15.0)
    machine.unanswered[2] = Observation("its PCT does not answer", 1.0, machine.identity(machine.nodes[1]), 15.0)
    assert machine.status(node) is not None and machine.trouble_of(machine.nodes[1]) == "its PCT does not answer"
    for boot, of_node in (("b", "a-0"), ("a", "b-0"), ("b", "b-0")):
        boot_again(machine, boot, {"c1-0c0s0n0": of_node, "c1-0c0s0n1": of_node})
        assert machine.status(machine.nodes[0]) is None and not machine.trouble_of(machine.nodes[1])
    boot_again(machine, "a", {"n0": "a-0", "n1": "a-1"})
    assert machine.status(machine.nodes[0]) is not None
    assert machine.status(machine.nodes[0]._replace(state="down")) is None


def test_a_reply_says_of_which_boot_it_is() -> None:
    told = read(
        {"load": [1.5], "memory": [1000, 250], "boot_id": "b-0", "launches": [{"launcher": 7, "ranks": [[0, 9]]}]}
    )
    assert told.boot_id == "b-0" and told.status == NodeStatus((1.5,), (1000, 250), {7: [(0, 9)]})
    assert read({}).boot_id == "" and read({"load": 1}).status is None and read({"load": 1}).trouble


def node(number: int, name: str) -> Any:
    told = {"id": number, "name": name, "role": "compute", "state": "up"}
    return NodeRow(*(told.get(column) for column in NodeRow._fields))


def reading(boot: str, names: list[str], launchers: tuple[Any, ...] = (), booted_at: float = 0.0) -> Any:
    mesh = MeshRow(boot, "main", None, 7, 1, 0, booted_at)
    return Reading(True, 1, 10.0, mesh, [node(i, name) for i, name in enumerate(names)], [], list(launchers), [])


def up(number: int, of: int) -> Any:
    return EventRow(number, float(number), "node_up", of, None, None, "is up")


def boot_event(number: int) -> Any:
    return EventRow(number, float(number), "boot", None, None, None, "mesh main")


def names(events: Any) -> list[str]:
    return [event.node for event in events if isinstance(event, Event) and event.kind == "node_up"]


def test_an_event_names_the_node_that_had_the_number_then() -> None:
    translator, first = Translator(), [boot_event(1), up(2, 0), up(3, 1)]
    assert names(translator.picture(reading("a", ["n0", "n1"]), first).events) == ["n0", "n1"]
    second = [*first, boot_event(4), up(5, 0)]
    assert names(translator.picture(reading("b", ["c0"]), second).events) == ["n0", "n1", "c0"]
    assert names(translator.picture(reading("b", ["c0"]), [up(6, 0)]).events) == ["c0"], "one more of the same boot"
    third = [*second, up(6, 0), boot_event(7), up(8, 1)]
    assert names(translator.picture(reading("c", ["x", "y"]), third).events) == ["n0", "n1", "c0", "c0", "y"]
    fresh = Translator().picture(reading("c", ["x", "y"]), third).events
    assert names(fresh) == ["", "", "", "", "y"], "boots that were not read have nodes without names"


def test_an_ended_launch_of_an_earlier_boot_has_no_login_processor_of_this_one() -> None:
    told = {"id": 1, "login_processor": 0, "created_at": 5.0, "ended_at": 6.0, "state": "ended"}
    row = LauncherRow(*(told.get(column) for column in LauncherRow._fields))
    translator = Translator()
    translator.picture(reading("b", ["login"], booted_at=9.0), [])
    assert translator.launcher(row).login == ""
    assert translator.launcher(row._replace(created_at=10.0)).login == "login"


def words(usage: Usage, age_s: float | None = None) -> str:
    return "".join(text for text, _ in _chart(usage, 60, 3, age_s)[-1]).strip()


def test_use_is_that_of_this_boot_and_has_gaps_where_nothing_was_known() -> None:
    usage = Usage()
    usage.add(8, 8, "a")
    usage.add(8, 8, "a", missed=2)
    assert usage.bars(9) == "█  █" and words(usage).endswith("in use now: 100%")
    for _ in range(36):
        usage.add(8, 8, "a")
    assert words(usage).startswith("40s ago")
    assert words(usage, 40.0).endswith("in use 40s ago: 100%") and words(usage, 40.0).startswith("1:20 ago")
    usage.add(0, 0, "a")
    assert usage.bars(1) == " " and words(usage).endswith("nothing is up now")
    assert words(usage, 40.0).endswith("nothing was up 40s ago")
    usage.add(4, 8, "b", missed=3)
    assert usage.bars(9) == "▅", "the bars of another machine are dropped"


def test_what_is_read_of_a_launch_that_is_over_is_not_running() -> None:
    run = Run(3, "./heat")
    run.take({"event": "started", "at": 100.0, "ranks": [[11, "n0"]]})
    assert run.phase is Phase.RUNNING and run.live
    assert "running 18:12" in heading(run, "", 1192.0, 100).plain
    run.past = True
    told = heading(run, "", 1192.0, 100).plain
    assert not run.live and "running" not in told and "is over" in told
    assert run.last_seen, "its ranks do not run, although nothing has told their ends yet"
    run.take({"event": "end", "exit_status": 0, "elapsed_s": 5.0, "at": 105.0})
    assert "exit 0 after 5.0 s" in heading(run, "", 1192.0, 100).plain and not run.last_seen
    run.restart()
    assert not run.past
