"""What the viewers of a login processor see: their side of the machine, on both databases the same."""

import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from db.allocation.finish import finish, lose
from db.allocation.free import Machine
from db.allocation.partitions import PartitionDemand, create, destroy
from db.allocation.waiting_requests import Wait, drop, enqueue
from db.errors import Invalid, NotEnough
from db.machine.nodes import define_machine
from db.machine.nodes_bulk import drain, nodes_up, resume
from db.machine.reservations import reserve
from db.machine.sides import InUse, changed_columns, set_open
from db.store.store import Store
from db.topology import Mesh
from db.views.viewer import Picture, Viewer, open_viewer
from tests.support.chance import long
from tests.support.stores import key
from tests.support.two_sides import (
    COLUMN,
    LEFT,
    LOGIN,
    LOGINS,
    NODES,
    RIGHT,
    SECTION,
    SWITCHES,
    back,
    granted,
    seen,
    switch,
    take,
)

#: A viewer as that login processor's users have it.
ViewerOf = Callable[[str], Viewer]


@pytest.fixture
def viewer_of(database_url: str) -> Iterator[ViewerOf]:
    urls = {} if database_url.startswith("sqlite") else granted(database_url, LOGINS)
    opened: list[Viewer] = []

    def make(login: str) -> Viewer:
        opened.append(open_viewer(urls[login]) if urls else open_viewer(database_url, login))
        return opened[-1]

    yield make
    for viewer in opened:
        viewer.close()


@pytest.fixture
def machine(store: Store) -> Machine:
    define_machine(store, "m", "b1", LOGIN, NODES, SECTION)
    nodes_up(store, [node.name for node in NODES], "b1", 1, "/x")
    return Machine()


def test_each_side_sees_itself(store: Store, machine: Machine, viewer_of: ViewerOf) -> None:
    switch(store, "middle")
    left, right = take(store, machine, LEFT, 3), take(store, machine, RIGHT, 2)
    job = create(store, machine, PartitionDemand(key(), "1.pbs", "ada", 7, 1, login=RIGHT), lambda f, n: f[:n])
    enqueue(store, Wait(key(), None, 7, "eve", RIGHT, 5, 5, 3, {}, 60.0))
    drain(store, ["p7"], "broken by eve", "root")
    lose(store, right.launcher, "it is gone")
    one, other = viewer_of(LEFT), viewer_of(RIGHT)
    assert seen(one) == ([0, 1, 2, 3, 4, 9, 10], [left.launcher], [])
    assert seen(other) == ([5, 6, 7, 8, 11, 12], [], [right.launcher])
    assert [row.id for row in one.read().processors] == [0, 1, 2, 3, 8, 9]
    assert [row.id for row in one.read().partitions] == [left.partition]
    assert [row.id for row in other.read().partitions] == [job.partition]
    assert (one.waiting(), [row.user for row in other.waiting()]) == ([], ["eve"])
    assert {row.node for row in one.resources()} == {1, 2, 3, 4, 9, 10}
    assert one.launcher(right.launcher) is None and other.launcher(right.launcher).command == f"secret of {RIGHT}"
    told = [event.text for event in one.events()]
    assert "open switches: middle, by root; 2 sides" in told
    assert not any("gone" in text or "eve" in text for text in told)
    assert [e.text for e in other.events()][-2:] == ["p7 is drained: broken by eve", "launcher 2: it is gone"]
    assert one.events(after=0, limit=2) == one.events()[:2]


def test_what_went_is_gone_and_what_came_is_there_at_the_next_poll(
    store: Store, machine: Machine, viewer_of: ViewerOf
) -> None:
    switch(store, "middle")
    pictures = {login: (viewer_of(login), Picture()) for login in (LEFT, RIGHT)}

    def poll(login: str) -> tuple[bool, list[int]]:
        viewer, picture = pictures[login]
        return picture.update(viewer).whole, sorted(picture.processors)

    assert poll(LEFT) == (True, [0, 1, 2, 3, 8, 9])
    assert poll(RIGHT) == (True, [4, 5, 6, 7, 10, 11])
    early = take(store, machine, RIGHT, 1)
    assert poll(LEFT)[0] is False and pictures[LEFT][1].launchers == {}
    assert poll(RIGHT)[0] is False and list(pictures[RIGHT][1].launchers) == [early.launcher]
    finish(store, early.launcher, early.cookie, 0)
    switch(store, "left")  # column 1 is the right's now
    assert poll(LEFT) == (True, [8, 9])
    assert poll(RIGHT) == (True, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11])
    switch(store)
    assert poll(LEFT) == poll(RIGHT) == (True, list(range(12)))


