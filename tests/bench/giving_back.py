"""A request that waits behind a long array, and two users' arrays side by side."""

import json
import os
import statistics
import sys
import time

from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row, seconds
from tests.support.hosts import NamespaceHosts
from tests.support.mariadb import find_server, private_server
from tests.support.mesh import BIN, PrivateMesh
from tests.support.others import python_for_others
from tests.support.system_mesh import SystemMesh
from tests.support.waiting import wait_until

TASK_S, RUNS, BESIDE_S = 0.3, 7, 30.0
YOD = str(BIN / "yod")


def giving_back() -> list[Row]:
    """All rows."""
    with mesh(4, 2) as one:
        rows = [_behind_an_array(one, size) for size in (1, 4)]
    return [*rows, *_two_users()]


def _behind_an_array(one: PrivateMesh, size: int) -> Row:
    """The time that ``yod`` takes beside the array, without the time that it takes alone."""
    words = [YOD, "-quiet", "-wait-for-nodes", "600", "-sz", str(size), "true"]
    alone = statistics.median(seconds(words, one.env) for _ in range(RUNS))
    job = one.run("mesh", "submit", "--array", "1-100000", "--", "sleep", str(TASK_S), check=True).stdout.strip()
    waits = []
    for _ in range(RUNS):
        wait_until(lambda: _ran_on(one, job) == 4, "the array has every processor")
        waits.append(seconds(words, one.env) - alone)
    one.run("mesh", "cancel", job, check=True)
    one.run("mesh", "wait", job)
    what = f"yod -sz {size} behind an array of {TASK_S:g} s tasks on 4 processors: wait (s)"
    return Row(what, "a task", statistics.median(waits), TASK_S, Bar(2.0, 1.0))


def _ran_on(one: PrivateMesh, job: str) -> int:
    (row,) = (each for each in one.json("mesh", "queue") if each["uuid"] == job)
    return int(row["running"])


def _two_users() -> list[Row]:
    """Two arrays without end on four processors in system mode, the second of which comes later."""
    if os.geteuid() or find_server() is None:
        print("needs root and MariaDB: two users' arrays are not measured", file=sys.stderr)
        return []
    python_for_others()
    hosts = NamespaceHosts(2, users=("ada", "bob"))
    try:
        with private_server() as server:
            os.chmod(server.directory, 0o755)
            site = SystemMesh(hosts, server)
            try:
                site.up()
                index = _jain(_tasks_of_each(site))
            finally:
                site.down()
                site.close()
    finally:
        hosts.close()
    what = f"two users' arrays of {TASK_S:g} s tasks, {BESIDE_S:g} s from the second on: Jain's fairness index"
    return [Row(what, "equal shares", index, 1.0, Bar(0.95, 0.99, at_least=True))]


def _tasks_of_each(site: SystemMesh) -> list[int]:
    submit = ("mesh", "submit", "--quiet", "--array", "1-100000", "--", "sleep", str(TASK_S))
    jobs = {}

    def row(user: str) -> dict[str, int]:
        (found,) = json.loads(site.as_user(user, "mesh", "queue", "--json", check=True).stdout)
        return dict(found)

    jobs["ada"] = site.as_user("ada", *submit, check=True).stdout.strip()
    wait_until(lambda: row("ada")["running"] == 4, "the first array has every processor")
    jobs["bob"] = site.as_user("bob", *submit, check=True).stdout.strip()
    before = [row(user)["ended"] for user in jobs]
    time.sleep(BESIDE_S)
    after = [row(user)["ended"] for user in jobs]
    for user, job in jobs.items():
        site.as_user(user, "mesh", "cancel", job, check=True)
        site.as_user(user, "mesh", "wait", job)
    return [last - first for first, last in zip(before, after, strict=True)]


def _jain(shares: list[int]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(one * one for one in shares))
