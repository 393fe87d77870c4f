"""``mesh job move`` and reading a job elsewhere, on a mesh whose nodes are reached by TLS alone."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from urllib.request import urlopen

import pytest

from agents.link import trust
from agents.link.client import Client
from agents.wire.errors import AgentError
from redmesh.state import StateObject, new_uuid
from tests.support.far_mesh import FarMesh, TlsMesh
from tests.support.hosts import MakeHosts
from tests.support.mesh import while_up
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def mesh() -> Iterator[TlsMesh]:
    made = TlsMesh(3, 3)
    settings = made.home / "config" / "redmesh"
    settings.mkdir()
    (settings / "mesh.toml").write_text("node_jobs_mb = 8\n")
    with while_up(made):
        yield made


@pytest.fixture
def job(mesh: TlsMesh) -> str:
    """The UUID of a launch that has ended, on the login processor."""
    mesh.run("yod", "-state", "-keep", "-sz", "1", "sh", "-c", "yodstate set answer 42; yodstate log done", check=True)
    return str(mesh.json("mesh", "job", "list")[-1]["uuid"])


def path_on(mesh: TlsMesh, node: str, uuid: str) -> Path:
    """Where a node's object is."""
    return mesh.home / "state" / "redmesh" / "jobs" / node / f"{uuid}.job"


def address_of(mesh: TlsMesh, node: str) -> str:
    """Where a node is reached, as the commands before have kept it."""
    return str(json.loads((mesh.home / "state" / "redmesh" / "jobs" / ".nodes").read_text())[node])


