"""Whatever launchers, the batch system, administrators and nodes do, the database's books stay right.

The model is a few dictionaries; the invariants are read from the database itself, never from our pictures.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from db.allocation import finish as ending
from db.allocation import partitions, waiting_requests
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.partitions import Created, PartitionDemand, PartitionInUse
from db.allocation.types import Allocation, Demand
from db.errors import Denied, Expired, NotEnough
from db.machine import reservations
from db.machine.nodes import node_down, node_suspect, node_up
from db.machine.nodes_bulk import drain_later, resume
from db.schema.migrate import migrate
from db.store.ranges import unfold
from db.store.store import open_store
from db.views import history
from db.views.viewer import Picture, open_viewer
from tests.support.chance import examples
from tests.support.stores import LOGIN, define, demand, empty, first, key

NODES, SLOTS = 4, 3
TOTAL = NODES * SLOTS
#: Far enough from each other that no step of a test takes as long.
TIMES = st.sampled_from([None, 1000.0, 3000.0])
LEAVES = st.sampled_from([0.0, 2000.0, 4000.0])
SIZES = st.integers(1, TOTAL + 1)
NODE_NAMES = st.sampled_from([f"n{number}" for number in range(NODES)])


class Books(RuleBasedStateMachine):
    """Two CPAs (pictures of their own) over one database. Subclasses say where it is."""

    url = ""

    launches = Bundle("launches")
    jobs = Bundle("jobs")
    waits = Bundle("waits")

    def __init__(self) -> None:
        super().__init__()
        self.store = open_store(self.url)
        empty(self.store)
        define(self.store, NODES, SLOTS)
        self.cpas = [Machine(), Machine()]
        self.viewer = open_viewer(self.url)
        self.picture = Picture()
        self.line: list[str] = []  # keys that wait for the pool, in order
        self.most: dict[int, int] = {}  # the most that was in use, by partition
        self.ended: set[int] = set()  # launchers
        self.destroyed: set[int] = set()  # partitions of jobs

    def teardown(self) -> None:
        self.viewer.close()
        self.store.close()

    def rows(self, sql: str, *params: Any) -> list[Any]:
        return self.store.read(sql, params)

    def note(self, taken: Allocation) -> Allocation:
        in_use = self.rows(
            "SELECT COUNT(*) FROM processor WHERE `partition` = ? AND launcher IS NOT NULL", taken.partition
        )[0][0]
        self.most[taken.partition] = max(self.most.get(taken.partition, 0), in_use)
        return taken

    def ask(self, cpa: int, asked: Demand) -> Allocation | None:
        """An allocate; a refusal must be true."""
        free = self.usable(asked)
        try:
            taken = allocate(self.store, self.cpas[cpa], asked, first)
        except NotEnough as error:
            assert error.waiting or free < asked.size
            assert error.waiting or error.free == free
            return None
        assert asked.partition is not None or not self.line or self.line[0] == asked.request_key
        assert len(taken.processors) == asked.size <= free
        return self.note(taken)

    def usable(self, asked: Demand) -> int:
        whose = "p.`partition` IS NULL AND p.alloc_mode = 'interactive'"
        if asked.partition is not None:
            whose = f"p.`partition` = {asked.partition}"
        return int(
            self.rows(
                "SELECT COUNT(*) FROM processor p JOIN node n ON n.id = p.node"
                f" WHERE n.state = 'up' AND p.launcher IS NULL AND {whose}"
                " AND (n.drain_at IS NULL OR (n.drain_at > ? AND n.drain_at >= ?))",
                time.time(),
                time.time() + (asked.time_s or 0.0),
            )[0][0]
        )

    @rule(target=launches, cpa=st.integers(0, 1), size=SIZES, time_s=TIMES)
    def launch(self, cpa: int, size: int, time_s: float | None) -> Any:
        taken = self.ask(cpa, demand(size, time_s=time_s))
        return taken if taken is not None else multiple()

    @rule(target=launches, cpa=st.integers(0, 1), size=st.integers(1, 4), job=jobs)
    def launch_in_a_job(self, cpa: int, size: int, job: Created) -> Any:
        asked = demand(size, partition=job.partition, cookie=job.allocation_cookie)
        if job.partition in self.destroyed:
            with pytest.raises(Expired):
                self.ask(cpa, asked)
            return multiple()
        taken = self.ask(cpa, asked)
        return taken if taken is not None else multiple()

    @rule(target=waits, cpa=st.integers(0, 1), size=st.integers(1, TOTAL))
    def launch_or_wait(self, cpa: int, size: int) -> Any:
        asked = demand(size)
        taken = self.ask(cpa, asked)
        if taken is not None:
            ending.finish(self.store, taken.launcher, taken.cookie, 0, machine=self.cpas[cpa])
            self.ended.add(taken.launcher)
            return multiple()
        wait = waiting_requests.Wait(asked.request_key, None, asked.uid, asked.user, LOGIN, 1, 1, size, {}, 600)
        assert waiting_requests.enqueue(self.store, wait) == len(self.line)
        self.line.append(asked.request_key)
        return asked

    @rule(target=launches, cpa=st.integers(0, 1), asked=waits)
    def try_again(self, cpa: int, asked: Demand) -> Any:
        if asked.request_key not in self.line:
            return multiple()
        taken = self.ask(cpa, asked)
        if taken is None:
            return multiple()
        assert self.line.pop(0) == asked.request_key
        return taken

    @rule(asked=consumes(waits))
    def give_up_waiting(self, asked: Demand) -> None:
        assert waiting_requests.drop(self.store, asked.request_key) == (asked.request_key in self.line)
        if asked.request_key in self.line:
            self.line.remove(asked.request_key)

    @rule(launch=launches)
    def start(self, launch: Allocation) -> None:
        gone = launch.launcher in self.ended
        try:
            ending.started(self.store, launch.launcher, launch.cookie, launch.processors, machine=self.cpas[0])
            assert not gone
        except Expired:
            assert gone

    @rule(launch=launches, cpa=st.integers(0, 1), status=st.sampled_from([0, 1, 139]))
    def finish(self, launch: Allocation, cpa: int, status: int) -> None:
        known = self.rows("SELECT 1 FROM launcher WHERE id = ?", launch.launcher)
        try:
            ended = ending.finish(self.store, launch.launcher, launch.cookie, status, machine=self.cpas[cpa])
            assert ended.news == (launch.launcher not in self.ended)
            if ended.news and status == 139 and not ended.partition_too:
                assert self.rows("SELECT batch_job_error FROM `partition` WHERE id = ?", ended.partition)[0][0] == 1
        except Expired:
            assert not known
        self.ended.add(launch.launcher)

    @rule(launch=launches)
    def lose(self, launch: Allocation) -> None:
        lost = ending.lose(self.store, launch.launcher, "gone")
        assert lost is None or lost.news == (launch.launcher not in self.ended)
        self.ended.add(launch.launcher)

    @rule(launch=launches)
    def wrong_cookie(self, launch: Allocation) -> None:
        with pytest.raises((Denied, Expired)):
            ending.finish(self.store, launch.launcher, "0" * 16, 0)

    @rule(target=jobs, cpa=st.integers(0, 1), size=st.integers(1, 6))
    def begin_job(self, cpa: int, size: int) -> Any:
        asked = PartitionDemand(key(), "7.pbs", "ada", 1000, size)
        try:
            return partitions.create(self.store, self.cpas[cpa], asked, first)
        except NotEnough:
            return multiple()

    @rule(job=jobs, force=st.booleans())
    def end_job(self, job: Created, force: bool) -> None:
        running = [
            row[0]
            for row in self.rows("SELECT id FROM launcher WHERE ended_at IS NULL AND `partition` = ?", job.partition)
        ]
        try:
            assert partitions.destroy(self.store, job.partition, job.admin_cookie, force) == running
        except PartitionInUse:
            assert running and not force
            return
        except Expired:
            assert not self.rows("SELECT 1 FROM `partition` WHERE id = ?", job.partition)
        self.ended.update(running)
        self.destroyed.add(job.partition)

    @rule(name=NODE_NAMES, tell=st.sampled_from([node_down, node_suspect]))
    def node_fails(self, name: str, tell: Callable[..., bool]) -> None:
        tell(self.store, name, "b1", 1, "gone")

    @rule(name=NODE_NAMES)
    def node_returns(self, name: str) -> None:
        node_up(self.store, name, "b1", 1, f"/run/x/{name}.sock", "0.1.0")

    @rule(name=NODE_NAMES, after_s=LEAVES)
    def node_will_leave(self, name: str, after_s: float) -> None:
        drain_later(self.store, [name], after_s, "it leaves")

    @rule(name=NODE_NAMES)
    def node_stays(self, name: str) -> None:
        resume(self.store, [name], "ada")

    @rule(ids=st.sets(st.integers(0, TOTAL - 1), min_size=1), mode=st.sampled_from(reservations.MODES))
    def change_mode(self, ids: set[int], mode: str) -> None:
        reservations.set_mode(self.store, sorted(ids), mode)

    @rule(rows=st.integers(1, 5))
    def forget(self, rows: int) -> None:
        history.trim(self.store, 1.0, rows)

    @invariant()
    def nothing_twice_and_nothing_lost(self) -> None:
        held = {row[0]: (row[1], row[2]) for row in self.rows("SELECT id, `partition`, launcher FROM processor")}
        assert sorted(held) == list(range(TOTAL))
        claimed: dict[int, tuple[int, int]] = {}
        for launcher, partition, size, processors in self.rows(
            "SELECT id, `partition`, size, processors FROM launcher WHERE ended_at IS NULL"
        ):
            ids = unfold(processors)
            assert len(ids) == size and not set(ids) & set(claimed)
            claimed.update(dict.fromkeys(ids, (partition, launcher)))
        assert {one: at for one, at in held.items() if at[1] is not None} == claimed

    @invariant()
    def partitions_keep_their_books(self) -> None:
        live = self.rows("SELECT id, size, processors, max_in_use, batch_job FROM `partition` WHERE ended_at IS NULL")
        members: dict[int, list[int]] = {}
        for one, partition in self.rows(
            "SELECT id, `partition` FROM processor WHERE `partition` IS NOT NULL ORDER BY id"
        ):
            members.setdefault(partition, []).append(one)
        assert {row[0]: sorted(unfold(row[2])) for row in live} == members
        for partition, size, _, max_in_use, _ in live:
            assert max_in_use == self.most.get(partition, 0) <= size

    @invariant()
    def waiting_is_a_line(self) -> None:
        assert [row[0] for row in self.rows("SELECT request_key FROM waiting ORDER BY id")] == self.line

    @invariant()
    def stamps_never_pass_the_counter(self) -> None:
        counter, trimmed = self.rows("SELECT counter, trimmed_to FROM mesh")[0]
        newest = max(
            self.rows(f"SELECT COALESCE(MAX(changed), 0) FROM `{table}`")[0][0]
            for table in ("node", "processor", "partition", "launcher", "waiting", "event")
        )
        assert newest <= counter and trimmed <= counter

    @invariant()
    def a_viewer_that_follows_sees_what_a_new_one_sees(self) -> None:
        self.picture.update(self.viewer)
        anew = Picture()
        anew.update(self.viewer)
        assert {**vars(self.picture), "now": 0} == {**vars(anew), "now": 0}

    @invariant()
    def a_kept_picture_is_right(self) -> None:
        cpa = self.cpas[0]
        cpa.refresh(self.store)
        free = self.rows(
            "SELECT p.id FROM processor p JOIN node n ON n.id = p.node WHERE n.state = 'up'"
            " AND p.launcher IS NULL AND p.`partition` IS NULL AND p.alloc_mode = 'interactive' ORDER BY p.id"
        )
        assert cpa.free("ada") == [row[0] for row in free]


SETTINGS = settings(
    max_examples=examples(15),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
#: On a server each step costs ten times as much, and the rules are the same.
FEW = settings(SETTINGS, max_examples=examples(5))


@pytest.mark.storm
def test_books_on_sqlite() -> None:
    directory = tempfile.mkdtemp(prefix="rm-books-")
    try:
        url = f"sqlite://{directory}/mesh.db"
        migrate(url)
        run_state_machine_as_test(type("SqliteBooks", (Books,), {"url": url}), settings=SETTINGS)
    finally:
        shutil.rmtree(directory)


@pytest.mark.storm
def test_books_on_mariadb(sql_database: str) -> None:
    run_state_machine_as_test(type("MariaBooks", (Books,), {"url": sql_database}), settings=FEW)
