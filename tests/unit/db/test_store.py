"""Transactions: whole, retried from outside, never twice, and refused in plain words."""

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from db.allocation import finish
from db.errors import BadUrl, DatabaseUnavailable, Expired, Invalid, SchemaError, StoreError
from db.schema.migrate import migrate, version
from db.store import drivers
from db.store import store as connection
from db.store.orm import pw
from db.store.sqlite_lock import WriterLock
from db.store.store import Store, Transaction, open_store
from db.store.url import driver_options, mysql_options, sqlite_path, without_password
from db.views.viewer import open_viewer
from tests.support.mariadb import Server
from tests.support.stores import define
from tests.support.waiting import PATIENCE_S


def note(text: str):
    return lambda t: t.event("note", text)


def notes(store: Store) -> list[str]:
    return [row[0] for row in store.read("SELECT text FROM event ORDER BY id")]


def test_counter_goes_up_by_one_and_rows_are_stamped_with_it(store: Store) -> None:
    store.run(note("a"))
    store.run(note("b"))
    assert store.read("SELECT counter FROM mesh")[0][0] == 2
    assert [row[0] for row in store.read("SELECT changed FROM event ORDER BY id")] == [1, 2]


def test_reading_alone_moves_nothing(store: Store) -> None:
    assert store.run(lambda t: t.counter) == 0
    assert store.run(lambda t: t.counter) == 0


def test_an_exception_rolls_everything_back(store: Store) -> None:
    def work(t: Transaction) -> None:
        t.event("note", "never")
        raise KeyError("x")

    with pytest.raises(KeyError):
        store.run(work)
    assert notes(store) == []
    store.run(note("after"))
    assert notes(store) == ["after"]


def test_percent_and_quotes_pass_unharmed(store: Store) -> None:
    text = "100% 'quoted' \"twice\" \\ ? %s ünï \U0001f980"
    store.run(note(text))
    assert notes(store) == [text]


def test_the_databases_clock_is_utc_now(store: Store) -> None:
    assert abs(store.run(lambda t: t.now) - time.time()) < 2.0


def test_a_wrong_statement_is_our_fault_and_no_traceback(store: Store) -> None:
    with pytest.raises(StoreError) as caught:
        store.run(lambda t: t.rows("SELECT nothing FROM nowhere"))
    assert caught.value.code == "internal" and "refused" in caught.value.message


@pytest.mark.parametrize("value", [10**30, -(10**30), "\udc80"])
def test_values_no_database_holds_are_the_requests_fault(store: Store, value: object) -> None:
    with pytest.raises((Invalid, Expired)):  # MariaDB compares numbers of any size, and finds nothing
        finish.finish(store, value, "0" * 16, 0)  # type: ignore[arg-type]
    assert store.run(lambda t: t.counter) == 0


