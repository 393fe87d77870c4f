"""Move a running job between two login processors, and kill a process during each move: it goes on by itself.

    python -m tests.support.moves_storm [--moves 50] [--tasks 3000] [--seed N]

Runs on one machine. The moves are given on either login processor, at random; nobody runs ``mesh job resume``. A victim
is the owner, the process of its standby, a CPA, an RCA of either login processor, a process of the move, or the PCT of
a node. At the end each task has one result, and the object tells of every task that ran twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from redmesh.state import open_for_reading, owned
from tests.support.far_mesh import TlsMesh
from tests.support.mesh import while_up
from tests.support.waiting import wait_until

Say = Callable[[str], None]
VICTIMS = ("owner", "standby", "cpa", "rca", "rca there", "take-over", "pct")


class MovingJob:
    """A job of the mesh whose tasks end quickly, but for the last one, which waits for ``gate``."""

    def __init__(self, mesh: TlsMesh, other: Other, tasks: int, limit: int, task_s: float) -> None:
        self.mesh, self.other, self.tasks = mesh, other, tasks
        self.ran, self.gate = mesh.work / "moves-ran", mesh.work / "moves-gate"
        for path in (self.ran, self.gate):
            path.unlink(missing_ok=True)
        waits = f"test $0 -lt {tasks} || until test -e {self.gate}; do sleep 0.1; done"
        script = f"echo $0 >> {self.ran}; sleep {task_s}; {waits}"
        words = ("--array", f"1-{tasks}", "--limit", str(limit), "--quiet", "--", "sh", "-c", script, "{}")
        self.uuid = mesh.run("mesh", "submit", *words, check=True).stdout.strip()
        config = json.loads((mesh.state / "keeper.json").read_text())
        self.home = str(config["login"])
        there = Path(other.env["XDG_STATE_HOME"]) / "redmesh" / "jobs" / f"{self.uuid}.job"
        self.paths = {self.home: mesh.state / "jobs" / f"{self.uuid}.job", other.name: there}

    def meta(self, login: str, key: str) -> object:
        """An entry of the object's meta on a login processor; None if it is not there."""
        with suppress(Exception):  # it moves
            db = open_for_reading(str(self.paths[login]))
            try:
                return (db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone() or (None,))[0]
            finally:
                db.close()
        return None

    def runs_on(self, login: str) -> bool:
        """Whether an owner runs the job on a login processor, with a standby."""
        path = self.paths[login]
        return path.exists() and owned(str(path)) and bool(self.meta(login, "standby"))

    def processes(self, words: str) -> list[int]:
        """The processes of this job with these words in their command."""
        found = self.mesh.processes().items()
        return [pid for pid, command in found if words in command and self.uuid in command]

    def victims(self, kind: str) -> list[int]:
        """The processes of a kind."""
        if kind == "owner":
            live = [login for login, path in self.paths.items() if owned(str(path))]
            return [int(str(pid)) for login in live if (pid := self.meta(login, "pid"))]
        if kind in ("standby", "take-over"):
            return self.processes(f"job {kind}")
        if kind == "cpa":
            return [self.mesh.pid_of("cpa-0")]
        if kind == "rca":
            return [self.mesh.pid_of("rca")]
        if kind == "rca there":
            return self.other.rca()
        return [pid for pid, words in self.mesh.processes().items() if " pct " in words]

    def move(self, target: str, run_on: str, victim: str, after_s: float) -> tuple[float, str]:
        """Move it, and kill a victim on the way; returns the seconds until it runs there, and what was killed."""
        began = time.monotonic()
        env = self.mesh.env if run_on == self.home else self.other.env
        words = ("mesh", "job", "move", self.uuid, target)
        moving = self.mesh.start(*words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        killed = ""
        while not killed and moving.poll() is None:
            if time.monotonic() - began >= after_s:
                for pid in self.victims(victim)[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed = victim
            time.sleep(0.05)
        said = moving.communicate()[1]

        def there() -> bool:
            nonlocal said
            if "has no standby" in said:  # the process of its standby was killed as the move before ended
                said = self.mesh.run(*words, env=env).stderr
            return self.runs_on(target)

        wait_until(there, lambda: f"it runs on {target} after the kill of {killed or 'nobody'}: {said}", step_s=0.2)
        return time.monotonic() - began, killed


class Other:
    """The other login processor, as tests.system.remote.test_other_login makes it; ``rca`` returns its process."""

    def __init__(self, name: str, env: dict[str, str], rca: Callable[[], list[int]]) -> None:
        self.name, self.env, self.rca = name, env, rca


def storm(mesh: TlsMesh, other: Other, moves: int, tasks: int, task_s: float, seed: int, say: Say) -> None:
    """Move a job, check it at the end."""
    chance = random.Random(seed)
    job = MovingJob(mesh, other, tasks, 2, task_s)
    wait_until(lambda: job.runs_on(job.home), "it runs, with a standby", step_s=0.2)
    say(f"job {job.uuid} runs on {job.home}")
    times: list[float] = []
    kills: Counter[str] = Counter()
    for number in range(moves):
        target = other.name if number % 2 == 0 else job.home
        victim, after_s = VICTIMS[number % len(VICTIMS)], chance.uniform(0.2, 6.0)
        took, killed = job.move(target, chance.choice((job.home, other.name)), victim, after_s)
        times.append(took)
        kills[killed or "nobody"] += 1
        say(f"move {number + 1} to {target}: {took:.1f} s, killed: {killed or 'nobody'}")
    job.gate.touch()
    last = other.name if moves % 2 else job.home
    path = job.paths[last]
    wait_until(lambda: job.meta(last, "state") == "done", "it is done", step_s=0.2, patience_s=3600.0)
    db = open_for_reading(str(path))
    try:
        counts = json.loads(str(job.meta(last, "counts")))
        rows = db.execute("SELECT first, last FROM task WHERE attempt > 1").fetchall()
    finally:
        db.close()
    runs = Counter(map(int, job.ran.read_text().split()))
    told = {number for first, end in rows for number in range(first, end + 1)}
    twice = {number for number, count in runs.items() if count > 1}
    assert counts == {"done": tasks}, counts
    assert set(runs) == set(range(1, tasks + 1)), "every task ran"
    assert twice <= told, (sorted(twice - told), "the object says which ran twice")
    times.sort()
    struck = ", ".join(f"{count} of {kind}" for kind, count in sorted(kills.items()))
    median, most = times[len(times) // 2], times[-1]
    say(f"{moves} moves, 0 manual resumes; kills: {struck}; {median:.1f} s a move (median), {most:.1f} s at most")
    say(f"{tasks} tasks done, {len(twice)} ran twice")


def main() -> int:
    from tests.system.remote.test_other_login import OTHER_LOGIN, OtherLogin

    parser = argparse.ArgumentParser(prog="python -m tests.support.moves_storm", description=__doc__)
    parser.add_argument("--moves", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--task-s", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with while_up(TlsMesh(processors=2, nodes=2)) as mesh:
        made = OtherLogin(mesh, views=False)
        try:
            other = Other(OTHER_LOGIN, made.env, made.rca)
            storm(mesh, other, given.moves, given.tasks, given.task_s, given.seed, lambda line: print(line, flush=True))
        finally:
            made.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
