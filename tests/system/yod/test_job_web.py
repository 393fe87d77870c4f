"""mesh job serve: the status of a launch over HTTP on loopback, for those who have the token."""

import json
import socket
import struct
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.linux.processes import threads
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]


def get(url: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers, and the JSON of an answer."""
    request = urllib.request.Request(url, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.status, dict(reply.headers), json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), json.loads(error.read() or b"null")


class Server:
    """``mesh job serve``: its address and token, and the file of its messages."""

    def __init__(self, mesh: PrivateMesh):
        self.messages = Path(tempfile.mkdtemp(dir=mesh.work)) / "stderr"
        with open(self.messages, "w") as stderr:
            self.process = mesh.start("mesh", "job", "serve", stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.address, _, self.token = self.process.stdout.readline().strip().partition("/?token=")

    def is_idle(self) -> bool:
        """Whether no request is being answered: each has a thread, and writes its messages before the thread ends."""
        return len(threads(self.process.pid)) <= 1

    def end(self) -> None:
        """Terminate the server."""
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="module")
def kept(one_mesh: PrivateMesh) -> Iterator[list[Server]]:
    """The server of `served`, if a test has begun one. It says nothing at its end either."""
    servers: list[Server] = []
    yield servers
    for one in servers:
        one.end()
        assert not one.messages.read_text()


@pytest.fixture
def served(yods: PrivateMesh, kept: list[Server]) -> Iterator[tuple[PrivateMesh, str, str]]:
    """The mesh, the address of its server, and the token.

    The server has said nothing after the test and runs, or the test fails, and the next has a new one.
    """
    if kept and kept[0].process.poll() is not None:
        kept.clear()  # it ended with the mesh, which a test had to start again
    if not kept:
        kept.append(Server(yods))
    [server] = kept
    yield yods, server.address, server.token
    try:
        wait_until(server.is_idle, "every request is answered")
        assert not server.messages.read_text()
        assert server.process.poll() is None
    except BaseException:
        kept.remove(server)
        server.end()
        raise


def test_clients_that_leave_at_any_moment_are_no_errors(served: tuple[PrivateMesh, str, str]) -> None:
    _, address, token = served
    url = urllib.parse.urlsplit(address)
    for length in (0, 10, 1000):
        with socket.create_connection((url.hostname, url.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
            client.sendall(f"GET / HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode()[:length])
    assert get(address, Authorization=f"Bearer {token}")[0] == 200


def test_a_watcher_waits_for_the_next_change_and_sees_the_end(served: tuple[PrivateMesh, str, str]) -> None:
    mesh, address, token = served
    bearer = f"Bearer {token}"
    before = {job["uuid"] for job in get(address, Authorization=bearer)[2]}
    script = "yodstate set phase 1; yodstate log hello; read line; yodstate set phase 2; read line"
    yod = mesh.start("yod", "-quiet", "-state", "sh", "-c", script, stdin=subprocess.PIPE, text=True)
    assert yod.stdin is not None

    def running() -> list[str]:
        jobs = get(address, Authorization=bearer)[2]
        return [job["uuid"] for job in jobs if job["uuid"] not in before and job.get("state") == "running"]

    [uuid] = wait_until(running, "the launch runs")
    job = f"{address}/job/{uuid}"
    wait_until(lambda: get(f"{job}/log", Authorization=bearer)[2]["log"], "the line is there")
    status, headers, told = get(job, Authorization=bearer)
    assert status == 200 and told["values"] == {"phase": "1"} and told["owner_lives"]
    assert get(job, Authorization=bearer, If_None_Match=headers["ETag"])[0] == 304
    yod.stdin.write("go on\n")
    yod.stdin.flush()
    status, _, told = get(f"{job}?wait=20", Authorization=bearer, If_None_Match=headers["ETag"])
    assert status == 200 and told["values"] == {"phase": "2"}
    yod.stdin.close()
    yod.wait()
    assert get(job, Authorization=bearer)[2]["ended_at"]
    tasks = get(f"{job}/tasks?limit=5", Authorization=bearer)[2]["tasks"]
    assert [(task["first"], task["last"]) for task in tasks] == [(0, 0)]
    with urllib.request.urlopen(f"{job}/page?token={token}", timeout=PATIENCE_S) as page:
        assert "default-src 'none'" in page.headers["Content-Security-Policy"] and b"<script>" in page.read()


def test_without_the_token_or_under_another_name_there_is_nothing(served: tuple[PrivateMesh, str, str]) -> None:
    _, address, token = served
    assert get(address)[0] == 403
    assert get(f"{address}/?token={token}x")[0] == 403
    assert get(f"{address}/?token={token}", Host="evil.example:80")[0] == 403
    assert get(f"{address}/job/../../etc/passwd?token={token}")[0] == 404
    unknown = get(f"{address}/job/00000000-0000-4000-8000-000000000000?token={token}")
    assert unknown[0] == 404 and unknown[2]["error"]
    assert get(f"{address}/job/00000000-0000-4000-8000-000000000000?wait=x&token={token}")[0] == 400
