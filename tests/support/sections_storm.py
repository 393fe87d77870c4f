"""Run a Kirchhoff migration in sections on hosts that fail; the image must be identical to the serial run's.

    python -m tests.support.sections_storm [--hosts 16] [--sections 500] [--seed N] [--keep DIR]

Needs root for the namespace hosts. A third of them get a fault at a random moment: killed, stopped (SIGSTOP), disk full
or cut off.

    python -m tests.support.sections_storm --kills 50 [--seed N]

runs on one machine with MariaDB and kills, at a random moment, the job's owner, all processes of the login processor,
all processes of the mesh, or the database. Then the mesh is started again and the job is resumed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from redmesh.state import open_for_reading
from tests.support.far_mesh import FarMesh
from tests.support.hosts import PROJECT, PYTHON, NamespaceHost, NamespaceHosts
from tests.support.mariadb import Server, private_server
from tests.support.mesh import PrivateMesh, while_up
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
MIGRATE = "examples/sections/migrate.py"
JOB = """
name = "migration"
command = "{python} {root}/{migrate} migrate traces.bin --first {{first}} --count {{count}} --out {{part}}{scratch}"
inputs = ["traces.bin"]
retries = 5
recheck = "{recheck}s"
{probe}
[sections]
split = {{total = {traces}, by = {by}}}
[[output]]
name = "image.bin"
part = "part.{{section}}"
combine = "concatenate"
"""
#: Values of ``JOB`` on namespace hosts. Their only private disk is /tmp: a host whose /tmp is full writes no section.
ON_HOSTS = {
    "python": " ".join(PYTHON).replace(str(ROOT), PROJECT), "root": PROJECT, "recheck": "20",
    "scratch": " --scratch /tmp",
    "probe": "probe = 'sh -c \"head -c 65536 /dev/zero >/tmp/probe.$$ && rm /tmp/probe.$$\"'",
}  # fmt: skip


class Survey:
    """A directory with the migration's input, its job file, and the image of the serial run."""

    def __init__(self, directory: Path, traces: int, samples: int, by: int, **words: str) -> None:
        self.directory, self.sections = directory, -(-traces // by)
        given = {"python": sys.executable, "root": str(ROOT), "recheck": "300", "scratch": "", "probe": "", **words}
        (directory / "JOB.toml").write_text(JOB.format(migrate=MIGRATE, traces=traces, by=by, **given))
        self._migrate("model", "traces.bin", "--traces", str(traces), "--samples", str(samples))
        self._migrate("serial", "traces.bin", "--out", "serial.bin")
        self.serial = (directory / "serial.bin").read_bytes()

    def _migrate(self, *words: str) -> None:
        subprocess.run([sys.executable, str(ROOT / MIGRATE), *words], cwd=self.directory, check=True)

    def clear(self) -> None:
        """Remove the image and all parts."""
        for path in (*self.directory.glob("part.*"), self.directory / "image.bin"):
            path.unlink(missing_ok=True)

    def check(self, job: str) -> None:
        """Assert that the image equals the serial run's, and that the state object counts every section once."""
        assert (self.directory / "image.bin").read_bytes() == self.serial, "the image differs from the serial run's"
        with reading(job) as db:
            rows = db.execute("SELECT state, sum(last - first + 1) FROM task GROUP BY state").fetchall()
            assert rows == [("done", self.sections)], rows
            ended = db.execute("SELECT first, count(*) FROM transition WHERE state = 'done' AND first GROUP BY first")
            assert all(count == 1 for _, count in ended), "a section was counted twice"


@contextlib.contextmanager
def reading(job: str) -> Iterator[sqlite3.Connection]:
    """Open a job's state object for reading."""
    db = open_for_reading(job)
    try:
        yield db
    finally:
        db.close()


def finished(job: str) -> int:
    """Return how many sections of a job have finished."""
    with reading(job) as db:
        return int(db.execute("SELECT coalesce(sum(last - first + 1), 0) FROM task WHERE state = 'done'").fetchone()[0])


def begin(mesh: PrivateMesh, directory: Path) -> str:
    """Start the job; return the path of its state object."""
    done = mesh.run("mesh", "sections", "run", "--detach", "--json", "JOB.toml", check=True, cwd=directory)
    return str(json.loads(done.stdout)["path"])


class Strike(NamedTuple):
    """A fault of ``host`` that begins when ``after`` sections have finished and lasts ``for_s`` seconds."""

    after: int
    host: NamespaceHost
    fault: str
    for_s: float


def kill(host: NamespaceHost) -> Callable[[], None]:
    host.kill()
    return host.start  # without its PCT


def freeze(host: NamespaceHost) -> Callable[[], None]:
    frozen: list[int] = []
    while more := [pid for pid in host.processes() if pid not in frozen]:  # a process may fork meanwhile
        frozen += more
        _send(more, signal.SIGSTOP)
    return lambda: _send(frozen, signal.SIGCONT)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def fill(host: NamespaceHost) -> Callable[[], None]:
    host.run("dd", "if=/dev/zero", "of=/tmp/full", "bs=64k")
    return lambda: host.run("rm", "-f", "/tmp/full") and None


def cut(host: NamespaceHost) -> Callable[[], None]:
    host.cut()
    return host.heal


FAULTS: dict[str, Callable[[NamespaceHost], Callable[[], None]]] = {
    "killed": kill, "frozen": freeze, "filled up": fill, "cut off": cut,
}  # fmt: skip


def plan(hosts: NamespaceHosts, count: int, sections: int, chance: random.Random) -> list[Strike]:
    """Return ``count`` strikes on different hosts, with each fault about equally often, ordered by ``after``."""
    faults = [list(FAULTS)[number % len(FAULTS)] for number in range(count)]
    chance.shuffle(faults)
    victims = chance.sample(list(hosts), count)
    strikes = [
        Strike(int(sections * chance.uniform(0.02, 0.8)), host, fault, chance.choice([8.0, 25.0, 1e9]))
        for host, fault in zip(victims, faults, strict=True)
    ]
    return sorted(strikes, key=lambda strike: strike.after)


def storm(mesh: PrivateMesh, survey: Survey, strikes: list[Strike], say: Callable[[str], None]) -> str:
    """Run the job during the faults; return the path of its state object. AssertionError if the job fails."""
    began = time.monotonic()
    job = begin(mesh, survey.directory)
    watching = mesh.start("mesh", "sections", "watch", os.path.basename(job)[:36],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    heals: list[tuple[float, Strike, Callable[[], None]]] = []
    for strike in strikes:

        def due(strike: Strike = strike) -> bool:
            for one in [one for one in heals if one[0] <= time.monotonic()]:
                heals.remove(one)
                one[2]()
                say(f"{time.monotonic() - began:7.1f} s  {one[1].host.name} is itself again")
            assert watching.poll() is None, "the job has ended before its faults"
            return finished(job) >= strike.after

        wait_until(due, f"{strike.after} sections have finished", step_s=0.1, patience_s=10 * PATIENCE_S)
        heal = FAULTS[strike.fault](strike.host)
        heals.append((time.monotonic() + strike.for_s, strike, heal))
        say(f"{time.monotonic() - began:7.1f} s  {finished(job):3} finished: {strike.host.name} is {strike.fault}")
    while watching.poll() is None:
        for one in [one for one in heals if one[0] <= time.monotonic()]:
            heals.remove(one)
            one[2]()
            say(f"{time.monotonic() - began:7.1f} s  {one[1].host.name} is itself again")
        assert time.monotonic() - began < 15 * PATIENCE_S, f"{finished(job)} of {survey.sections} have finished"
        time.sleep(0.1)
    told = watching.stderr.read() if watching.stderr else ""
    for _, _, heal in heals:
        heal()  # so that the mesh can be taken down
    assert watching.returncode == 0, told
    say(f"{time.monotonic() - began:7.1f} s  {told.strip()}")
    return job


#: What is killed → words of the command lines of its processes; no words for the database.
_LOGIN = ("redmesh-job ", ".py keeper ", ".py cpa ", ".py rca ", ".py yod ")
KILLS: dict[str, tuple[str, ...]] = {
    "the owner": _LOGIN[:1], "the login processor": _LOGIN, "the owner's host": ("",), "the database": (),
}  # fmt: skip


def killed_and_resumed(mesh: PrivateMesh, server: Server, survey: Survey, what: str, after: int, later_s: float) -> int:
    """Run the job, kill ``what``, resume the job; return how many sections had finished at the kill.

    The kill comes ``later_s`` after ``after`` sections have finished. Raises AssertionError if the job or its image is
    wrong.
    """
    survey.clear()
    job = begin(mesh, survey.directory)
    wait_until(lambda: finished(job) >= after, f"{after} sections have finished")
    time.sleep(later_s)  # to a moment within a section
    before = finished(job)
    if not KILLS[what]:
        server.kill()
        time.sleep(0.5)
        server.start()
    _kill_at_once(mesh, KILLS[what])
    mesh.up()
    wait_until(lambda: resumed(mesh, survey, job), "it is resumed to its end", step_s=0.5, patience_s=2 * PATIENCE_S)
    survey.check(job)
    assert not list(survey.directory.glob("*.redmesh-*")), "an attempt has left its file"
    return before


def _kill_at_once(mesh: PrivateMesh, words: tuple[str, ...]) -> None:
    """Kill the processes with one of ``words`` in their command lines, also those that are being started.

    All are stopped before the first is killed. A yod that sees the keeper die would start a mesh of another size.
    """
    stopped: set[int] = set()

    def others() -> list[int]:
        found = mesh.processes().items()
        return [pid for pid, line in found if pid not in stopped and any(word in line for word in words)]

    while pids := others():
        _send(pids, signal.SIGSTOP)
        stopped.update(pids)
    _send(list(stopped), signal.SIGKILL)


def resumed(mesh: PrivateMesh, survey: Survey, job: str) -> bool:
    """Run ``mesh sections resume``; return whether the job has succeeded."""
    done = mesh.run("mesh", "sections", "resume", os.path.basename(job)[:36], cwd=survey.directory)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode == 0


def kills(server: Server, count: int, chance: random.Random, say: Callable[[str], None], traces: int = 32) -> None:
    """Run ``count`` jobs, each with one kill at a random moment, also of ``server``, and resume them.

    Each kill waits for a number of finished sections, from none to all but two.
    """
    directory, nodes = shared_directory(), min(4, traces // 4)
    try:
        with while_up(PrivateMesh(nodes, nodes, database=server.new_database())) as mesh:
            survey = Survey(directory, traces, 400, 2)
            moments = [number % (survey.sections - 1) for number in range(count)]
            chance.shuffle(moments)
            finished_at_kill = 0
            for number, after in enumerate(moments):
                what, began = list(KILLS)[number % len(KILLS)], time.monotonic()
                before = killed_and_resumed(mesh, server, survey, what, after, chance.uniform(0.0, 0.3))
                took, finished_at_kill = time.monotonic() - began, finished_at_kill + before
                say(f"{number + 1:3}: {what} killed with {before} of {survey.sections} finished; whole in {took:.1f} s")
            assert finished_at_kill or count < 2, "every kill came before any section had finished"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def shared_directory() -> Path:
    """Make a directory that namespace hosts share with the login processor."""
    return private_directory("redmesh-sections-", "/var/tmp")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sections_storm", description=__doc__)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--sections", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kills", type=int, default=0, help="kill and resume this many jobs instead")
    parser.add_argument("--keep", type=Path, help="where the report, the job log and the list of faults go")
    options = parser.parse_args()
    chance, lines = random.Random(options.seed), [f"seed {options.seed}"]

    def say(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    say(f"load {os.getloadavg()[0]:.1f}")
    if options.kills:
        with private_server() as server:
            kills(server, options.kills, chance, say)
        return 0
    directory = shared_directory()
    hosts = NamespaceHosts(options.hosts)
    mesh = FarMesh(hosts, processors=1)
    try:
        survey = Survey(directory, 2 * options.sections, 1000, 2, **ON_HOSTS)
        mesh.up()
        job = storm(mesh, survey, plan(hosts, round(options.hosts / 3), options.sections, chance), say)
        survey.check(job)
        tell(job, say)
        if options.keep:
            keep(mesh, job, options.keep, lines)
    finally:
        left = mesh.close()
        hosts.close()
        shutil.rmtree(directory, ignore_errors=True)
    say("\n".join(left) or "the image has the bytes of the serial run; every section is counted once")
    return int(bool(left))


def tell(job: str, say: Callable[[str], None]) -> None:
    """Report how many attempts ended in each state, and for what cause."""
    with reading(job) as db:
        for state, cause, count in db.execute(
            "SELECT state, coalesce(cause, ''), count(*) FROM transition WHERE first GROUP BY 1, 2 ORDER BY 3 DESC"
        ):
            say(f"{count:5} × {state} {cause}")
        for (text,) in db.execute("SELECT text FROM log WHERE text LIKE '%left out%' OR text LIKE 'launch %'"):
            say(text)


def keep(mesh: PrivateMesh, job: str, directory: Path, lines: list[str]) -> None:
    """Write the report, the job log, the chart and the faults to files in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    uuid = os.path.basename(job)[:36]
    for name, words in (("report.html", ()), ("joblog", ("--joblog",))):
        done: subprocess.CompletedProcess[Any] = mesh.run("mesh", "sections", "report", *words, uuid, check=True)
        (directory / name).write_text(done.stdout)
    chart = (directory / "report.html").read_text().partition("<svg ")[2].partition("</svg>")[0]
    style = "<style>svg{background:#fff}text{font:11px sans-serif}</style>"
    chart = f'<svg xmlns="http://www.w3.org/2000/svg" {chart.replace(">", f">{style}", 1)}</svg>'
    (directory / "chart.svg").write_text(chart + "\n")
    (directory / "faults.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
