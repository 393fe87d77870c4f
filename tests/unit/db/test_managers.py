"""Managers: whose a request is, which processors it may have, what a limit refuses, who passes whom."""

from __future__ import annotations

from typing import Any

import pytest

from db.allocation import waiting_requests
from db.allocation.allocate import consider
from db.allocation.free import Machine
from db.allocation.limits import AtLimit, place_in_line
from db.allocation.managers import Policy, application_of, check_parts, job_of, parse, read_policy
from db.allocation.scheduling import line
from db.allocation.scheduling.line import Line
from db.allocation.types import Choose, Demand
from db.allocation.waiting_requests import PlaceInLine, Wait, Waiter
from db.errors import Invalid, NotEnough
from db.machine import reservations
from db.store.store import Store
from tests.support.stores import LOGIN, define, demand, first, give_back, key, take

URGENT = {"name": "urgent", "users": ["bob"], "priority": 5}
IMAGING = {"name": "imaging", "applications": ["rtm*"], "nodes": ["n0"], "max_processors": 3}


def policy(*tables: dict[str, Any], **limits: int) -> Policy:
    found = read_policy(tables, limits.get("max_processors", 0), limits.get("max_jobs", 0))
    assert found is not None
    return found


@pytest.fixture
def machine(store: Store) -> Machine:
    """Four nodes of four processors, all up; n0 is for rtm programs, and bob comes first on the rest."""
    define(store)
    made = Machine()
    made.policy = policy(IMAGING, URGENT, max_jobs=2, max_processors=10)
    return made


def asks(machine: Machine, size: int, user: str = "ada", command: str = "run", pid: int = 1, **more: Any) -> Wait:
    uid = {"ada": 1000, "bob": 1001, "cy": 1002}[user]
    place = place_in_line(machine, user, command)
    return Wait(
        key(), None, uid, user, LOGIN, pid, 1, size, {"command": command}, 600.0, place="connection", cpa="here",
        place_in_line=place, **more,
    )  # fmt: skip


def understand(waiter: Waiter) -> tuple[Demand, Choose]:
    whose = {"uid": waiter.uid, "user": waiter.user, "pid": waiter.pid, "pid_started": waiter.pid_started}
    command = waiter.request["command"]
    return demand(waiter.size, request_key=waiter.request_key, command=command, **whose), first


def grants(served: Line) -> list[tuple[str, int]]:
    return [(one.waiter.user, one.given) for one in served.taken()[0]]


@pytest.fixture
def served(store: Store, machine: Machine) -> Line:
    store.serving = found = Line(machine, understand)
    return found


def test_a_request_has_the_part_of_its_manager_alone(store: Store, machine: Machine) -> None:
    assert set(take(store, machine, 3, command="/opt/rtm3d -x", pid=1).processors) <= {0, 1, 2, 3}
    assert not set(take(store, machine, 8, user="cy", uid=1002, pid=2).processors) & {0, 1, 2, 3}
    with pytest.raises(NotEnough, match="0 are free of those listed") as refused:
        take(store, machine, 1, user="cy", uid=1002, pid=2, wanted=[3])
    assert refused.value.never
    placed, _ = consider(store, machine, demand(4, user="bob", uid=1001), first)
    assert [one.name for one in placed] == ["n3"]


def test_limits_of_a_user_hold_in_the_transaction(store: Store, machine: Machine) -> None:
    imaging = {"command": "rtm", "user": "ada"}
    one = take(store, machine, 2, pid=1, **imaging)
    with pytest.raises(AtLimit, match="ada uses 2 of 3 processors, the limit of manager imaging") as refused:
        take(store, machine, 2, pid=1, **imaging)
    assert not refused.value.never
    with pytest.raises(AtLimit, match="4 processors asked for; the limit of manager imaging is 3") as refused:
        take(store, machine, 4, pid=1, **imaging)
    assert refused.value.never
    take(store, machine, 1, command="yodwork job 12345678 rtm", pid=5)
    with pytest.raises(AtLimit, match="ada runs 2 of 2 jobs, the limit of this mesh"):
        take(store, machine, 1, pid=6)
    give_back(store, one)
    take(store, machine, 1, command="yodwork job 12345678 rtm", pid=7)  # more for a job that runs is no other job
    take(store, machine, 8, pid=6)
    with pytest.raises(AtLimit, match="10 of 10 processors, the limit of this mesh"):
        take(store, machine, 1, pid=6)
    take(store, machine, 2, user="cy", uid=1002, pid=8)


