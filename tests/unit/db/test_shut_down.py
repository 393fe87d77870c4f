"""The mesh was taken down: what the database says then."""

from db.allocation.free import Machine
from db.machine.nodes import shut_down
from db.machine.nodes_bulk import drain
from db.store.store import Store
from db.views.viewer import Picture, open_viewer
from tests.support.stores import take


def read(url: str) -> Picture:
    with open_viewer(url) as viewer:
        picture = Picture()
        picture.update(viewer)
        return picture


def test_everything_has_ended_and_nothing_is_there(store: Store, machine: Machine, database_url: str) -> None:
    take(store, machine, 3)
    drain(store, ["n3"], "new memory", "ada")
    shut_down(store, "b1", "the mesh was idle")
    picture = read(database_url)
    assert not picture.launchers and not picture.partitions
    assert {picture.state(one) for one in picture.processors} == {"down", "drained"}
    assert [(node.state, node.reason) for node in picture.nodes.values()] == [
        ("up", ""),
        *[("down", "the mesh was idle")] * 3,
        ("drained", "new memory"),
    ]
    with open_viewer(database_url) as viewer:
        [ended] = viewer.history()
        assert ended.abnormal and ended.reason == "the mesh was idle"
        assert viewer.events()[-1].text == "the mesh was idle"


def test_another_boot_is_left_alone(store: Store, machine: Machine, database_url: str) -> None:
    taken = take(store, machine, 3)
    shut_down(store, "b0", "the mesh was idle")
    picture = read(database_url)
    assert list(picture.launchers) == [taken.launcher] and picture.state(15) == "free"
