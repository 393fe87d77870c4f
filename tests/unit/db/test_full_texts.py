"""Arguments and reasons that no viewer reads in system mode: what is stored, who gets it, and what is hidden later."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from agents.cpa.operations import Operations
from agents.cpa.permissions import Rights
from agents.wire.errors import AgentError
from db.allocation import finish
from db.allocation.free import Machine
from db.allocation.full_texts import AT_ONCE, MOST_LAUNCHERS, FullTexts, hide_stored, program_alone, read
from db.allocation.managers import application_of, worker_of
from db.machine.nodes import define_machine
from db.schema.accounts import Account
from db.schema.grants import grants, run_grants
from db.schema.migrate import create_database, migrate
from db.store.store import Store, open_store
from db.store.url import WHOLE
from db.views.viewer import open_viewer
from tests.support import two_sides
from tests.support.mariadb import Server
from tests.support.stores import define, give_back, insert, take
from tests.support.two_sides import LEFT, LOGIN, LOGINS, RIGHT
from tests.support.viewer_reach import Reach

SECRET = "hunter2"
COMMAND = f"/home/ada/bin/solver -p {SECRET}"
REASON = f"n1: stage-in: /home/ada/{SECRET}: No such file or directory"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (COMMAND, "solver"),
        ("true", "true"),
        ("", ""),
        ("  ./a.out\t-p x", "a.out"),
        ("env TOKEN=x ./a.out", "env"),
        ("yodwork job 12ab34cd sh -c x", "yodwork job 12ab34cd sh"),
        ("/opt/yodwork job 12ab34cd /home/ada/sweep.sh x", "yodwork job 12ab34cd sweep.sh"),
        ("yodwork job 12ab34cd", "yodwork job 12ab34cd"),
        ("yodwork job hunter2 sh -c x", "sh"),
        ("yodwork job", ""),
        ("yodwork -p hunter2 x", "x"),
        ("/tmp/dir/", ""),
        ("é\ue0ff x", "é\ue0ff"),
    ],
)
def test_the_program_alone(command: str, shown: str) -> None:
    """Managers and limits find the same application in it, and the same job."""
    assert program_alone(command) == shown == program_alone(shown)
    assert application_of(shown) == application_of(command)
    assert worker_of(shown) in ("", worker_of(command))


@pytest.fixture
def hiding(store: Store) -> Machine:
    define(store)
    machine = Machine()
    machine.hides_texts = True
    return machine


def stored(store: Store, launcher: int) -> tuple[object, ...]:
    columns = "command, full_command, reason, full_reason"
    row: tuple[object, ...] = store.read(f"SELECT {columns} FROM launcher WHERE id = ?", (launcher,))[0]
    return row


def test_a_personal_mesh_stores_what_it_stored(store: Store) -> None:
    define(store)
    machine = Machine()
    taken = take(store, machine, 1, command=COMMAND)
    give_back(store, taken, 125, reason=REASON, machine=machine)
    assert stored(store, taken.launcher) == (COMMAND, None, REASON, None)
    assert read(store, [taken.launcher], "login1", None) == []


def test_viewers_read_the_program_and_no_reason_of_yods(store: Store, hiding: Machine) -> None:
    taken = take(store, hiding, 1, command=COMMAND)
    assert stored(store, taken.launcher) == ("solver", COMMAND, "", None)
    give_back(store, taken, 125, reason=REASON, machine=hiding)
    assert stored(store, taken.launcher) == ("solver", COMMAND, "", REASON)
    plain = take(store, hiding, 1, command="true")
    finish.lose(store, plain.launcher, "its process exited")
    assert stored(store, plain.launcher) == ("true", None, "its process exited", None)
    with open_viewer(store.url) as viewer:
        told = repr((viewer.read(), viewer.history(), viewer.launcher(taken.launcher), viewer.events()))
    assert SECRET not in told and "'solver'" in told and "its process exited" in told


def test_only_the_user_and_root_get_them(store: Store, hiding: Machine) -> None:
    first, second = (take(store, hiding, 1, command=COMMAND, uid=uid) for uid in (1001, 1002))
    operations = Operations(store, Rights(500, frozenset(("root",)), frozenset()), "default", "login1")

    def given(uid: int, *launchers: object) -> list[object]:
        message = {"op": "full_texts", "login": "login1", "launchers": list(launchers)}
        return [one["launcher"] for one in operations.do("full_texts", uid, message).message["launchers"]]

    both = first.launcher, second.launcher
    assert given(1001, *both) == [first.launcher] and given(1002, *both) == [second.launcher]
    assert given(1003, *both) == [] and given(1001) == [] and given(1001, 99) == []
    assert given(0, *both) == given(500, *both, *both) == list(both)
    for wrong in ([0], [-1], ["1"], [True], [1 << 63], [1.5], [None], [1] * (MOST_LAUNCHERS + 1)):
        with pytest.raises(AgentError) as caught:
            given(0, *wrong)
        assert caught.value.code == "invalid", wrong


def test_a_user_gets_nothing_from_another_side(store: Store) -> None:
    """As viewers do: also nothing of a time when the two were apart."""
    define_machine(store, "m", "b1", LOGIN, two_sides.NODES, two_sides.SECTION)
    two_sides.switch(store, "middle")
    machine = Machine()
    machine.hides_texts = True
    left, right = (two_sides.take(store, machine, login, 1) for login in (LEFT, RIGHT))
    ids = [left.launcher, right.launcher]

    def given(login: str) -> list[int]:
        return [one.launcher for one in read(store, ids, login, 1000)]

    assert given(LEFT) == [left.launcher] and given(RIGHT) == [right.launcher] and given("nobody") == []
    for one in (left, right):
        finish.finish(store, one.launcher, one.cookie, 0, machine=machine)
    two_sides.switch(store)
    assert given(LEFT) == [left.launcher] and given(RIGHT) == [right.launcher]
    hide_stored(store, 0)  # must not make them look as if they had changed since
    together = two_sides.take(store, machine, LEFT, 1)
    ids.append(together.launcher)
    assert given(LEFT) == [left.launcher, together.launcher]
    assert given(RIGHT) == [right.launcher, together.launcher]


def test_what_was_stored_before_is_hidden(store: Store, hiding: Machine) -> None:
    open_to_all = Machine()
    live = take(store, open_to_all, 1, command=COMMAND)
    ended = take(store, open_to_all, 1, command=COMMAND)
    give_back(store, ended, 125, reason=REASON)
    lost = take(store, open_to_all, 1, command="true")
    finish.lose(store, lost.launcher, "its process exited")
    since = take(store, hiding, 1, command=COMMAND)
    before = [stored(store, one.launcher) for one in (lost, since)]
    changed = store.read("SELECT id, changed FROM launcher ORDER BY id")
    for _ in range(2):
        assert hide_stored(store, 0) is None
        assert stored(store, live.launcher) == ("solver", COMMAND, "", None)
        assert stored(store, ended.launcher) == ("solver", COMMAND, "", REASON)
        assert [stored(store, one.launcher) for one in (lost, since)] == before
    assert store.read("SELECT id, changed FROM launcher ORDER BY id") == changed
    assert read(store, [ended.launcher], "login1", 1000) == [FullTexts(ended.launcher, COMMAND, REASON)]


def test_a_launch_that_ends_while_it_is_hidden_keeps_its_reason(
    store: Store, hiding: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = take(store, Machine(), 1, command=COMMAND)
    run = store.run

    def end_first(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(store, "run", run)
        give_back(store, live, 125, reason=REASON, machine=hiding)
        return run(*given, **named)

    monkeypatch.setattr(store, "run", end_first)
    hide_stored(store, 0)
    assert stored(store, live.launcher) == ("solver", COMMAND, "", REASON)


def test_many_are_hidden_in_small_transactions(store: Store, hiding: Machine) -> None:
    columns = ("partition", "login_processor", "pid", "pid_started", "uid", "size", "created_at", "pending_until")
    more = (
        "cookie",
        "user",
        "processors",
        "root",
        "reason",
        "resources",
        "state",
        "abnormal",
        "nice",
        "gives_back",
        "command",
    )
    values = (1, 0, 1, 1, 1000, 1, 0.0, 0.0, "", "ada", "0", "n1", "", "{}", "ended", False, False, False, COMMAND)
    rows = [(one, f"key {one}", *values) for one in range(1, AT_ONCE + 2)]
    store.run(lambda t: insert(t, "launcher", ("id", "request_key", *columns, *more), rows))
    assert hide_stored(store, 0) == AT_ONCE
    assert stored(store, AT_ONCE)[0] == "solver" and stored(store, AT_ONCE + 1)[0] == COMMAND
    assert hide_stored(store, AT_ONCE) is None
    assert stored(store, AT_ONCE + 1)[0] == "solver"


@pytest.fixture
def accounts(sql_server: Server) -> Iterator[tuple[Store, list[str]]]:
    """A machine with a live and an ended launch, and the URLs of its viewers: of the whole, and of a side."""
    admin = sql_server.url("full_texts")
    create_database(admin)
    migrate(admin)
    whole = Account("full_texts_v", "localhost", "v", 10)
    run_grants(admin, grants("full_texts", two_sides.CPA, whole))
    of_side = two_sides.granted(admin, LOGINS)[LOGIN]
    with open_store(admin) as store:
        define_machine(store, "m", "b1", LOGIN, two_sides.NODES)
        for node in two_sides.NODES:
            two_sides.back(store, node.name)
        yield store, [sql_server.url(f"full_texts{WHOLE}", whole.user, "v"), of_side]
    sql_server.admin("DROP DATABASE full_texts")


def test_no_account_of_viewers_reaches_them(accounts: tuple[Store, list[str]]) -> None:
    """By whatever it may call or read: a procedure or a column that is added later is tried too."""
    store, urls = accounts
    machine = Machine()
    machine.hides_texts = True
    live, ended = (two_sides.take(store, machine, LOGIN, 1) for _ in range(2))
    finish.finish(store, ended.launcher, ended.cookie, 125, reason="secret reason", machine=machine)

    def run(words: list[str], given: str) -> str:
        return subprocess.run(words, input=given, capture_output=True, text=True).stdout

    for url in urls:
        reach = Reach(url, run, [live.launcher, ended.launcher])
        assert {"reading", "launcher", "launchers_ended", "waiting", "events_last"} <= reach.procedures
        seen = reach.statements_with(f"user of {LOGIN}")
        assert {words.split("`")[3] for words in seen} == {"reading", "launcher", "launchers_ended"}, url
        assert reach.statements_with("secret of") == reach.statements_with("secret reason") == [], url