def get(mesh: TlsMesh, node: str, path: str, token: str) -> tuple[int, str | None, bytes]:
    """Status, Location and body of an answer on a node's port."""
    host, _, port = address_of(mesh, node).removeprefix("tls://").partition("/")[0].rpartition(":")
    context = ssl.create_default_context(cafile=str(mesh.home / "state" / "redmesh" / "run" / "ca.pem"))
    context.check_hostname = False  # its certificate names the node, by a URI
    connection = HTTPSConnection(host, int(port), timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        reply = connection.getresponse()
        return reply.status, reply.getheader("Location"), reply.read()
    finally:
        connection.close()


def test_a_job_moves_and_is_found_with_and_without_the_tracker(mesh: TlsMesh, job: str) -> None:
    for number, node in enumerate(("n0", "n1", "n2"), 1):
        moved = mesh.run("mesh", "job", "move", job, node, check=True)
        assert f"is on {node} (move {number}," in moved.stdout
        assert path_on(mesh, node, job).exists()
    again = mesh.run("mesh", "job", "move", job, "n2")
    assert again.returncode == 1 and "is on n2 already" in again.stderr
    # the nodes of this mesh share its machine: without that look the tracker's answer is what is used
    hidden = path_on(mesh, "n2", job)
    shown = json.loads(mesh.run("mesh", "job", "show", job, "--at", "n0", "--json", check=True).stdout)
    assert (shown["values"], shown["counter"], shown["host"]) == ({"answer": "42"}, 3, "n2")
    assert shown["path"] == f"redmesh://n2/{job}" and "token" not in shown
    missing = mesh.run("mesh", "job", "show", job.replace(job[0], "0" if job[0] != "0" else "1", 1), "--at", "n0")
    assert missing.returncode == 125 and "is on n0" in missing.stderr
    # over HTTPS: 301 without the token's being carried along, the object where it is, nothing for who has no token
    token = StateObject(str(hidden))
    try:
        secret = str(token.meta("token"))
    finally:
        token.close()
    status, location, body = get(mesh, "n1", f"/job/{job}/log", secret)
    assert status == 301 and location is not None and secret not in location + body.decode()
    assert get(mesh, "n2", f"/job/{job}/log", secret)[0] == 200
    assert get(mesh, "n2", f"/job/{job}/log", "x" * 48)[0] == 403
    assert get(mesh, "n2", f"/job/{job}?wait=x", secret)[0] == 400
    # a browser of the login processor asks its own machine, which asks the node
    serve = mesh.start("mesh", "job", "serve", job, stdout=subprocess.PIPE, text=True)
    assert serve.stdout is not None
    lines = [serve.stdout.readline(), serve.stdout.readline()]
    try:
        with urlopen(lines[1].replace("/page?", "/log?"), timeout=PATIENCE_S) as reply:
            assert json.load(reply)["log"][0]["text"] == "done"
    finally:
        serve.send_signal(2)
        assert serve.wait() == 0
    copy = mesh.work / "copy.job"
    # back to where its job can be gone on with
    keeper = json.loads((mesh.home / "state" / "redmesh" / "keeper.json").read_text())
    mesh.run("mesh", "job", "move", job, keeper["login"], check=True)
    assert hidden.parents[1].joinpath(hidden.name).exists() and not hidden.exists()
    assert mesh.json("mesh", "job", "show", job)["counter"] == 4
    mesh.run("mesh", "job", "fetch", job, str(copy), check=True)
    assert mesh.run("mesh", "job", "move", job, "n1", check=True).stdout.count("(move 5,")
    mesh.run("mesh", "purge", str(copy), check=True)
    assert mesh.json("mesh", "job", "show", job)["counter"] == 5, "a copy is not what the tracker knows"
    object_there = path_on(mesh, "n1", job)
    aside = object_there.rename(object_there.with_suffix(".aside"))
    gone = mesh.run("mesh", "job", "show", job)
    assert gone.returncode == 125 and f"the object of job {job} is gone: n1 had it last" in gone.stderr
    aside.rename(object_there)
    mesh.run("mesh", "purge", job, check=True)
    purged = mesh.run("mesh", "job", "show", job)
    assert purged.returncode == 125 and f"no job {job} is known here" in purged.stderr, "nobody is sent to n1"
    cpa = str(mesh.run_dir / "cpa-0.sock")
    with Client(cpa, "admin", PATIENCE_S) as client, pytest.raises(AgentError, match="is known here"):
        client.call({"op": "state_locate", "uuid": job})


def test_watch_wakes_when_the_owner_commits(mesh: TlsMesh, job: str) -> None:
    mesh.run("mesh", "job", "move", job, "n0", check=True)
    owner = StateObject(str(path_on(mesh, "n0", job)))
    try:
        owner.set_state("running")
        owner.commit()
        watch = mesh.start("mesh", "job", "watch", job, "--at", "n0", stdout=subprocess.PIPE, text=True)
        assert "running" in watch.stdout.readline()
        owner.progress(0.5)
        owner.commit()
        assert "50%" in watch.stdout.readline()
        owner.finish("done")
        assert "done" in watch.stdout.readline()
        assert watch.wait() == 0
    finally:
        owner.close()


def test_objects_leave_a_node_that_is_drained(mesh: TlsMesh, job: str) -> None:
    mesh.run("mesh", "job", "move", job, "n1", check=True)
    drained = mesh.run("mesh", "drain", "n1", "--reason", "a new disk", check=True)
    try:
        [told] = [line for line in drained.stderr.splitlines() if job in line]
        node = told.rpartition(" ")[2]
        assert told.endswith(f"went from n1 to {node}") and node in ("n0", "n2")
        assert path_on(mesh, node, job).exists() and not path_on(mesh, "n1", job).exists()
        assert mesh.json("mesh", "job", "show", job)["state"] == "done", "the tracker knows where it is"
        everywhere = mesh.run("mesh", "drain", "n0,n2", "--reason", "all of it", check=True)
        assert f"job {job} stays on {node}: no other node of another host is up" in everywhere.stderr
        assert path_on(mesh, node, job).exists()
    finally:
        mesh.run("mesh", "resume", "n[0-2]", check=True)


def test_an_object_that_was_lost_with_its_disk_is_said_to_be_gone(mesh: TlsMesh, job: str) -> None:
    mesh.run("mesh", "job", "move", job, "n2", check=True)
    for path in path_on(mesh, "n2", job).parent.glob(f"{job}*"):
        path.unlink()
    shown = mesh.run("mesh", "job", "show", job)
    assert shown.returncode == 125 and f"the object of job {job} is gone: n2 had it last" in shown.stderr, shown.stderr
    assert "it had no standby" in shown.stderr


def large_job(mesh: TlsMesh, megabytes: int) -> str:
    """The UUID of an ended job of this size, on the login processor."""
    uuid = new_uuid()
    (mesh.state / "jobs").mkdir(mode=0o700, exist_ok=True)
    made = StateObject.create(str(mesh.state / "jobs" / f"{uuid}.job"), {"uuid": uuid, "kind": "job", "command": "[]"})
    made.add_file("package/large", os.urandom(megabytes << 20))
    made.finish("done")
    made.close()
    return uuid


def test_a_node_takes_so_much_of_a_user_and_says_what_to_purge(mesh: TlsMesh, job: str) -> None:
    mesh.run("mesh", "job", "move", job, "n0", check=True)
    large = [large_job(mesh, 5), large_job(mesh, 5)]
    mesh.run("mesh", "job", "move", large[0], "n0", check=True)
    refused = mesh.run("mesh", "job", "move", large[1], "n0")
    assert refused.returncode == 1 and "n0 takes 8 MiB of a user's state objects (node_jobs_mb)" in refused.stderr
    assert f"mesh purge {large[0]} " in refused.stderr and job in refused.stderr, "what is there, the largest first"
    assert json.loads(mesh.run("mesh", "job", "show", large[1], "--json", check=True).stdout)["state"] == "done"
    # as from a login processor that does not see the node's files
    trust.use_login(json.loads((mesh.state / "keeper.json").read_text())["mesh"], str(mesh.state))
    try:
        with Client(address_of(mesh, "n0"), "object", 20.0) as client:
            with pytest.raises(AgentError, match="no job"):
                client.call({"op": "purge", "uuid": large[1]})
            client.call({"op": "purge", "uuid": large[0]})
    finally:
        trust.use(None)
    assert not path_on(mesh, "n0", large[0]).exists()
    mesh.run("mesh", "job", "move", large[1], "n0", check=True)
    mesh.run("mesh", "purge", large[1], check=True)


def test_a_full_disk_refuses_an_object_and_the_sender_goes_on(mesh: TlsMesh) -> None:
    large, there = large_job(mesh, 3), path_on(mesh, "n1", "x").parent
    there.mkdir(exist_ok=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=18m", "small", there]).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        moved = mesh.run("mesh", "job", "move", large, "n1")
        assert moved.returncode == 1 and "the disk for state objects on n1 has 18.0 MiB left" in moved.stderr, moved
        assert not [path for path in there.iterdir() if path.stat().st_size], "nothing of it stays there"
    finally:
        subprocess.run(["umount", "-l", there], check=True)
    mesh.run("mesh", "job", "move", large, "n1", check=True)
    mesh.run("mesh", "purge", large, check=True)


def test_an_object_that_was_moved_to_a_host_outlives_mesh_down(netns_hosts: MakeHosts) -> None:
    with while_up(FarMesh(netns_hosts(1))) as mesh:
        mesh.run("yod", "-state", "-keep", "-sz", "1", "sh", "-c", "yodstate set answer 42", check=True)
        uuid = str(mesh.json("mesh", "job", "list")[-1]["uuid"])
        mesh.run("mesh", "job", "move", uuid, "h1", check=True)
        down = mesh.run("mesh", "down", check=True)
        assert f"h1 keeps the state objects of jobs moved there ({uuid[:8]})" in down.stdout
        (place,) = next(iter(mesh.hosts)).home.glob(".local/state/redmesh/nodes/*-h1")
        assert [path.name for path in place.iterdir()] == ["jobs"]
        mesh.up()
        assert mesh.json("mesh", "job", "show", uuid)["values"] == {"answer": "42"}
        mesh.run("mesh", "job", "purge", uuid, check=True)
        assert json.loads(mesh.run("mesh", "down", "--json", check=True).stdout)["hosts"][0]["kept_jobs"] == []
        assert not place.exists()
