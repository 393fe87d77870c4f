"""Run a job of many tasks while daemons are killed; check that each result counts once and every repeat is recorded.

    python -m tests.support.tasks_storm [--tasks 100000] [--nodes 64] [--kills 40] [--outage 60] [--seed N]

Runs on one machine with MariaDB. Every few seconds it kills a PCT, a CPA, a worker or the job's owner with SIGKILL, and
resumes the job after the owner's death. After about half of the kills, MariaDB is stopped (SIGSTOP): until every CPA
knows that it does not answer, and for ``--outage`` seconds at least.
``tests.support.owner_storm`` loses the owner's whole host, ``tests.support.sections_storm`` those of workers.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agents.link.client import Client
from agents.wire.errors import AgentError
from db.errors import DatabaseUnavailable
from tests.support.look import asked, queue
from tests.support.mariadb import Server, private_server
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import PATIENCE_S, wait_until

VICTIMS = ("pct", "cpa", "worker", "owner")
Say = Callable[[str], None]


#: A task in ``held`` waits for this file; the last task waits for ALL_STRUCK.
CPAS_KNOW, ALL_STRUCK = "cpas-know", "all-struck"


class TasksJob:
    """A job; each of its tasks writes its number to the file ``ran``, then sleeps.

    The last ``held`` tasks wait until the file CPAS_KNOW exists, and the last task until ALL_STRUCK does. So tasks are
    left to begin during the outage, and the job runs until every kill is done, however slow the machine is.
    """

    def __init__(self, mesh: PrivateMesh, tasks: int, limit: int, task_s: float, held: int) -> None:
        self.mesh, self.tasks = mesh, tasks
        script = "echo {} >> ran" + (f"; sleep {task_s}" if task_s else "")
        for first, file in ((tasks - held + 1, CPAS_KNOW), (tasks, ALL_STRUCK)):
            script += f"; test {{}} -lt {first} || until test -e {file}; do sleep 0.1; done"
        words = ("--array", f"1-{tasks}", "--limit", str(limit), "--quiet", "--", "sh", "-c", script)
        self.uuid = mesh.run("mesh", "submit", *words, check=True).stdout.strip()

    def release(self, file: str) -> None:
        """End the wait of the tasks that wait for this file."""
        (self.mesh.work / file).touch()

    def ran(self) -> int:
        """Return how many times tasks have started, counted in the file ``ran``."""
        path = self.mesh.work / "ran"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def state(self) -> str:
        return str(self._row()["state"])

    def _row(self) -> dict[str, Any]:
        return next(one for one in queue(self.mesh, ended=True) if one["uuid"] == self.uuid)

    def sql(self, query: str) -> list[dict[str, int]]:
        return asked(self.mesh.state / "jobs" / f"{self.uuid}.job", query)

    def pids(self, victim: str) -> list[int]:
        """Return the pids of the job's ``owner``, or of its processes of the kind ``worker``."""
        if victim == "owner":
            owner = self._row()["owner"]
            return [int(owner.rpartition(":")[2])] if owner else []
        return [pid for pid, words in self.mesh.processes().items() if "/yodwork job " in words]

    def strike(self, victim: str, chance: random.Random) -> bool:
        """Kill one process of this kind; return False if there is none. Resume the job if its owner was killed."""
        mesh = self.mesh
        if victim in ("pct", "cpa"):
            prefix, count = ("n", mesh.size[1]) if victim == "pct" else ("cpa-", mesh.size[2])
            try:
                mesh.kill(f"{prefix}{chance.randrange(count)}")
            except ProcessLookupError:
                return False
            return True
        pids = self.pids(victim)
        if not pids:
            return False
        try:
            os.kill(chance.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        if victim == "owner":
            wait_until(lambda: self.state() == "owner lost", "the loss of the owner is recorded", step_s=0.2)
            mesh.run("mesh", "job", "resume", self.uuid, check=True)
        return True

    def check(self) -> int:
        """Assert that every task is done once and ran at most ``attempt`` times; return how many ran more than once."""
        return check_runs(self.sql, self.tasks, (self.mesh.work / "ran").read_text())


def check_runs(sql: Callable[[str], list[dict[str, int]]], tasks: int, ran: str) -> int:
    """Assert that every task is done once and ran at most ``attempt`` times; return how many ran more than once.

    ``sql`` asks the object; ``ran`` has the number of a task for each time that it ran.
    """
    rows = sql("SELECT first, last, attempt FROM task WHERE state = 'done'")
    attempts = {task: row["attempt"] for row in rows for task in range(row["first"], row["last"] + 1)}
    assert sorted(attempts) == list(range(1, tasks + 1)), f"{tasks - len(attempts)} tasks are not done"
    done = Counter[int]()
    for row in sql("SELECT first, last FROM transition WHERE state = 'done' AND first IS NOT NULL"):
        done.update(range(row["first"], row["last"] + 1))
    assert set(done.values()) == {1} and len(done) == tasks, "a result was recorded twice, or not at all"
    times = Counter(map(int, ran.split()))
    assert set(times) == set(attempts), "a task that is done never ran"
    denied = sorted(task for task, count in times.items() if count > attempts[task])
    assert not denied, f"{len(denied)} tasks ran more often than the job says, such as {denied[:10]}"
    return sum(count > 1 for count in times.values())


def outage(
    mesh: PrivateMesh,
    server: Server,
    ran: Callable[[], int],
    seconds: float,
    when_known: Callable[[], object] = lambda: None,
) -> int:
    """Stop the database until every CPA knows that it does not answer, and for ``seconds`` at least.

    Call ``when_known`` once the CPAs know. Return how many tasks started meanwhile; AssertionError if none does after
    the CPAs know.
    """
    end, before = time.monotonic() + seconds, ran()
    server.signal(signal.SIGSTOP)
    try:
        sockets = [str(path) for path in mesh.run_dir.glob("cpa-*.sock")]
        assert sockets
        with ThreadPoolExecutor() as pool:
            wait_until(lambda: all(pool.map(_misses_database, sockets)), "every CPA knows that the database is away")
        known = ran()
        when_known()
        wait_until(lambda: ran() > known, "a task begins: a job that runs needs no database")
        time.sleep(max(0.0, end - time.monotonic()))  # the rest of the outage
        return ran() - before
    finally:
        server.signal(signal.SIGCONT)


def _misses_database(cpa: str) -> bool:
    """Return whether the CPA that listens at this socket refuses a request because the database does not answer."""
    try:
        with Client(cpa, "admin", PATIENCE_S) as client:
            client.call({"op": "idle"})
    except AgentError as error:
        return error.code == DatabaseUnavailable.code
    return False


def storm(
    server: Server,
    tasks: int,
    nodes: int,
    kills: int,
    outage_s: float,
    chance: random.Random,
    say: Say,
    every_s: float,
    task_s: float = 0,
) -> None:
    """Run one job with kills, an outage of the database after half of them, and the final check.

    The job cannot end before a process of each of ``kills`` victims was killed.
    """
    with while_up(PrivateMesh(nodes, nodes, 2, database=server.new_database())) as mesh:
        began = time.monotonic()
        held = min(tasks // 2, 4 * (nodes + kills))  # a kill may have a held task begin twice
        job = TasksJob(mesh, tasks, nodes, task_s, held)
        wait_until(lambda: job.ran() > 0, "a task has begun")
        outage_at = kills // 2
        if outage_at and VICTIMS[(outage_at - 1) % len(VICTIMS)] == "owner":
            outage_at += 2  # a job that was just resumed needs the database to get processors
        for number in range(kills):
            if number == outage_at and outage_s:
                wait_until(lambda: job.pids("worker"), "a worker runs, which has its processors from the database")
                meanwhile = outage(mesh, server, job.ran, outage_s, lambda: job.release(CPAS_KNOW))
                say(f"MariaDB stopped for {outage_s:g} s or more: {meanwhile} tasks began meanwhile")
            victim = VICTIMS[number % len(VICTIMS)]
            ran = job.ran()
            struck = lambda: job.strike(victim, chance)  # noqa: B023, E731
            wait_until(struck, lambda: f"a {victim} is killed; the job is {job.state()}", step_s=0.1)  # noqa: B023
            say(f"{number + 1:3}: {victim}, {ran} begun: killed")
            time.sleep(chance.uniform(0, 2 * every_s))
        assert job.state() not in ("done", "failed"), "the job ended before every victim was killed"
        for file in (CPAS_KNOW, ALL_STRUCK):
            job.release(file)
        ended = mesh.run("mesh", "wait", job.uuid, timeout_s=3600)
        assert ended.returncode == 0, f"{job.state()}: {ended.stderr}"
        took = time.monotonic() - began
        say(f"{tasks} tasks on {nodes} nodes in {took:.0f} s; {job.check()} ran twice, each as the job says")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.tasks_storm", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills, in the mean")
    parser.add_argument("--outage", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    chance = random.Random(given.seed)
    kills = (given.nodes, given.kills, given.outage, chance, lambda line: print(line, flush=True), given.every)
    with private_server() as server:
        storm(server, given.tasks, *kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
