"""Whatever is asked, freed, cancelled and lost: nothing is granted twice, nobody overtakes, nothing is free in vain."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from db.allocation import finish
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.limits import place_in_line
from db.allocation.managers import read_policy
from db.allocation.scheduling import line
from db.allocation.scheduling.line import Line
from db.allocation.types import Choose, Demand
from db.allocation.waiting_requests import Wait, Waiter
from db.errors import NotEnough
from db.machine import reservations
from db.machine.nodes import node_down, node_up
from db.schema.migrate import migrate
from db.store.ranges import unfold
from db.store.store import open_store
from tests.support.chance import examples
from tests.support.stores import LOGIN, define, demand, empty, first, key

NODES, SLOTS = 4, 2
TOTAL = NODES * SLOTS


def understand(waiter: Waiter) -> tuple[Demand, Choose]:
    """Any processors will do."""
    return demand(waiter.size, request_key=waiter.request_key, time_s=waiter.time_s), first


class Lines(RuleBasedStateMachine):
    """Two CPAs over one database, each with a picture of its own; what one frees it grants."""

    url = ""
    passing = False

    def __init__(self) -> None:
        super().__init__()
        self.stores = [open_store(self.url), open_store(self.url)]
        empty(self.stores[0])
        define(self.stores[0], NODES, SLOTS)
        self.machines = [Machine(), Machine()]
        self.lines = [Line(machine, understand, passing=self.passing) for machine in self.machines]
        for store, served in zip(self.stores, self.lines, strict=True):
            store.serving = served
        self.asked: dict[str, int] = {}  # what each request asked for, in order
        self.got: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.held: list[tuple[int, str]] = []  # launchers and their cookies

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    def rows(self, sql: str) -> list[Any]:
        return self.stores[0].read(sql)

    def take_in(self) -> None:
        """What was granted by the last step."""
        for served in self.lines:
            grants, _stuck = served.taken()
            for grant in grants:
                name = grant.waiter.request_key
                if grant.allocation is None:  # so many processors are for batch jobs that it would wait forever
                    assert grant.error is not None
                    self.cancelled.add(name)
                    continue
                self.got[name] += len(grant.allocation.processors)
                assert self.got[name] + grant.missing == self.asked[name] and name not in self.cancelled
                assert grant.waiter.partial or grant.missing == 0
                self.held.append((grant.allocation.launcher, grant.allocation.cookie))
                before = [one for one in self.asked if one != name and self.waits(one)]
                order = list(self.asked)
                if not self.passing:
                    assert all(order.index(one) > order.index(name) for one in before), "somebody was overtaken"

    def waits(self, name: str) -> bool:
        return name not in self.cancelled and self.got[name] < self.asked[name]

    @rule(cpa=st.integers(0, 1), size=st.integers(1, TOTAL), partial=st.booleans(), time_s=st.none() | st.just(60.0))
    def ask(self, cpa: int, size: int, partial: bool, time_s: float | None) -> None:
        wait = Wait(key(), None, 1000, "ada", LOGIN, 1, 1, size, {}, 600.0, partial, "connection", "here", time_s)
        self.asked[wait.request_key], self.got[wait.request_key] = size, 0
        line.ask(self.stores[cpa], wait)
        self.take_in()
        again, _, unconfirmed = line.ask(self.stores[1 - cpa], wait)
        assert (again is not None) == self.waits(wait.request_key), "said twice, it waits once"
        assert len(unconfirmed) == (self.got[wait.request_key] > 0)
        self.take_in()

    @precondition(lambda self: self.held)
    @rule(cpa=st.integers(0, 1), which=st.integers(0, 99), lost=st.booleans())
    def free(self, cpa: int, which: int, lost: bool) -> None:
        launcher, cookie = self.held.pop(which % len(self.held))
        if lost:
            finish.lose(self.stores[cpa], launcher, "gone")
        else:
            finish.finish(self.stores[cpa], launcher, cookie, 0, machine=self.machines[cpa])
        self.take_in()

    @precondition(lambda self: self.asked)
    @rule(cpa=st.integers(0, 1), which=st.integers(0, 99))
    def cancel(self, cpa: int, which: int) -> None:
        name = list(self.asked)[which % len(self.asked)]
        missing, ended = line.cancel(self.stores[cpa], name, 1000)
        assert missing == (self.asked[name] - self.got[name] if self.waits(name) else 0)
        self.cancelled.add(name)
        self.held = [one for one in self.held if one[0] not in ended]
        self.take_in()

    @rule(cpa=st.integers(0, 1), node=st.integers(0, NODES - 1), up=st.booleans())
    def node(self, cpa: int, node: int, up: bool) -> None:
        if up:
            node_up(self.stores[cpa], f"n{node}", "b1", 1, f"/run/x/n{node}.sock", "0.1.0")
        else:
            node_down(self.stores[cpa], f"n{node}", "b1", 1, "gone")
        self.take_in()

    @rule(
        cpa=st.integers(0, 1),
        ids=st.sets(st.integers(0, TOTAL - 1), min_size=1),
        mode=st.sampled_from(["interactive", "batch"]),
    )
    def mode(self, cpa: int, ids: set[int], mode: str) -> None:
        reservations.set_mode(self.stores[cpa], sorted(ids), mode)
        self.take_in()

    @invariant()
    def nothing_twice(self) -> None:
        held = dict(self.rows("SELECT id, launcher FROM processor WHERE launcher IS NOT NULL"))
        claimed: dict[int, int] = {}
        for launcher, processors in self.rows("SELECT id, processors FROM launcher WHERE ended_at IS NULL"):
            ids = unfold(processors)
            assert not set(ids) & set(claimed)
            claimed.update(dict.fromkeys(ids, launcher))
        assert held == claimed and set(claimed.values()) == {launcher for launcher, _ in self.held}

    @invariant()
    def nothing_is_free_in_vain(self) -> None:
        waiting = [name for name in self.asked if self.waits(name)]
        rows = self.rows("SELECT request_key, size, partial FROM waiting ORDER BY id")
        assert [(row[0], row[1]) for row in rows] == [(name, self.asked[name] - self.got[name]) for name in waiting]
        free = self.rows(
            "SELECT COUNT(*) FROM processor p JOIN node n ON n.id = p.node WHERE n.state = 'up'"
            " AND p.launcher IS NULL AND p.`partition` IS NULL AND p.alloc_mode = 'interactive'"
        )[0][0]
        if rows:
            assert free == 0 if rows[0][2] else free < rows[0][1]

    @invariant()
    def pictures_are_right(self) -> None:
        for store, machine in zip(self.stores, self.machines, strict=True):
            machine.refresh(store)
            free = self.rows(
                "SELECT p.id FROM processor p JOIN node n ON n.id = p.node WHERE n.state = 'up'"
                " AND p.launcher IS NULL AND p.`partition` IS NULL AND p.alloc_mode = 'interactive' ORDER BY p.id"
            )
            assert machine.free("ada") == [row[0] for row in free]


SETTINGS = settings(
    max_examples=examples(10),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
#: On a server each step costs several times as much, and the rules are the same.
FEW = settings(SETTINGS, max_examples=examples(4))


@pytest.mark.storm
def test_lines_on_sqlite() -> None:
    directory = tempfile.mkdtemp(prefix="rm-lines-")
    try:
        url = f"sqlite://{directory}/mesh.db"
        migrate(url)
        for passing in (False, True):
            machine = type("SqliteLines", (Lines,), {"url": url, "passing": passing})
            run_state_machine_as_test(machine, settings=SETTINGS)
    finally:
        shutil.rmtree(directory)


@pytest.mark.storm
def test_lines_on_mariadb(sql_database: str) -> None:
    run_state_machine_as_test(type("MariaLines", (Lines,), {"url": sql_database}), settings=FEW)


MANAGERS = (
    {"name": "part", "applications": ["part"], "nodes": ["n0"]},
    {"name": "first", "users": ["bob"], "priority": 1, "max_jobs": 2},
)
MOST = 5  # processors of a user
UIDS = {"ada": 1000, "bob": 1001}


def understand_manager(waiter: Waiter) -> tuple[Demand, Choose]:
    """As ``understand``, with whose it is and what runs."""
    whose = {"uid": waiter.uid, "user": waiter.user, "pid": waiter.pid, "pid_started": waiter.pid_started}
    command = waiter.request["command"]
    return demand(waiter.size, request_key=waiter.request_key, command=command, **whose), first


class Managed(RuleBasedStateMachine):
    """Two CPAs with managers: a part, a priority, limits of a user. Nobody has more than that, nobody waits in vain."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [open_store(self.url), open_store(self.url)]
        empty(self.stores[0])
        define(self.stores[0], NODES, SLOTS)
        policy = read_policy(MANAGERS, MOST, 0)
        assert policy is not None
        self.policy = policy
        self.machines = [Machine(), Machine()]
        for store, machine in zip(self.stores, self.machines, strict=True):
            machine.policy = policy
            store.serving = Line(machine, understand_manager)
        self.held: list[tuple[int, str]] = []
        self.pids = 0

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    def take_in(self) -> None:
        for store in self.stores:
            assert isinstance(store.serving, Line)
            for grant in store.serving.taken()[0]:
                assert grant.allocation is not None and grant.error is None
                self.held.append((grant.allocation.launcher, grant.allocation.cookie))

    @rule(
        cpa=st.integers(0, 1),
        size=st.integers(1, 5),
        user=st.sampled_from(["ada", "bob"]),
        command=st.sampled_from(["run", "part"]),
        partial=st.booleans(),
    )
    def ask(self, cpa: int, size: int, user: str, command: str, partial: bool) -> None:
        size = min(size, SLOTS) if command == "part" else size
        self.pids += 1
        place = place_in_line(self.machines[cpa], user, command)
        wait = Wait(
            key(), None, UIDS[user], user, LOGIN, self.pids, 1, size, {"command": command}, 600.0, partial,
            "connection", "here", None, place,
        )  # fmt: skip
        line.ask(self.stores[cpa], wait)
        self.take_in()

    @precondition(lambda self: self.held)
    @rule(cpa=st.integers(0, 1), which=st.integers(0, 99))
    def free(self, cpa: int, which: int) -> None:
        launcher, cookie = self.held.pop(which % len(self.held))
        finish.finish(self.stores[cpa], launcher, cookie, 0, machine=self.machines[cpa])
        self.take_in()

    @rule(cpa=st.integers(0, 1), size=st.integers(1, 3), user=st.sampled_from(["ada", "bob"]))
    def allocate_now(self, cpa: int, size: int, user: str) -> None:
        self.pids += 1
        asked = demand(size, user=user, uid=UIDS[user], command="run", pid=self.pids, pid_started=1)
        waits = {row[0] for row in self.open_requests()}
        try:
            got = allocate(self.stores[cpa], self.machines[cpa], asked, first)
        except NotEnough:
            return
        finally:
            self.take_in()
        assert "rest" not in waits or user == "bob", "somebody was overtaken"
        self.held.append((got.launcher, got.cookie))

    def live(self) -> list[Any]:
        return self.stores[0].read(
            "SELECT user, command, processors, pid FROM launcher WHERE ended_at IS NULL ORDER BY id"
        )

    def open_requests(self) -> list[tuple[str, int, bool]]:
        """Part, size and partial of the first request of each part that no limit holds back, written naively."""
        live = self.live()
        used = {user: sum(len(unfold(row[2])) for row in live if row[0] == user) for user in UIDS}
        # part's requests belong to the first manager of the file, also bob's
        jobs = len({row[3] for row in live if row[0] == "bob" and row[1] != "part"})
        found: dict[str, tuple[str, int, bool]] = {}
        full: set[tuple[str, str]] = set()
        rows = self.stores[0].read(
            "SELECT `user`, manager, size, partial, pid FROM waiting"
            " ORDER BY CASE manager WHEN 'first' THEN 0 ELSE 1 END, id"
        )
        for user, manager, size, partial, pid in rows:
            part = "part" if manager == "part" else "rest"
            new = pid not in {row[3] for row in live}
            over = used[user] + (1 if partial else size) > 5 or (manager == "first" and jobs >= 2 and new)
            if over:
                full.add((user, manager))
            elif (user, manager) not in full:
                found.setdefault(part, (part, size, bool(partial)))
        return list(found.values())

    @invariant()
    def limits_and_parts_hold(self) -> None:
        live = self.live()
        for user in UIDS:
            assert sum(len(unfold(row[2])) for row in live if row[0] == user) <= 5
        assert len({row[3] for row in live if row[0] == "bob" and row[1] != "part"}) <= 2
        for _user, command, processors, _pid in live:
            assert {one < SLOTS for one in unfold(processors)} == {command == "part"}

    @invariant()
    def nothing_is_free_in_vain(self) -> None:
        taken = {one for row in self.live() for one in unfold(row[2])}
        free = {"part": SLOTS - len([one for one in taken if one < SLOTS])}
        free["rest"] = TOTAL - len(taken) - free["part"]
        for part, size, partial in self.open_requests():
            assert free[part] < (1 if partial else size), (part, size, partial)


@pytest.mark.storm
def test_managers_on_sqlite() -> None:
    directory = tempfile.mkdtemp(prefix="rm-managers-")
    try:
        url = f"sqlite://{directory}/mesh.db"
        migrate(url)
        run_state_machine_as_test(type("SqliteManaged", (Managed,), {"url": url}), settings=SETTINGS)
    finally:
        shutil.rmtree(directory)


@pytest.mark.storm
def test_managers_on_mariadb(sql_database: str) -> None:
    run_state_machine_as_test(type("MariaManaged", (Managed,), {"url": sql_database}), settings=FEW)
