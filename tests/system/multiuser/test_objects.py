"""State objects in system mode: whose they are on nodes, and who reads whose, by command and over HTTPS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store.store import open_store
from redmesh.state import new_uuid
from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.others import LIBRARIES, python_for_others
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.waiting import wait_until

ADA = USERS["ada"]
ADAS = f"{ADA} 600 {ADA} 700"  # a file of ada's in a directory of ada's


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[SystemMesh]:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    made = SystemMesh(netns_hosts(3, users=("ada", "bob")), sql_server)
    left: list[str] = []
    try:
        made.up("--system")
        yield made
    finally:
        left = made.close()
    assert not left, "left behind:\n" + "\n".join(left)


def test_a_users_objects_are_that_users_alone(mesh: SystemMesh) -> None:
    script = "test $0 -le 4 || while ! test -e /run/gate; do sleep 0.1; done; yodstate set of $(id -u)"
    words = (
        "env",
        f"PYTHONPATH={':'.join(LIBRARIES)}",
        "mesh",
        "submit",
        "--array",
        "1-6",
        "--",
        "sh",
        "-c",
        script,
        "{}",
    )
    uuid = mesh.as_user("ada", *words, check=True).stdout.strip()
    home = mesh.home / "ada" / "state" / "redmesh" / "jobs" / f"{uuid}.job"
    # its standby is a file of ada's on a node, written by a process of ada's uid
    [copy] = wait_until(lambda: found(mesh, f"{uuid}.job.standby"), "its standby is on a node", 40.0)
    assert copy[1] == ADAS and copy[0].endswith(f"/{ADA}/{uuid}.job.standby")
    assert ADA in couriers()
    for text in (uuid, uuid[:8], str(home)):
        refused = mesh.as_user("bob", "mesh", "job", "show", text)
        assert refused.returncode and uuid not in refused.stdout, refused.stdout
    for host in mesh.hosts:
        host.run("touch", "/run/gate", check=True)
    mesh.as_user("ada", "mesh", "wait", uuid, check=True)
    assert not found(mesh, f"{uuid}.job.standby"), "the copy of an ended job is dropped"
    # ada sends it to a node, where only ada's commands read it
    moved = mesh.as_user("ada", "mesh", "job", "move", uuid, "h1")
    assert moved.returncode == 0 and f"job {uuid} is on h1 (move 1" in moved.stdout, moved.stderr
    assert found(mesh, f"{uuid}.job") == [(f"h1/{ADA}/{uuid}.job", ADAS)]
    shown = json.loads(mesh.as_user("ada", "mesh", "job", "show", uuid, "--json", check=True).stdout)
    assert (shown["state"], shown["values"]) == ("done", {"of": str(ADA)})
    assert "6" in mesh.as_user("ada", "mesh", "job", "tasks", uuid, check=True).stdout
    for words in (("show", uuid), ("show", uuid, "--at", "h1"), ("move", uuid, "h2"), ("log", uuid, "--at", "h2")):
        refused = mesh.as_user("bob", "mesh", "job", *words)
        assert refused.returncode and "done" not in refused.stdout, refused.stdout
        assert "Traceback" not in refused.stderr and "no job" in refused.stderr, refused.stderr
    forged = mesh.as_user("bob", "python", "-c", FORGED, str(mesh.run_dir), str(ADA))
    assert "another user" in forged.stdout + forged.stderr and "credential" not in forged.stdout
    # over HTTPS: who shows the object's token, and a process of ada's uid answers
    token = token_on(mesh, f"{mesh.state}-objects/h1/{ADA}/{uuid}.job")
    paths = (
        f"/job/{uuid} {token}",
        f"/job/{uuid} {'x' * 48}",
        f"/job/{uuid} x",
        f"/job/{new_uuid()} {token}",
        f"/ {token}",
    )
    browsed = mesh.as_user("bob", "python", "-c", BROWSER, address_of(mesh, "h1"), str(mesh.run_dir / "ca.pem"), *paths)
    assert browsed.returncode == 0, browsed.stderr
    answers = [line.split() for line in browsed.stdout.splitlines()]
    assert [one[0] for one in answers] == ["200", "403", "403", "403", "403"], answers
    assert str(ADA) in answers[0][1:], "the process that reads the object is ada's"
    # a drain by root sends it on, still ada's
    drained = mesh.run("mesh", "drain", "h1", "--reason", "a new disk", check=True)
    try:
        assert f"the state object of job {uuid} went from h1 to h2" in drained.stderr, drained.stderr
        assert found(mesh, f"{uuid}.job") == [(f"h2/{ADA}/{uuid}.job", ADAS)]
        assert mesh.as_user("ada", "mesh", "job", "show", uuid, check=True).stdout
    finally:
        mesh.run("mesh", "resume", "h1", check=True)
    back = mesh.as_user("ada", "mesh", "job", "move", uuid, login_of(mesh))
    assert back.returncode == 0, back.stderr
    assert home.exists() and not found(mesh, f"{uuid}.job")


#: Asks as a browser does; prints the status, and the uids of the processes that serve connections about objects.
BROWSER = """
import http.client, os, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
context.check_hostname = False  # its certificate names the node, by a URI
for one in sys.argv[3:]:
    path, token = one.split()
    connection = http.client.HTTPSConnection(sys.argv[1], timeout=60, context=context)
    connection.request("GET", path, headers={"Authorization": "Bearer " + token})
    reply = connection.getresponse()
    reply.read()
    uids = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{pid}/comm").read() == "redmesh-object\\n":
                uids.update(*[line.split()[1:] for line in open(f"/proc/{pid}/status") if line.startswith("Uid:")])
        except OSError:
            pass
    print(reply.status, *uids)
    connection.close()
