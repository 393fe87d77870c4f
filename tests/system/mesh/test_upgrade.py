"""``mesh upgrade`` of a mesh of this machine, over the system database of an older program, under a launch."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store.store import Store, open_store
from tests.support.mariadb import Server
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed
from tests.support.waiting import wait_until

#: What schema 3 had not yet.
LATER = (("node", "rca"), ("partition", "login_processor"), ("node", "side_from"), ("node", "drain_at"))


@pytest.fixture(scope="module", params=("sqlite", "mariadb"))
def server(request: pytest.FixtureRequest) -> Server | None:
    """The server of the system databases; None for SQLite."""
    return request.getfixturevalue("sql_server") if request.param == "mariadb" else None


@pytest.fixture(scope="module")
def kept(server: Server | None) -> Iterator[list[PrivateMesh]]:
    """The mesh of `old`, if a test has begun one."""
    meshes: list[PrivateMesh] = []
    yield meshes
    left = [line for one in meshes for line in ended(one, server)]
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture
def old(kept: list[PrivateMesh], server: Server | None) -> Iterator[PrivateMesh]:
    """A mesh of several tests: two nodes with two processors each. A test makes its database older, and upgrades it.

    If it is not whole after a test, the test fails, and the next has a new mesh with a new database.
    """
    try:
        if not kept:
            kept.append(PrivateMesh(4, 2))
            if server:
                use_server(kept[0], server)
            kept[0].up()
        (kept[0].work / "go").unlink(missing_ok=True)
        with borrowed(kept[0]) as mesh:
            yield mesh
    except BaseException:
        ended(kept.pop(), server)
        raise


def use_server(mesh: PrivateMesh, server: Server) -> None:
    """Give a mesh that is not up a database on a server; the CPA has its URL from a file."""
    url = server.new_database()
    (mesh.work / "cpa.url").write_text(f"{url}\n")
    (mesh.work / "cpa.url").chmod(0o600)
    mesh.env |= {"REDMESH_DATABASE": url, "REDMESH_CPA_DATABASE_FILE": str(mesh.work / "cpa.url")}
    mesh.run("mesh", "db", "init", check=True)


def ended(mesh: PrivateMesh, server: Server | None) -> list[str]:
    """Take a mesh down, with its database; return what it left."""
    left = mesh.close()
    if server:
        server.drop_database(mesh.database)
    return left


def launched(mesh: PrivateMesh) -> "subprocess.Popen[str]":
    """A launch on the whole mesh, which waits for ``go``."""
    go: Path = mesh.work / "go"
    waiting = f"echo in; until [ -e {go} ]; do sleep 0.05; done; echo out"
    yod = mesh.start("yod", "-sz", "4", "sh", "-c", waiting, stdout=subprocess.PIPE, text=True)
    assert [yod.stdout.readline() for _ in range(4)] == ["in\n"] * 4
    return yod


def daemons(mesh: PrivateMesh) -> set[int]:
    return {mesh.pid_of(one) for one in ("cpa-0", "rca", "n0", "n1")}


def make_older(store: Store, sides_at: int) -> None:
    """The schema as version 3 of it was, on a machine whose sides changed at that counter."""
    store.connect()
    for table, column in LATER:
        store.execute(f"ALTER TABLE `{table}` DROP COLUMN `{column}`")
    store.execute("DELETE FROM schema_migration WHERE name >= '0004'")
    store.execute("UPDATE mesh SET schema_version = 3")
    store.execute(f"INSERT INTO event (at, kind, text, changed) VALUES (0, 'sides', 'open switches: none', {sides_at})")


def test_a_launch_outlives_an_upgrade_of_its_machine(old: PrivateMesh) -> None:
    yod = launched(old)
    before = daemons(old)
    with open_store(old.database, any_schema=True) as store:
        make_older(store, 2)
    refused = old.run("showmesh")
    assert refused.returncode == 125 and "older than this program's" in refused.stderr
    done = old.run("mesh", "upgrade", check=True)
    assert done.stdout.startswith("mesh upgrade: this machine has this version")
    wait_until(lambda: old.run("mesh", "status").returncode == 0, "every daemon is there again")
    assert daemons(old).isdisjoint(before)
    with open_store(old.database) as store:
        (login,) = store.read("SELECT id FROM node WHERE role = 'login'")[0]
        assert set(store.read("SELECT login_processor FROM `partition`")) == {(login,)}
        assert {row[0] for row in store.read("SELECT side_from FROM node")} == {2}
    assert [one["size"] for one in old.json("showmesh")["launchers"]] == [4]
    assert yod.poll() is None
    (old.work / "go").touch()
    assert yod.wait() == 0 and yod.stdout.read().count("out") == 4
    old.run("yod", "-sz", "4", "true", check=True)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True, scope="module")  # an SQLite file is its owner's
def test_an_upgrade_that_may_not_migrate_ends_nothing(old: PrivateMesh, sql_server: Server) -> None:
    yod = launched(old)
    before = daemons(old)
    name = old.database.split("/")[3].split("?")[0]
    sql_server.admin(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO '{name[-12:]}_c'@localhost IDENTIFIED BY 'c'",
    )
    with open_store(old.database, any_schema=True) as store:
        make_older(store, 2)
    limited = old.database.replace("root@", f"{name[-12:]}_c:c@")
    (old.work / "limited.url").write_text(limited)
    (old.work / "limited.url").chmod(0o600)
    refused = old.run("mesh", "upgrade", env={"REDMESH_CPA_DATABASE_FILE": str(old.work / "limited.url")})
    assert refused.returncode != 0 and "the account needs" in refused.stderr
    assert daemons(old) == before
    old.run("mesh", "db", "migrate", "--url", old.database, check=True)
    old.run("mesh", "upgrade", check=True)
    (old.work / "go").touch()
    assert yod.wait() == 0