def test_what_was_before_two_came_within_reach_stays_each_ones_own(
    store: Store, machine: Machine, viewer_of: ViewerOf
) -> None:
    together = take(store, machine, RIGHT, 1)
    finish(store, together.launcher, together.cookie, 0)
    switch(store, "middle")
    apart = take(store, machine, RIGHT, 1)
    finish(store, apart.launcher, apart.cookie, 0)
    drain(store, ["p4"], "while apart", "root")
    resume(store, ["p4"], "root")
    left, right = viewer_of(LEFT), viewer_of(RIGHT)
    assert (seen(left)[2], seen(right)[2]) == ([], [apart.launcher, together.launcher])
    switch(store)
    again = take(store, machine, RIGHT, 1)
    finish(store, again.launcher, again.cookie, 0)
    assert (seen(left)[2], seen(right)[2]) == ([again.launcher], [3, 2, 1])
    assert not any("while apart" in event.text for event in left.events())


def test_an_event_about_processors_of_two_sides_tells_each_its_own(
    store: Store, machine: Machine, viewer_of: ViewerOf
) -> None:
    switch(store, "middle")
    reserve(store, [2, 3, 4], "ada", "root", "hers")
    told = {login: [e.text for e in viewer_of(login).events() if e.kind == "mode"] for login in (LEFT, RIGHT)}
    assert told == {
        LEFT: ["2..3: reserved for ada, by root: hers"],
        RIGHT: ["4: reserved for ada, by root: hers"],
    }


def test_a_boot_joins_nobodys_past(store: Store, machine: Machine, viewer_of: ViewerOf) -> None:
    switch(store, "middle")
    theirs = take(store, machine, RIGHT, 1)
    finish(store, theirs.launcher, theirs.cookie, 0)
    define_machine(store, "m", "b2", LOGIN, NODES, {**SECTION, "switches": []})  # all one side
    assert seen(viewer_of(LEFT))[2] == [] and seen(viewer_of(RIGHT))[2] == [theirs.launcher]
    define_machine(store, "m", "b3", LOGIN, NODES, {**SECTION, "switches": []})
    assert seen(viewer_of(LEFT))[2] == [] and seen(viewer_of(RIGHT))[2] == [theirs.launcher]


def test_partitions_of_an_older_schema_are_their_launchers(store: Store, machine: Machine, viewer_of: ViewerOf) -> None:
    switch(store, "middle")
    mine, theirs = take(store, machine, LEFT, 1), take(store, machine, RIGHT, 1)
    job = create(store, machine, PartitionDemand(key(), "1.pbs", "ada", 7, 1, login=LEFT), lambda f, n: f[:n])
    store.run(lambda t: t.change("UPDATE `partition` SET login_processor = NULL"))
    assert viewer_of(LEFT).read().partitions == []
    store.execute(importlib.import_module("db.schema.migrations.0005_seen_by_side").OF_ITS_LAUNCHERS)
    assert [row.id for row in viewer_of(LEFT).read().partitions] == [mine.partition]
    assert [row.id for row in viewer_of(RIGHT).read().partitions] == [theirs.partition]
    assert {row[0]: row[1] for row in store.read("SELECT id, login_processor FROM `partition`")}[job.partition] is None


def test_a_login_processor_that_is_not_there_sees_nothing(database_url: str, store: Store, machine: Machine) -> None:
    if database_url.startswith("sqlite"):
        viewer = open_viewer(database_url, 'it\'s `not` "there"')
    else:
        viewer = open_viewer(granted(database_url, ('it\'s `not` "there"',))['it\'s `not` "there"'])
    with viewer:
        for ask in (viewer.read, viewer.history, viewer.events):
            with pytest.raises(Invalid):
                ask()


