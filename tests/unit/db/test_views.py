"""Viewers: what changed, nothing secret, nothing heavy."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from db.allocation import finish, waiting_requests
from db.allocation.free import Machine
from db.errors import SchemaError
from db.machine.nodes import node_down, node_suspect
from db.machine.nodes_bulk import drain
from db.machine.reservations import reserve, set_mode
from db.schema.migrate import migrate
from db.store.store import Store, open_store
from db.views import history
from db.views.rows import STATES, processor_state
from db.views.viewer import Picture, open_viewer
from tests.support.chance import long
from tests.support.mariadb import Server
from tests.support.stores import LOGIN, define, empty, give_back, key, migrated, take


@pytest.fixture
def viewer(database_url: str, store: Store, machine: Machine):  # type: ignore[no-untyped-def]
    with open_viewer(database_url) as opened:
        yield opened


def test_all_at_first_then_only_what_changed(store: Store, machine: Machine, viewer) -> None:
    whole = viewer.read()
    assert whole.whole and len(whole.nodes) == 5 and len(whole.processors) == 16 and whole.launchers == []
    assert abs(whole.now - time.time()) < 2 and whole.mesh.boot_id == "b1"
    assert viewer.counter() == whole.counter
    nothing = viewer.read(whole.counter)
    assert not nothing.whole and not any((nothing.nodes, nothing.processors, nothing.launchers, nothing.partitions))
    taken = take(store, machine, 3)
    changed = viewer.read(whole.counter)
    assert [row.id for row in changed.processors] == [0, 1, 2] and not changed.nodes
    assert [(row.id, row.state, row.processors) for row in changed.launchers] == [(taken.launcher, "pending", "0..2")]
    assert [row.id for row in changed.partitions] == [taken.partition]
    give_back(store, taken)
    ended = viewer.read(changed.counter)
    assert ended.launchers[0].ended_at is not None and ended.partitions[0].ended_at is not None
    assert viewer.read().launchers == [], "a whole reading has the live alone"
    assert [row.id for row in viewer.history()] == [taken.launcher]
    assert viewer.launcher(taken.launcher).exit_status == 0 and viewer.launcher(99) is None


def test_whole_again_after_a_boot_or_a_trim(store: Store, machine: Machine, viewer) -> None:
    give_back(store, take(store, machine, 1))
    give_back(store, take(store, machine, 1))
    since = viewer.read().counter
    assert viewer.read(1).whole is False
    assert history.trim(store, 0.0, 1) > 0
    assert viewer.read(1).whole is True, "what it has not seen end is gone"
    assert viewer.read(since).whole is False
    define(store, boot_id="b2")
    assert viewer.read(since).whole is True
    assert viewer.read(10**9).whole is True, "a counter of another database"


def test_a_picture_kept_by_changes_is_the_picture_read_anew(store: Store, machine: Machine, viewer) -> None:
    kept = Picture()
    taken = []
    for step in range(12):
        if step % 3 != 2:
            taken.append(take(store, machine, 2))
        else:
            give_back(store, taken.pop(0))
        if step == 5:
            node_suspect(store, "n3", "b1", 1, "late")
        kept.update(viewer)
        anew = Picture()
        anew.update(viewer)
        assert {**vars(kept), "now": 0} == {**vars(anew), "now": 0}


def test_lists_that_the_server_cuts_are_read_otherwise(sql_server: Server, sql_database: str) -> None:
    """No session may forbid it: a list is as long as max_allowed_packet at most, and then ends within a number."""
    with open_store(sql_database) as store:
        empty(store)
        define(store, nodes=100, slots=10)
    picture, machine = Picture(), Machine()
    sql_server.admin("SET GLOBAL max_allowed_packet = 1024")
    try:
        with open_store(sql_database) as store, open_viewer(sql_database) as viewer:
            picture.update(viewer)
            machine.refresh(store)
            taken = take(store, Machine(), 700)
            picture.update(viewer)
            machine.refresh(store)
            assert {one for one, row in picture.processors.items() if row.launcher} == set(taken.processors)
            assert list(machine.free("ada")) == list(range(700, 1000))
    finally:
        sql_server.admin("SET GLOBAL max_allowed_packet = 16777216")


def test_the_words_for_processors(store: Store, machine: Machine, viewer) -> None:
    pending, busy = take(store, machine, 1), take(store, machine, 1)
    finish.started(store, busy.launcher, busy.cookie, busy.processors)
    set_mode(store, [0, 2], "reserved")
    reserve(store, [3], "bob")
    node_suspect(store, "n1", "b1", 1, "late")
    node_down(store, "n2", "b1", 1, "gone")
    drain(store, ["n3"], "disk", "root")
    picture = Picture()
    picture.update(viewer)
    words = [picture.state(number) for number in (0, 1, 2, 3, 4, 8, 12)]
    assert words == ["pending", "busy", "reserved", "reserved", "stale", "down", "drained"]
    assert pending.processors == [0]


def test_every_word_is_one_of_the_list() -> None:
    said = {
        processor_state(node, mode, user, held)
        for node in ("up", "suspect", "down", "draining", "drained")
        for mode in ("interactive", "batch", "reserved")
        for user in (None, "ada")
        for held in (None, "pending", "busy")
    }
    assert said == set(STATES)
    assert processor_state("draining", "interactive", None, "busy") == "busy"


def test_events_waiting_and_resources(store: Store, machine: Machine, viewer) -> None:
    events = viewer.events()
    assert [row.kind for row in events] == ["boot", "node_up", "node_up", "node_up", "node_up"]
    assert [row.id for row in viewer.events(limit=2)] == [row.id for row in events[-2:]]
    assert [row.id for row in viewer.events(after=events[1].id, limit=2)] == [row.id for row in events[2:4]]
    waiting_requests.enqueue(
        store, waiting_requests.Wait(key(), None, 1000, "ada", LOGIN, 1, 1, 99, {"cookie": "hush"}, 60)
    )
    assert [(row.user, row.size) for row in viewer.waiting()] == [("ada", 99)]
    assert "hush" not in str(store.read("SELECT request FROM waiting"))


def test_nothing_secret_is_ever_read(store: Store, machine: Machine, viewer) -> None:
    taken = take(store, machine, 1)
    secrets = [str(value) for row in store.read("SELECT cookie, request_key FROM launcher") for value in row]
    secrets += [str(v) for row in store.read("SELECT admin_cookie, allocation_cookie FROM `partition`") for v in row]
    reading = str(viewer.read()) + str(viewer.launcher(taken.launcher))
    assert len(secrets) == 4 and not any(secret in reading for secret in secrets)


def test_a_viewer_cannot_write(tmp_path: Path) -> None:
    """On MariaDB its account sees to it (test_db_schema)."""
    viewer = open_viewer(migrated(tmp_path))
    viewer.read()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        viewer._execute("UPDATE mesh SET counter = 99")
    viewer.close()


@pytest.mark.storm
def test_reading_beside_a_busy_writer(database_url: str, store: Store, machine: Machine, viewer) -> None:
    """Every reading is of one instant: a launcher never without its processors."""
    stop = threading.Event()
    done = 0

    def write() -> None:
        nonlocal done
        with open_store(database_url) as mine:
            picture = Machine()
            while not stop.is_set():
                give_back(mine, take(mine, picture, 5))
                done += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        picture = Picture()
        readings, enough = 0, long(40, 1000)
        while done < enough // 8 or readings <= enough:
            picture.update(viewer)
            held = [row.id for row in picture.processors.values() if row.launcher is not None]
            assert len(held) == sum(row.size for row in picture.launchers.values())
            assert all(picture.processors[one].launcher in picture.launchers for one in held)
            readings += 1
    finally:
        stop.set()
        thread.join()


def test_a_database_made_anew_is_noticed(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/mesh.db"
    for boot in ("b1", "b2"):
        migrate(url)
        with open_store(url) as store:
            define(store, boot_id=boot)
        if boot == "b1":
            viewer = open_viewer(url)
        assert viewer.read().mesh.boot_id == boot
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
    with pytest.raises(SchemaError):
        viewer.read()


def test_a_path_with_odd_characters(tmp_path: Path) -> None:
    directory = tmp_path / "a b?c#d%e"
    migrate(f"sqlite://{directory}/mesh.db")
    with open_store(f"sqlite://{directory}/mesh.db") as store:
        define(store)
    assert len(open_viewer(f"sqlite://{directory}/mesh.db").read().processors) == 16


def test_viewers_are_light(tmp_path: Path) -> None:
    """No peewee, no MySQL driver, and nothing that is slow to import."""
    migrated(tmp_path)
    code = (
        f"import sys; from db.views.viewer import open_viewer; open_viewer('sqlite://{tmp_path}/mesh.db').read();"
        "print(*sorted({'peewee', 'pymysql', 'typing', 'dataclasses', 'logging', 're', 'asyncio', 'json',"
        " 'urllib.parse', 'enum'} & set(sys.modules)))"
    )
    ours = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-P", "-S", "-c", code], env=ours, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")