"""
FORGED = """
import glob, sys
from agents.link.client import Client
with Client(glob.glob(sys.argv[1] + "/cpa-*.sock")[0], "admin") as cpa:
    try:
        print(cpa.call({"op": "state_pass", "node": "h1", "uid": int(sys.argv[2])}))
    except Exception as error:
        print(error)
"""


def found(mesh: SystemMesh, name: str) -> list[tuple[str, str]]:
    """Files of that name among the users' objects on all nodes, and "UID MODE" of each and of its directory."""
    script = f"cd {mesh.state}-objects 2>/dev/null && find */* -name {name} | while read -r each; do"
    script += ' echo "$each $(stat -c "%u %a" "$each" "$(dirname "$each")" | tr "\\n" " ")"; done'
    lines = [line for host in mesh.hosts for line in host.run("sh", "-c", script).stdout.splitlines()]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def couriers() -> set[int]:
    """The uids of processes that serve connections about objects; real, effective and saved uid are the same."""
    uids = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "redmesh-object\n":
                status = Path(f"/proc/{pid}/status").read_text()
                [line] = [one for one in status.splitlines() if one.startswith("Uid:")]
                [uid] = set(line.split()[1:])
                uids.add(int(uid))
        except OSError:
            pass
    return uids


def token_on(mesh: SystemMesh, path: str) -> str:
    """The token in an object on a node, as its user may read it."""
    script = (
        f"import sqlite3; print(*sqlite3.connect({path!r}).execute(\"SELECT value FROM meta WHERE key = 'token'\"))"
    )
    told = [
        host.run("python3", "-c", f"import os; os.path.exists({path!r}) and exec({script!r})") for host in mesh.hosts
    ]
    return "".join(one.stdout for one in told).strip("()',\n")


def login_of(mesh: SystemMesh) -> str:
    return (mesh.run_dir / "login").read_text().strip()


def address_of(mesh: SystemMesh, node: str) -> str:
    """HOST:PORT of a node."""
    with open_store(mesh.database) as store:
        [(address,)] = store.read(f"SELECT address FROM node WHERE name = '{node}'")
    return str(address).removeprefix("tls://").partition("/")[0]