def test_writers_wait_for_each_other(database_url: str) -> None:
    """Two threads with stores of their own add up; nothing is lost."""

    def add(times: int) -> None:
        with open_store(database_url) as mine:
            for _ in range(times):
                mine.run(lambda t: t.event("note", str(t.rows("SELECT COUNT(*) FROM event")[0][0])))

    threads = [threading.Thread(target=add, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_store(database_url) as store:
        assert notes(store) == [str(number) for number in range(100)]


def test_a_held_database_is_given_up(database_url: str) -> None:
    holder, waiter = open_store(database_url), open_store(database_url)
    begun = threading.Event()
    release = threading.Event()

    def hold(t: Transaction) -> None:
        begun.set()
        release.wait(PATIENCE_S)

    def holding() -> None:
        with holder:
            holder.run(hold)

    thread = threading.Thread(target=holding)
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)
        with pytest.raises(DatabaseUnavailable):
            waiter.run(note("x"))
    finally:
        release.set()
        thread.join()
    waiter.run(note("now"))
    assert notes(waiter) == ["now"]
    waiter.close()


def test_a_deadlock_runs_the_whole_transaction_again(sql_database: str) -> None:
    """The server picks a victim (1213); its function runs again from its beginning, and both changes stand.

    Each holds the row that the other asks for next: whoever asks last closes the circle, so nobody waits for the other.
    """
    with open_store(sql_database) as setup:
        setup.connect()
        setup.execute("DELETE FROM node_resource")
        setup.execute("INSERT INTO node_resource VALUES (1, 'a', 9, 0, 0), (2, 'b', 9, 0, 0)")
    ours = open_store(sql_database)
    other = open_store(sql_database)
    other.connect()
    other.execute("BEGIN")
    other.execute("UPDATE node_resource SET in_use = in_use + 5 WHERE node = 2")  # makes it the dearer victim
    other.execute("INSERT INTO event (at, kind, text, changed) VALUES (0, 'x', 'x', 0), (0, 'x', 'x', 0)")
    runs = 0
    first_done = threading.Event()

    def work(t: Transaction) -> None:
        nonlocal runs
        runs += 1
        t.change("UPDATE node_resource SET in_use = in_use + 1 WHERE node = 1")
        first_done.set()
        t.change("UPDATE node_resource SET in_use = in_use + 1 WHERE node = 2")

    thread = threading.Thread(target=lambda: (ours.run(work), ours.close()))
    thread.start()
    assert first_done.wait(PATIENCE_S)
    other.execute("UPDATE node_resource SET in_use = in_use + 5 WHERE node = 1")
    other.execute("COMMIT")
    other.close()
    thread.join()
    with open_store(sql_database) as check:
        assert [row[0] for row in check.read("SELECT in_use FROM node_resource ORDER BY node")] == [6, 6]
    assert runs == 2


def test_a_connection_killed_in_a_transaction_is_not_retried(sql_server: Server, sql_database: str) -> None:
    store = open_store(sql_database)
    runs = 0

    def work(t: Transaction) -> None:
        nonlocal runs
        runs += 1
        number = t.rows("SELECT CONNECTION_ID()")[0][0]
        sql_server.admin(f"KILL {number}")
        t.event("note", "killed")

    with pytest.raises(DatabaseUnavailable):
        store.run(work)
    assert runs == 1
    store.run(note("again"))
    assert "killed" not in notes(store)
    store.close()


def test_a_read_in_a_killed_transaction_does_not_go_on_outside_it(sql_server: Server, sql_database: str) -> None:
    """On a new connection what follows would be written without the lock, statement by statement."""
    with open_store(sql_database) as store:

        def work(t: Transaction) -> None:
            number = t.rows("SELECT CONNECTION_ID()")[0][0]
            sql_server.admin(f"KILL {number}")
            store.read("SELECT topology FROM mesh")
            t.event("note", "outside")

        with pytest.raises(DatabaseUnavailable):
            store.run(work)
        assert "outside" not in notes(store)
        store.run(note("again"))
        assert "again" in notes(store)


def test_an_interrupted_statement_is_no_fault_of_ours(sql_server: Server, sql_database: str) -> None:
    """KILL QUERY, as administrators and their tools do: it may be asked again, and nothing is half done."""
    with open_store(sql_database) as store:

        def work(t: Transaction) -> None:
            t.event("note", "interrupted")
            number = t.rows("SELECT CONNECTION_ID()")[0][0]
            threading.Timer(0.2, lambda: sql_server.admin(f"KILL QUERY {number}")).start()
            t.change("UPDATE mesh SET name = IF(SLEEP(5), name, name)")

        with pytest.raises(DatabaseUnavailable):
            store.run(work)
        assert "interrupted" not in notes(store)


def test_a_boot_id_with_spaces_is_read_whole(store: Store) -> None:
    store.connect()
    store.execute("UPDATE mesh SET boot_id = ' b 1 '")
    seen = store.run(lambda t: (t.boot_id, t.counter))
    assert seen == (" b 1 ", store.read("SELECT counter FROM mesh")[0][0])


def test_an_idle_connection_that_was_killed_is_made_again(sql_server: Server, sql_database: str) -> None:
    store = open_store(sql_database)
    for use in (lambda: store.run(lambda t: t.counter), lambda: store.read("SELECT counter FROM mesh")):
        number = store.read("SELECT CONNECTION_ID()")[0][0]
        sql_server.admin(f"KILL {number}")
        use()
        assert store.read("SELECT CONNECTION_ID()")[0][0] != number
    store.close()


def test_sqlite_files_are_private_from_their_first_byte(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = tmp_path / "new" / "mesh.db"
        migrate(f"sqlite://{path}")
        with open_store(f"sqlite://{path}") as store:
            store.run(note("x"))
            modes = {name: stat.S_IMODE(os.stat(path.parent / name).st_mode) for name in os.listdir(path.parent)}
    finally:
        os.umask(old)
    assert set(modes) >= {"mesh.db", "mesh.db-wal", "mesh.db.lock"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700


def test_the_log_is_moved_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAL_CHECKPOINT_BYTES", 2 << 20)
    url = f"sqlite://{tmp_path}/mesh.db"
    migrate(url)
    moved = 0
    with open_store(url) as store:
        execute = store.execute

        def counted(sql: str, *more: object) -> object:
            nonlocal moved
            moved += "wal_checkpoint" in sql
            return execute(sql, *more)

        monkeypatch.setattr(store, "execute", counted)
        sizes = []
        for _ in range(2000):
            store.run(note("x" * 500))
            sizes.append(os.stat(tmp_path / "mesh.db-wal").st_size)
    # all that was written is ten times as much
    assert max(sizes) < 4 << 20
    grown = sum(later - size for size, later in pairwise(sizes) if later > size)
    assert grown > 3 * max(sizes)
    # not again and again once it has been long, as it keeps its length until it is cut off
    assert 2 <= moved <= grown // (2 << 20) + 1


def test_a_symlink_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "mesh.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        migrate(f"sqlite://{tmp_path}/mesh.db")
    assert not (tmp_path / "elsewhere").exists()


def test_the_writers_lock_says_who(tmp_path: Path) -> None:
    one, two = WriterLock(str(tmp_path / "l")), WriterLock(str(tmp_path / "l"))
    one.acquire(1)
    with pytest.raises(DatabaseUnavailable) as caught:
        two.acquire(0.05)
    assert "fuser" in caught.value.hint
    one.release()
    two.acquire(0.05)
    one.close()
    two.close()


@pytest.mark.parametrize("open_it", [open_store, open_viewer])
def test_no_database_yet(tmp_path: Path, open_it) -> None:
    connection = open_it(f"sqlite://{tmp_path}/none.db")
    with pytest.raises(SchemaError) as caught:
        connection.read("SELECT 1") if isinstance(connection, Store) else connection.read()
    assert "mesh up" in caught.value.hint
    assert not (tmp_path / "none.db").exists()


def test_an_empty_database_and_a_newer_one(database_url: str, store: Store) -> None:
    define(store)
    store.run(lambda t: t.change("UPDATE mesh SET schema_version = 99"))
    for use in (
        lambda: open_store(database_url).run(lambda t: None),
        lambda: open_viewer(database_url).counter(),
        lambda: migrate(database_url),
    ):
        with pytest.raises(SchemaError) as caught:
            use()
        assert "schema 99" in caught.value.message and "newer" in caught.value.message
    store.run(lambda t: t.change("UPDATE mesh SET schema_version = 0"))
    with pytest.raises(SchemaError) as caught:
        open_store(database_url).run(lambda t: None)
    assert "mesh db migrate" in caught.value.hint
    assert version(store) == 0
    migrate(database_url)
    assert open_store(database_url).run(lambda t: t.counter) > 0


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "mesh.db").write_bytes(b"not a database, whatever its name says " * 100)
    for use in (
        lambda: open_store(f"sqlite://{tmp_path}/mesh.db").run(lambda t: None),
        lambda: open_viewer(f"sqlite://{tmp_path}/mesh.db").read(),
        lambda: migrate(f"sqlite://{tmp_path}/mesh.db"),
    ):
        with pytest.raises(StoreError) as caught:
            use()
        assert "not a database" in str(caught.value)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    url = f"mysql://cpa:secret@localhost/redmesh?unix_socket={tmp_path}/none"
    for use in (lambda: open_store(url).run(lambda t: None), lambda: open_viewer(url).read()):
        with pytest.raises(DatabaseUnavailable) as caught:
            use()
        assert "secret" not in caught.value.message + caught.value.hint


def test_no_such_database_on_the_server(sql_server: Server) -> None:
    for use in (lambda u: open_store(u).run(lambda t: None), lambda u: open_viewer(u).read()):
        with pytest.raises(SchemaError) as caught:
            use(sql_server.url("nowhere"))
        assert "mesh db init" in caught.value.hint


def test_an_account_that_has_to_use_tls_on_a_socket(sql_server: Server, sql_database: str) -> None:
    name = str(mysql_options(sql_database)["database"])
    sql_server.admin(
        "CREATE USER encrypted IDENTIFIED BY 'e' REQUIRE SSL",
        f"GRANT ALL ON {name}.* TO encrypted",
    )
    cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    try:
        url = sql_server.url(name, "encrypted", "e")
        with open_store(url) as store:
            assert store.read(cipher)[0][1]
        with open_store(sql_database) as store:
            assert not store.read(cipher)[0][1]
        open_viewer(url).counter()
        for use in (lambda u: open_store(u).run(lambda t: None), lambda u: open_viewer(u).counter()):
            with pytest.raises(StoreError) as caught:
                use(url.replace(":e@", ":wrong@"))
            assert "Access denied" in caught.value.message
    finally:
        sql_server.admin("DROP USER encrypted")


def test_urls_are_read_and_shown_without_password() -> None:
    assert sqlite_path("sqlite:///a/b.db") == "/a/b.db"
    assert sqlite_path("mysql://h/d") is None
    options = mysql_options("mysql://u%40x:p%2Fw@h:33/d?unix_socket=/s")
    assert options == {
        "host": "h", "port": 33, "database": "d", "user": "u@x", "password": "p/w", "unix_socket": "/s",
    }  # fmt: skip
    of_socket = driver_options("mysql://h/d?unix_socket=/s&galera=single-writer")
    assert of_socket == {"host": "h", "port": 3306, "database": "d", "unix_socket": "/s", "ssl_disabled": True}
    assert driver_options("mysql://h/d?unix_socket=/s&ssl_ca=/c")["ssl"] == {"ca": "/c"}
    assert "ssl_disabled" not in driver_options("mysql://h/d"), "TLS if the server has it"
    assert without_password("mysql://u:pw@h/d") == "mysql://u:***@h/d"
    assert without_password("sqlite:///x") == "sqlite:///x"
    for bad in (
        "sqlite:x.db",
        "sqlite://x.db",
        "postgres://h/d",
        "mysql://h",
        "mysql://h:x/d",
        "mysql://h/d?y=1",
        "mysql://u:…@h/d",
        "",
    ):
        with pytest.raises(BadUrl) as caught:
            open_store(bad)
        assert caught.value.exit_status == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB: an empty database has 1."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "small", str(place)]).returncode:
        pytest.skip("nothing can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_told_and_freed_space_is_enough(small_disk: Path) -> None:
    url = f"sqlite://{small_disk}/mesh.db"
    migrate(url)
    with open_store(url) as store:
        define(store)
        store.run(note("before"))
        with open(small_disk / "fill", "wb", buffering=0) as fill, suppress(OSError):
            while fill.write(b"x" * 4096):
                pass
        with pytest.raises(DatabaseUnavailable, match="disk is full"):
            for _ in range(100):
                store.run(note("x" * 4000))
        (small_disk / "fill").unlink()
        store.run(note("after"))
        assert "before" in notes(store) and notes(store)[-1] == "after"


@pytest.mark.parametrize("any_schema", [False, True])
def test_a_database_that_is_away_is_not_made_by_opening_it(tmp_path: Path, any_schema: bool) -> None:
    url, aside = f"sqlite://{tmp_path}/mesh.db", tmp_path / "aside"
    migrate(url)
    with open_store(url, any_schema=any_schema) as store:
        store.connect()
        (tmp_path / "mesh.db").rename(aside)
        store.read("SELECT counter FROM mesh")  # who has it open goes on
    with pytest.raises(SchemaError, match="there is no system database at"), open_store(url) as store:
        store.connect()
    with pytest.raises(SchemaError, match="there is no system database at"):
        migrate(url, make_file=False)
    database, _ = drivers.open_sqlite(url)
    with pytest.raises(pw.OperationalError):  # also when it goes between the look and the opening
        database.connect()
    assert not (tmp_path / "mesh.db").exists()


def test_a_new_connection_drops_no_lock_of_an_older_one(tmp_path: Path) -> None:
    """Closing any descriptor of the file drops the process's locks on it: another process would take the log away."""
    url = f"sqlite://{tmp_path}/mesh.db"
    migrate(url)
    write = "UPDATE mesh SET name = ? WHERE id = 1"
    with open_store(url, any_schema=True) as first, open_store(url, any_schema=True) as second:
        first.connect()
        first.execute(write, ("one",))
        second.connect()
        look = f"""if True:
            import sqlite3
            connection = sqlite3.connect('{tmp_path}/mesh.db')
            connection.execute('SELECT name FROM mesh').fetchall()
            connection.close()"""
        subprocess.run([sys.executable, "-c", look], check=True)
        assert (tmp_path / "mesh.db-wal").exists(), "another process took the log for nobody's"


def test_a_disk_without_room_for_a_database_is_no_traceback(small_disk: Path) -> None:
    (small_disk / "fill").write_bytes(b"x" * (1000 << 10))
    url = f"sqlite://{small_disk}/mesh.db"
    with pytest.raises(StoreError), open_store(url, any_schema=True) as store:
        version(store)
        migrate(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_database_out_of_reach_is_not_called_missing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    # it drops by itself, so that another user need not reach this Python
    look = f"""if True:
        import os
        import sqlite3
        from db.views.viewer import open_viewer
        os.setresuid(65534, 65534, 65534)
        open_viewer('sqlite://{closed}/mesh.db').read()"""
    got = subprocess.run([sys.executable, "-P", "-c", look], capture_output=True, text=True)
    assert "DatabaseUnavailable" in got.stderr and "Permission denied" in got.stderr