def test_overcommit_takes_what_the_limit_leaves(store: Store, machine: Machine, served: Line) -> None:
    one = take(store, machine, 1, command="rtm", pid=1)
    two = take(store, machine, 4, command="rtm", pid=1, at_least=1)
    assert len(two.processors) == 2
    with pytest.raises(AtLimit, match="3 of 3 processors"):
        take(store, machine, 4, command="rtm", pid=1, at_least=1)
    give_back(store, one)
    assert len(take(store, machine, 4, command="rtm", pid=1, at_least=1).processors) == 1


def test_whoever_is_at_a_limit_is_passed_and_keeps_the_place(store: Store, machine: Machine, served: Line) -> None:
    ada = take(store, machine, 9, pid=1)
    line.ask(store, asks(machine, 2, "ada", pid=1))  # would be 11 of 10
    line.ask(store, asks(machine, 3, "cy", pid=2))
    assert grants(served) == [("cy", 3)]
    with pytest.raises(NotEnough, match="0 are free"):
        take(store, machine, 1, user="bob", uid=1001)  # not "others wait": nobody waits whom it would overtake
    give_back(store, ada)
    assert grants(served) == [("ada", 2)]


@pytest.mark.parametrize("limited", (False, True))
def test_processors_reserved_for_a_user_are_outside_the_line_of_the_others(
    store: Store, machine: Machine, served: Line, limited: bool
) -> None:
    """They serve their user, however many wait in front; the user's own requests keep their order."""
    machine.policy = policy(URGENT) if limited else None
    reservations.reserve(store, [0, 1, 2, 3], "cy")
    cy = {"user": "cy", "uid": 1002}
    take(store, machine, 12, user="bob", uid=1001)
    line.ask(store, asks(machine, 5, "ada"))
    line.ask(store, asks(machine, 6, "ada"))
    one, two = take(store, machine, 1, pid=2, **cy), take(store, machine, 2, pid=2, **cy)
    assert set(one.processors) | set(two.processors) <= {0, 1, 2, 3}
    with pytest.raises(NotEnough, match="1 is free") as refused:
        take(store, machine, 2, pid=2, **cy)
    assert not refused.value.never and grants(served) == []
    line.ask(store, asks(machine, 2, "cy", pid=3))  # one is free
    line.ask(store, asks(machine, 1, "cy", pid=3))
    assert grants(served) == [], "the second one stays behind the first one of the same user"
    with pytest.raises(NotEnough, match="4 requests that came before"):
        take(store, machine, 1, pid=2, **cy)
    give_back(store, one)
    assert grants(served) == [("cy", 2)]
    give_back(store, two)
    assert grants(served) == [("cy", 1)]
    line.ask(store, asks(machine, 3, "cy", pid=3, partial=True))
    assert grants(served) == [("cy", 1)], "a part, as far as the reserved ones go"


def test_of_several_users_with_reserved_processors_all_who_wait_are_served(
    store: Store, machine: Machine, served: Line
) -> None:
    """Also beside a user who has some and does not wait."""
    machine.policy = None
    for number, user in enumerate(("eve", "cy", "ada")):
        reservations.reserve(store, [number], user)
    held = [take(store, machine, 1, user=user, uid=uid, pid=2) for user, uid in (("cy", 1002), ("ada", 1000))]
    rest = take(store, machine, 13, user="bob", uid=1001)
    for user in ("bob", "ada", "cy"):
        line.ask(store, asks(machine, 2 if user == "bob" else 1, user, pid=3))
    assert grants(served) == []
    for one in held:
        give_back(store, one)
    assert grants(served) == [("cy", 1), ("ada", 1)]
    give_back(store, rest)
    assert grants(served) == [("bob", 2)]


def test_who_reaches_a_limit_by_another_launch_is_passed_at_once(store: Store, machine: Machine, served: Line) -> None:
    take(store, machine, 6, user="bob", uid=1001, pid=3)
    line.ask(store, asks(machine, 8, "ada", pid=1))  # 6 are free
    line.ask(store, asks(machine, 2, "cy", pid=2))
    assert grants(served) == []
    take(store, machine, 3, command="rtm", pid=1)  # with what waits, ada would have 11 of 10
    assert grants(served) == [("cy", 2)]


def test_who_reaches_a_limit_in_another_line_is_passed_at_once(store: Store, machine: Machine, served: Line) -> None:
    take(store, machine, 2, user="cy", uid=1002, command="rtm", pid=2)
    bob = take(store, machine, 6, user="bob", uid=1001, pid=3)
    line.ask(store, asks(machine, 3, "ada", "rtm", pid=1))  # 2 are free
    line.ask(store, asks(machine, 1, "cy", "rtm", pid=2))
    line.ask(store, asks(machine, 8, "ada", pid=1))
    assert grants(served) == []
    give_back(store, bob)
    assert grants(served) == [("ada", 8), ("cy", 1)]