class Model:
    """Who sees what, from the tables themselves and from who came near whom; SQL has no part in it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.open: set[str] = set()
        self.near = dict.fromkeys(COLUMN, 1)

    def piece(self, node: int) -> int:
        return sum(name in self.open and after < COLUMN[node] for after, name in enumerate(SWITCHES))

    def reach(self, node: int) -> set[int]:
        """Of the columns where users are, those of this node's piece."""
        return {COLUMN[other] for other in COLUMN if COLUMN[other] in (0, 3) and self.piece(other) == self.piece(node)}

    def switched(self, names: set[str], stamp: int) -> None:
        before = {node: self.reach(node) for node in COLUMN}
        mesh = Mesh(SECTION)
        moved = changed_columns(mesh.with_open(sorted(self.open)), mesh.with_open(sorted(names)))
        self.open = names
        came = (node for node in COLUMN if COLUMN[node] in moved and self.reach(node) - before[node])
        self.near.update(dict.fromkeys(came, stamp))

    def sees(self, me: int, node: int | None, changed: int | None = None) -> bool:
        if node is None or self.piece(me) != self.piece(node):
            return False
        return changed is None or me == node or changed >= max(self.near[me], self.near[node])

    def expected(self, me: int) -> dict[str, list[Any]]:
        read = self._store.read
        launchers = read("SELECT id, login_processor, changed, ended_at FROM launcher ORDER BY id")
        partitions = read("SELECT id, login_processor, changed, ended_at FROM `partition` ORDER BY id")
        of = ({row[0]: row[1] for row in launchers}, {row[0]: row[1] for row in partitions})
        events = []
        for one, node, launcher, partition, changed, kind in read(
            "SELECT id, node, launcher, `partition`, changed, kind FROM event ORDER BY id"
        ):
            owner = next((n for n in (node, of[0].get(launcher), of[1].get(partition)) if n is not None), None)
            if kind in ("boot", "sides") or self.sees(me, owner, changed):
                events.append(one)
        return {
            "nodes": [node for node in COLUMN if self.sees(me, node)],
            "processors": [n.processors[0] for n in NODES if self.sees(me, n.id)],
            "launchers": [r[0] for r in launchers if r[3] is None and self.sees(me, r[1], r[2])],
            "history": [r[0] for r in launchers if r[3] is not None and self.sees(me, r[1], r[2])],
            "partitions": [r[0] for r in partitions if r[3] is None and self.sees(me, r[1], r[2])],
            "waiting": [
                r[0] for r in read("SELECT id, login_processor FROM waiting ORDER BY id") if self.sees(me, r[1])
            ],
            "events": events,
        }


class Run(NamedTuple):
    """Something that has processors, and how to end it."""

    name: str
    end: Callable[[], object]


class Days:
    """A machine's days, one step after the other, as chance has it."""

    def __init__(self, store: Store, machine: Machine, chance: random.Random) -> None:
        self.store, self.machine, self.chance, self.model = store, machine, chance, Model(store)
        self.running: list[Run] = []
        self.waiting: list[str] = []

    def step(self) -> str:
        step = self.chance.choice(
            (self.launch, self.launch, self.job, self.end, self.end, self.switch, self.fail, self.wait)
        )
        step()
        return step.__name__

    def launch(self) -> None:
        login = self.chance.choice(LOGINS)
        try:
            made = take(self.store, self.machine, login, self.chance.randint(1, 3))
        except NotEnough:
            return
        self.running.append(Run(login, lambda: finish(self.store, made.launcher, made.cookie, 0)))

    def job(self) -> None:
        login = self.chance.choice(LOGINS)
        ask = PartitionDemand(key(), "1.pbs", f"user of {login}", 7, self.chance.randint(1, 2), login=login)
        try:
            made = create(self.store, self.machine, ask, lambda free, count: free[:count])
        except NotEnough:
            return
        self.running.append(Run(login, lambda: destroy(self.store, made.partition, made.admin_cookie)))

    def end(self) -> None:
        if self.running:
            self.running.pop(self.chance.randrange(len(self.running))).end()

    def switch(self) -> None:
        names = {name for name in SWITCHES if self.chance.random() < 0.4}
        try:
            set_open(self.store, sorted(names), "root")
        except InUse:
            return
        if names != self.model.open:
            self.model.switched(names, self.store.read("SELECT counter FROM mesh")[0][0])
        for node in NODES:
            back(self.store, node.name)

    def fail(self) -> None:
        node = self.chance.choice(NODES).name
        drain(self.store, [node], "out", "root")
        resume(self.store, [node], "root")

    def wait(self) -> None:
        if self.waiting:
            drop(self.store, self.waiting.pop())
        else:
            self.waiting.append(key())
            login = self.chance.choice(LOGINS)
            enqueue(self.store, Wait(self.waiting[-1], None, 7, "eve", login, 5, 5, 99, {}, 60.0))


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(long(1, 6)))
def test_whatever_happens_a_viewer_that_reads_what_changed_sees_what_the_model_says(
    store: Store, machine: Machine, viewer_of: ViewerOf, seed: int
) -> None:
    days = Days(store, machine, random.Random(seed))
    ids = {LOGIN: 0, LEFT: 9, RIGHT: 11}
    pictures = {login: (viewer_of(login), Picture()) for login in LOGINS}
    for number in range(60):
        step = days.step()
        for login, (viewer, picture) in pictures.items():
            picture.update(viewer)
            shown = {
                "nodes": sorted(picture.nodes),
                "processors": sorted(picture.processors),
                "launchers": sorted(picture.launchers),
                "history": sorted(row.id for row in viewer.history(1000)),
                "partitions": sorted(picture.partitions),
                "waiting": [row.id for row in viewer.waiting()],
                "events": [row.id for row in viewer.events(limit=1000)],
            }
            assert shown == days.model.expected(ids[login]), (number, step, login)
            assert all(picture.state(one) for one in picture.processors)
