"""State objects in system mode: whose they are on nodes, and who reads whose, by command and over HTTPS."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from db.store.store import open_store
from redmesh.state import new_uuid
from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.mesh import while_up
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
    with while_up(made):
        yield made


def test_a_users_objects_are_that_users_alone(mesh: SystemMesh) -> None:
    script = mesh.home / "step.sh"  # only the login processor has it
    script.write_text("test $1 -le 4 || while ! test -e /run/gate; do sleep 0.1; done; yodstate set of $(id -u)\n")
    script.chmod(0o644)
    libraries = f"PYTHONPATH={':'.join(LIBRARIES)}"
    words = ("env", libraries, "mesh", "submit", "--array", "1-6", "--file", str(script), "--", "sh", "step.sh", "{}")
    uuid = mesh.as_user("ada", *words, check=True).stdout.strip()
    home = mesh.home / "ada" / "state" / "redmesh" / "jobs" / f"{uuid}.job"
    # its standby is a file of ada's on a node, written by a process of ada's uid
    [copy] = wait_until(lambda: found(mesh, f"{uuid}.job.standby"), "its standby is on a node")
    assert copy[1] == ADAS and copy[0].endswith(f"/{ADA}/{uuid}.job.standby")
    assert ADA in couriers(mesh)
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
        assert "Traceback" not in refused.stderr and ("no job" in refused.stderr or "is ada's" in refused.stderr), (
            refused.stderr
        )
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


def couriers(mesh: SystemMesh) -> set[int]:
    """The uids of processes that serve connections about objects; real, effective and saved uid are the same."""
    uids = set()
    for pid in (pid for host in mesh.hosts for pid in mesh.pids_on(host, "redmesh-object")):
        with suppress(OSError):  # it has ended meanwhile
            status = Path(f"/proc/{pid}/status").read_text()
            [line] = [one for one in status.splitlines() if one.startswith("Uid:")]
            [uid] = set(line.split()[1:])
            uids.add(int(uid))
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


#: What a hostile user does with passes that are his own: NAME RESULT for each attempt.
HOSTILE = """
import glob, json, os, sys
from agents.link import trust
from agents.link.client import Client
from agents.objects.connection import connect
from agents.objects.answers import Question
from agents.wire.errors import AgentError
from agents.wire.frames import FILE, frame
from redmesh.state import StateObject, encode_commit, new_uuid
mesh, run, adas, one, other = sys.argv[1:]
trust.use_run(mesh, run)
with Client(glob.glob(run + "/cpa-*.sock")[0], "admin") as cpa:
    told = cpa.call({"op": "state_pass", "node": one[-2:], "uid": os.getuid()})
good = {key: told[key] for key in ("credential", "mac")}

def attempt(name, call):
    try:
        told = call()
        print(name, "|", {key: told[key] for key in told if key != "re"} if isinstance(told, dict) else told)
    except (AgentError, OSError) as error:
        print(name, "| refused:", getattr(error, "message", error))

def tell(message, data=b"", passed=good):
    with connect(one, 20.0, passed) as client:
        if data:
            client.send(frame(FILE, data))
        return client.call(message, 60.0)

def held(address, passed):
    with connect(address, 20.0, passed) as client:
        return client.call({"op": "held"})

attempt("other node", lambda: held(other, good))
text = good["credential"]
for name, forged in (("other uid", text.replace(str(os.getuid()), str(os.getuid() - 1))), ("cut", text[:-2]),
                     ("empty", " "), ("huge", text + " " * 60000), ("nested", "[" * 5000)):
    attempt(name, lambda: held(one, {**good, "credential": forged}))
for name in (adas, "../21001/" + adas, "/etc/passwd", "", "x" * 60000):
    for op, more in (("move", {"node": "h9", "address": other}), ("give", {"receiver": "me"}), ("purge", {}),
                     ("drop", {}), ("take", {"counter": 99, "uid": 21001}), ("promote", {"counter": 99})):
        attempt(f"{op} {name[:12]}", lambda: tell({"op": op, "uuid": name, **more}))
    attempt(f"ask {name[:12]}", lambda: tell({"op": "ask", "uuid": name, "what": ""})["status"])
attempt("held", lambda: tell({"op": "held"})["jobs"])
attempt("offer", lambda: tell({"op": "offer", "uuid": new_uuid(), "counter": 1, "size": 1 << 40, "sender": "x"}))
mine = new_uuid()
job = StateObject.create(os.path.join(os.environ["HOME"], mine), {"uuid": mine})
job.close()
content = open(os.path.join(os.environ["HOME"], mine), "rb").read()
import hashlib
with connect(one, 20.0, good) as client:
    client.call({"op": "copy", "uuid": mine, "counter": 1, "size": len(content), "sender": "x"})
    client.send(frame(FILE, content))
    client.call({"op": "copied", "uuid": mine, "counter": 1, "digest": hashlib.sha256(content).hexdigest()})
    for statement in ("ATTACH '/tmp/x' AS x", "PRAGMA journal_mode = off", "SELECT load_extension('/tmp/x.so')",
                      "INSERT INTO value VALUES ('k', zeroblob(2000000000), 0, '', 0)", "VACUUM INTO '/tmp/x'"):
        data = encode_commit(1, [(statement, [[]])])
        client.send(frame(FILE, data))
        told = {"op": "commits", "uuid": mine, "size": len(data)}
        attempt("commit " + statement[:6], lambda: client.call(told, 60.0))
    attempt("drop", lambda: client.call({"op": "drop", "uuid": mine}))