def test_partial_requests_get_as_much_as_the_limit_leaves(store: Store, machine: Machine, served: Line) -> None:
    line.ask(store, asks(machine, 12, "cy", pid=2, partial=True))
    [grant] = served.taken()[0]
    assert (grant.given, grant.missing) == (10, 2) and grant.allocation is not None
    line.ask(store, asks(machine, 2, "ada"))
    assert grants(served) == [("ada", 2)]
    give_back(store, grant.allocation)
    assert grants(served) == [("cy", 2)]


def test_a_higher_priority_stands_in_front_and_parts_have_lines_of_their_own(
    store: Store, machine: Machine, served: Line
) -> None:
    cy, ada = take(store, machine, 10, user="cy", uid=1002, pid=1), take(store, machine, 2, pid=2)
    _, before, _ = line.ask(store, asks(machine, 4, "ada", pid=2))
    _, first_of_all, _ = line.ask(store, asks(machine, 10, "bob", pid=3))
    line.ask(store, asks(machine, 2, "ada", "rtm", pid=2))
    assert (before, first_of_all, grants(served)) == (0, 0, [("ada", 2)])
    give_back(store, cy)
    assert grants(served) == [("bob", 10)]
    give_back(store, ada)
    assert grants(served) == []  # two are free
    with pytest.raises(NotEnough) as refused:
        take(store, machine, 1, user="cy", uid=1002, pid=4)
    assert refused.value.waiting == 1


def test_what_waits_moves_to_the_lines_of_other_managers(store: Store, machine: Machine, served: Line) -> None:
    take(store, machine, 3, command="rtm", pid=2)
    line.ask(store, asks(machine, 3, "ada", "rtm", pid=2))
    assert grants(served) == []  # of four on n0 one is left, and three is the limit
    machine.policy = policy({"name": "new", "users": ["ada"], "nodes": ["n3"], "priority": 7})

    def place_of(waiter: Waiter) -> PlaceInLine:
        return place_in_line(machine, waiter.user, waiter.request["command"]) or PlaceInLine()

    assert waiting_requests.classify(store, place_of) == 1
    assert waiting_requests.classify(store, place_of) == 0
    assert grants(served) == [("ada", 3)]  # there is room in its new part


def test_what_is_wrong_is_named() -> None:
    for tables, told in (
        ([{}], "number 1 needs a name"),
        ([URGENT, URGENT], "two managers are called 'urgent'"),
        ([{"name": "a", "usres": ["x"]}], "manager 'a': no key is called 'usres'"),
        ([{"name": "a", "users": "x"}], "users must be a list of names"),
        ([{"name": "a", "users": []}], "users must be a list of names"),
        ([{"name": "a", "priority": True}], "priority must be a whole number"),
        ([{"name": "a", "max_jobs": -1}], "max_jobs must be a whole number"),
        ([{"name": "a", "processors": "3..x"}], "processors must be a list of ids"),
        ([{"name": "a", "processors": 3}], "processors must be a list of ids"),
        ("x", "tables that begin with"),
    ):
        with pytest.raises(Invalid, match=told):
            parse(tables)
    nodes = {"n0": [0, 1], "n1": [2, 3]}
    with pytest.raises(Invalid, match="no node of this mesh has gpu"):
        check_parts(parse([{"name": "a", "nodes": ["gpu*"]}]), nodes)
    with pytest.raises(Invalid, match="managers 'a' and 'b' both have processor 1"):
        check_parts(parse([{"name": "a", "nodes": ["n0"]}, {"name": "b", "processors": "1..2"}]), nodes)
    check_parts(parse([{"name": "a", "nodes": ["n0"]}, {"name": "b", "nodes": ["n0"], "priority": 2}, URGENT]), nodes)
    assert read_policy((), 0, 0) is None


def test_programs_and_jobs_are_known_by_what_they_are_called() -> None:
    assert [application_of(text) for text in ("/opt/rtm -x", "yodwork job 12345678 rtm 3", "/a/yodwork job 1", "")] == [
        "rtm", "rtm", "", "",
    ]  # fmt: skip
    assert job_of("yodwork job 12345678 rtm", 1, 2, 3) == job_of("/x/yodwork job 12345678 rtm", 1, 9, 9)
    assert job_of("rtm", 1, 2, 3) != job_of("rtm", 1, 2, 4)
    assert job_of("rtm", 1, 0, 0) != job_of("rtm", 1, 0, 0), "launches of hidden processes are not one job"