"""
#: What he does with the files of his own directory on a node, in a process that runs there.
FILES = """
import json, os, sys
home, adas, address, fifo, odd, newer, large = sys.argv[1:]
os.setgid(21002)
os.setuid(21002)
os.chdir(home)
os.mkfifo(fifo + ".job")
os.mkfifo(odd + ".place")
os.symlink("/etc/passwd", odd + ".job")
open(newer + ".place", "w").write('{"state": "live", "counter": {}, "at": []}')
with open(newer + ".job", "wb") as file:
    file.write(b"SQLite format 3\\0" + bytes(range(84)) * 40)
open(large + ".place", "w").write("[" * 100000)
open(adas + ".job.sent", "w").write("x")
told = {"state": "doubt", "counter": 99, "other": "h2", "address": address, "at": 1.0}
open(adas + ".place", "w").write(json.dumps(told))
for number in range(3000):
    open(f"junk-{number}", "w").close()
"""
#: Holds connections until its input ends; prints how many were let in.
CROWD = """
import glob, os, sys
from agents.link import trust
from agents.link.client import Client
from agents.objects.connection import connect
from agents.wire.errors import AgentError
mesh, run, address = sys.argv[1:]
trust.use_run(mesh, run)
with Client(glob.glob(run + "/cpa-*.sock")[0], "admin") as cpa:
    told = cpa.call({"op": "state_pass", "node": address[-2:], "uid": os.getuid()})
held = []
for _ in range(40):
    try:
        held.append(connect(address, 20.0, {key: told[key] for key in ("credential", "mac")}))
        held[-1].call({"op": "held"})
    except (AgentError, OSError):
        held.pop() if held else None
print(len(held), flush=True)
sys.stdin.read()
"""


def test_a_hostile_user_reaches_nobody_elses_objects_and_holds_up_nobody(mesh: SystemMesh) -> None:
    libraries = f"PYTHONPATH={':'.join(LIBRARIES)}"
    submitted = mesh.as_user("ada", "env", libraries, "mesh", "submit", "--wait", "--quiet", "--", "true", check=True)
    uuid = submitted.stdout.strip()
    for node in ("h2", "h3"):
        mesh.as_user("ada", "mesh", "job", "move", uuid, node, check=True)
    name = json.loads((mesh.state / "keeper.json").read_text())["mesh"]
    addresses = {node: f"tls://{address_of(mesh, node)}/{node}" for node in ("h1", "h2", "h3")}
    told = mesh.as_user("bob", "python", "-c", HOSTILE, name, str(mesh.run_dir), uuid, addresses["h1"], addresses["h2"])
    assert told.returncode == 0, told.stderr
    results = [line.partition(" | ") for line in told.stdout.splitlines()]
    harmless = {
        "take": "{'taken': False}", "drop": "{}", "ask": "404", "held": "[]", "promote": "{'live': False}",
    }  # fmt: skip
    for what, _, result in results:
        assert result.startswith("refused: ") or result == harmless.get(what.split()[0]), (what, result)
    assert len(results) > 40
    # his own files on a node: whatever they are, an answer comes, and nothing of ada's changes
    home = f"{mesh.state}-objects/h1/{USERS['bob']}"
    names = [new_uuid() for _ in range(4)]
    mesh.hosts[0].run("python3", "-c", FILES, home, uuid, addresses["h2"], *names, check=True)
    for one in names:
        asked = mesh.as_user("bob", "mesh", "job", "show", one, "--at", "h1")
        assert asked.returncode and "Traceback" not in asked.stderr, asked.stderr
    wait_until(lambda: "object" in mesh.node_log(mesh.hosts[0]), "its objects were looked at")
    moved = mesh.as_user("ada", "mesh", "job", "move", uuid, "h2")
    assert moved.returncode == 0 and "is on h2 (move 3" in moved.stdout, moved.stderr
    # as many connections as he may have, and ada's are served
    crowd = mesh.start_as(
        "bob", "python", "-c", CROWD, name, str(mesh.run_dir), addresses["h2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert crowd.stdout is not None and crowd.stdin is not None
    assert 1 <= int(crowd.stdout.readline()) <= 12
    assert USERS["bob"] in couriers(mesh)
    assert mesh.as_user("ada", "mesh", "job", "show", uuid, check=True).stdout
    crowd.stdin.close()
    assert crowd.wait() == 0
    wait_until(lambda: USERS["bob"] not in couriers(mesh), "his processes have ended")
    mesh.as_user("ada", "mesh", "job", "move", uuid, login_of(mesh), check=True)
