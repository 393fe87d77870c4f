"""Two hostile users of a system mesh (tests/support/harm.py), and the launches of a third beside them.

    python -m tests.support.harmed [--minutes 10] [--seed N] [--only NAME,…]

As root, with MariaDB and sshd. The third has processors reserved on both hosts: what is measured is what daemons, nodes
and their files do for the third, not that processors are in use. All users and hosts of this test share the processors
of one machine; so the third's times are compared with those on an idle mesh, and with those beside as many processes
of the hostile users that only use CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from redmesh.text import counted
from tests.support import harm, vanishing
from tests.support.hosts import NamespaceHosts
from tests.support.look import look, processors
from tests.support.mariadb import Server, private_server
from tests.support.mesh import while_up
from tests.support.reaper import private_directory
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.waiting import PATIENCE_S, wait_until

HOSTILE, THIRD = ("ada", "bob"), "cyn"
#: Processors of each host; half of them are reserved for the third.
PROCESSORS, RESERVED = 4, 2
#: What the users may have on this machine, which has other uses.
BOUNDS = ("prlimit", f"--nproc={harm.MOST_PROCESSES}", f"--fsize={64 << 20}", "--nofile=4096", "--core=0", "--")
#: A launch of the third that takes longer has failed.
HANGS_S = 2 * PATIENCE_S
#: Directories of launches on a host, but those that a user has moved away, and links that a user has made.
LEFT = "find /dev/shm/redmesh-2100*/ /run/redmesh-0 -maxdepth 2 -type d -name 'launch-*' ! -path '*.mine*' 2>/dev/null"
SECTION = "yodstate report progress 0.5 half && echo {section} of $USER >{part}"
JOB = f"""
command = '''sh -c "{SECTION}"'''
[sections]
count = 2
[[output]]
name = "whole"
part = "part.{{section}}"
"""


@dataclass(frozen=True)
class Launch:
    """A launch of the third user: what it was, what it took, and what was wrong with it."""

    kind: str
    seconds: float
    wrong: str
    at: str = field(default_factory=lambda: time.strftime("%T"))


@dataclass
class Times:
    """The launches of the third user in one phase."""

    launches: list[Launch] = field(default_factory=list)

    def of(self, kind: str) -> list[float]:
        """Return the seconds of one kind's launches."""
        return [one.seconds for one in self.launches if one.kind == kind]

    def wrong(self) -> list[str]:
        """Describe each launch that failed, or printed something else than it should."""
        return [f"{one.kind} after {one.seconds:.1f} s: {one.wrong}" for one in self.launches if one.wrong]


@dataclass(frozen=True)
class Ratio:
    """The third's times of one kind beside attacks, over those without."""

    kind: str
    count: int
    median_s: float
    longest_s: float
    calm_s: float
    spin_s: float
    spin_longest_s: float

    def __str__(self) -> str:
        text = f"{self.kind:9}{self.count:5} launches: median {self.median_s:.2f} s, longest {self.longest_s:.2f} s"
        text += (
            f"; idle mesh {self.calm_s:.2f} s ({self.median_s / self.calm_s:.2f}, {self.longest_s / self.calm_s:.2f})"
        )
        if self.spin_s:
            beside = self.median_s / self.spin_s, self.longest_s / self.spin_longest_s
            text += f"; beside as many that spin {self.spin_s:.2f} s ({beside[0]:.2f})"
            text += f", longest {self.spin_longest_s:.2f} s ({beside[1]:.2f})"
        return text


class Harmed:
    """A system mesh on two hosts, hostile users, and the third."""

    def __init__(self, mesh: SystemMesh) -> None:
        self.mesh = mesh
        for script in (harm, vanishing):
            shutil.copy(str(script.__file__), mesh.bin)
        self.shared = private_directory("redmesh-harm-", "/var/tmp")  # hosts and login processor see it
        os.chmod(self.shared, 0o755)
        self.jobs = self.shared / "jobs"
        self.jobs.mkdir()
        os.chown(self.jobs, USERS[THIRD], USERS[THIRD])
        self._keys()
        self._reserve()
        self._processes = self.daemons()
        self._launched = 0
        #: How often each attack ran to its end, errors that ended others, what commands did that they must not do, and
        #: what else was printed.
        self.ran: Counter[str] = Counter()
        self.failed: list[str] = []
        self.faults: list[str] = []
        self.said: list[str] = []
        self.ratios: list[Ratio] = []

    def _keys(self) -> None:
        # ssh of the hostile users: for meshes of their own on the same hosts
        keys = self.mesh.hosts.keys
        for user in HOSTILE:
            home, uid = self.mesh.home / user, USERS[user]
            text = keys.config.read_text().replace("User root", f"User {user}")
            for name in ("id", "known_hosts"):
                shutil.copy(keys.directory / name, home / name)
                text = text.replace(str(keys.directory / name), str(home / name))
            (home / "ssh_config").write_text(text)
            for name in ("id", "known_hosts", "ssh_config"):
                os.chown(home / name, uid, uid)
                os.chmod(home / name, 0o600)

    def _reserve(self) -> None:
        numbers = [str(at) for at in range(PROCESSORS * len(self.mesh.hosts)) if at % PROCESSORS < RESERVED]
        self.mesh.run("mesh", "reserve", THIRD, ",".join(numbers), check=True)

    # The third

    def launch(self, kind: str) -> Launch:
        """Run one launch of a kind and check what it printed."""
        self._launched += 1
        word = f"w{self._launched}"
        words, wanted = {
            "one": (["yod", "-wait-for-nodes", "600", "-sz", "1", "echo", word], [word]),
            "all": (
                ["yod", "-wait-for-nodes", "600", "-sz", "4", "sh", "-c", f"echo {word} $YOD_RANK of $YOD_SIZE"],
                [f"{word} {rank} of 4" for rank in range(4)],
            ),
            "sections": (["mesh", "--quiet", "sections", "run", "JOB.toml"], [f"{at} of {THIRD}" for at in range(2)]),
        }[kind]
        (self.jobs / word).mkdir()
        os.chown(self.jobs / word, USERS[THIRD], USERS[THIRD])
        if kind == "sections":
            (self.jobs / word / "JOB.toml").write_text(JOB)
        began = time.perf_counter()
        try:
            done = self.mesh.as_user(THIRD, *words, timeout_s=HANGS_S, cwd=self.jobs / word)
        except subprocess.TimeoutExpired as hung:
            return Launch(kind, time.perf_counter() - began, f"hangs: {hung.stdout!r} {hung.stderr!r}"[-3000:])
        took = time.perf_counter() - began
        with contextlib.suppress(OSError):
            got = (self.jobs / word / "whole").read_text() if kind == "sections" else done.stdout
        wrong = ""
        if done.returncode or sorted(got.splitlines()) != wanted:
            wrong = f"status {done.returncode}, printed {got!r}, told {done.stderr[-2000:]!r}"
        elif "Traceback" in done.stderr:
            wrong = done.stderr
        shutil.rmtree(self.jobs / word, ignore_errors=True)
        return Launch(kind, took, wrong)

    def launches(self, goes_on: Callable[[], bool]) -> Times:
        """Launch every kind in turn, at least once each, as long as ``goes_on()``."""
        times = Times()
        while not times.launches or goes_on():
            times.launches += [self.launch(kind) for kind in ("one", "all", "sections")]
        return times

    def for_seconds(self, seconds: float) -> Times:
        """Launch for so long."""
        until = time.monotonic() + seconds
        return self.launches(lambda: time.monotonic() < until)

    # The hostile

    @contextlib.contextmanager
    def beside(
        self, seed: int, seconds: float, *options: str, names: Sequence[str] = tuple(harm.LOGIN), once: bool = False
    ) -> Iterator[Callable[[], bool]]:
        """Both hostile users run harm.py; yields whether they still do. At the end what they left here is killed.

        ``names``: the attacks; ``once``: each of them is one user's.
        """
        chance = random.Random(seed)
        shares: list[list[str]] = [[] for _ in HOSTILE]
        for number, name in enumerate(chance.sample(names, len(names))):
            for at in {number % len(HOSTILE)} if once else range(len(HOSTILE)):
                shares[at].append(name)
        users = [
            self._attack(user, chance.randrange(1 << 30), seconds, "--only", ",".join(share), *options)
            for user, share in zip(HOSTILE, shares, strict=True)
        ]
        try:
            yield lambda: any(one.poll() is None for one in users)
        finally:
            for one in users:
                if one.poll() is None:
                    one.send_signal(signal.SIGKILL if "--spin" in options else signal.SIGTERM)
            for user, one in zip(HOSTILE, users, strict=True):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(10 * PATIENCE_S)
                self._note(user)
            for user in HOSTILE:
                self.end(user)

    def _attack(self, user: str, seed: int, seconds: float, *options: str) -> subprocess.Popen[bytes]:
        others = ",".join(str(uid) for name, uid in USERS.items() if name != user)
        words = ["python", str(self.mesh.bin / "harm.py"), str(self.mesh.run_dir), str(seed), str(seconds)]
        words += ["--hosts", ",".join(host.name for host in self.mesh.hosts), "--others", others]
        words += ["--database", self.mesh.viewers_url, *options]
        with open(self.shared / f"{user}.out", "wb") as out, open(self.shared / f"{user}.err", "ab") as err:
            started: subprocess.Popen[bytes] = self.mesh.start_as(user, *BOUNDS, *words, stdout=out, stderr=err)
        return started

    def _note(self, user: str) -> None:
        for line in (self.shared / f"{user}.out").read_text().splitlines():
            told = json.loads(line)
            self.ran.update(told["ran"])
            self.failed += [f"{user}: {one}" for one in told["failed"]]
            self.faults += [f"{user}: {one}" for one in told["faults"]]
        self.said.append((self.shared / f"{user}.err").read_text(errors="replace"))

    def end(self, user: str) -> None:
        """Kill what a hostile user has on the login processor, and daemons of a mesh of the user's own on the hosts.

        Launches of the system mesh, and what ranks left behind, are not touched: those the product ends.
        """
        mark = os.fsencode(f"HOME={self.mesh.home / user}")

        def own() -> list[int]:
            found = [pid for pid in _of_uid(USERS[user]) if mark in _environ(pid)]
            ours = os.readlink("/proc/self/ns/pid")
            return [pid for pid in found if _space(pid) == ours]

        def others_pcts() -> list[int]:
            return [
                pid
                for host in self.mesh.hosts
                for pid in self.mesh.pids_on(host, "redmesh-pct")
                if pid in _of_uid(USERS[user])
            ]

        while found := own() + others_pcts():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    # What is to be true afterwards

    def daemons(self) -> dict[str, int]:
        """Return the pid of each daemon of the mesh that root runs."""
        found = {name: self.mesh.pid_of(name) for name in ("keeper", "rca", "cpa-0")}
        for host in self.mesh.hosts:
            pcts = [pid for pid in self.mesh.pids_on(host, "redmesh-pct") if pid in _of_uid(0)]
            found |= {f"pct of {host.name}": min(pcts, default=0)}
        return found

    def usage(self) -> str:
        """Return CPU time, memory and descriptors of CPA and RCA."""
        told = []
        for name in ("cpa-0", "rca"):
            pid = self.mesh.pid_of(name)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            memory = " ".join(f"{key} {int(status[key].split()[0]) / 1024:.0f} MB" for key in ("VmRSS", "VmHWM"))
            told.append(f"{name}: {cpu:.1f} CPU-s, {memory}, {self.descriptors()[name]} descriptors")
        return "; ".join(told)

    def descriptors(self) -> dict[str, int]:
        """Return how many descriptors CPA and RCA have open."""
        return {name: len(os.listdir(f"/proc/{self.mesh.pid_of(name)}/fd")) for name in ("cpa-0", "rca")}

    def left(self) -> list[str]:
        """Wait until nothing of the hostile users is left and all is well; return what is not."""
        wrong = []
        every = PROCESSORS * len(self.mesh.hosts)
        for told, probe in (
            ("every processor is free", lambda: processors(self.mesh, "free") + self._reserved() == every),
            ("no launcher is left", lambda: not look(self.mesh)["launchers"]),
            ("every node is up", lambda: set(self.mesh.states().values()) == {"up"}),
            ("no process of theirs is on a host", lambda: not self.theirs()),
            ("no directory of a launch is on a host", lambda: not self._directories()),
            ("mesh status is healthy", lambda: not self.mesh.run("mesh", "status").returncode),
        ):  # fmt: skip
            try:
                wait_until(probe, told, step_s=0.2)
            except AssertionError as error:
                wrong.append(f"{error}: {look(self.mesh)['launchers']} {self.theirs()} {self._directories()}")
        for name, pid in self.daemons().items():
            if pid != self._processes[name]:
                wrong.append(f"{name} was process {self._processes[name]} and is {pid}")
        return [*wrong, *self.tracebacks()]

    def _reserved(self) -> int:
        return processors(self.mesh, "reserved")

    def theirs(self) -> dict[str, str]:
        """Processes of the hostile users on the hosts."""
        found = {}
        for host in self.mesh.hosts:
            of_hostile = {pid for user in HOSTILE for pid in _of_uid(USERS[user])}
            found |= {f"{host.name} {pid}": words for pid, words in host.processes().items() if pid in of_hostile}
        return found

    def _directories(self) -> str:
        return "".join(host.run("sh", "-c", LEFT).stdout for host in self.mesh.hosts)

    def tracebacks(self) -> list[str]:
        """Lines of the daemons' logs that tell of a fault of a daemon."""
        logs = [
            *(self.mesh.state / "log").glob("*"),
            *(path for h in self.mesh.hosts for path in h.home.rglob("*.jsonl")),
        ]
        found = []
        for path in logs:
            with contextlib.suppress(OSError):
                lines = path.read_text(errors="replace").splitlines()
                found += [
                    f"{path.name}: {line[:3000]}" for line in lines if "Traceback" in line or '"internal"' in line
                ]
        return found

    def keep(self, directory: Path) -> None:
        """Copy the logs."""
        shutil.copytree(self.mesh.state / "log", directory / "log", dirs_exist_ok=True)
        for host in self.mesh.hosts:
            (directory / f"{host.name}.jsonl").write_text(self.mesh.node_log(host))
        (directory / "attacks").write_text("\n".join(self.said))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.shared, ignore_errors=True)


def ratios(calm: Sequence[Times], spin: Times | None, attacked: Times) -> list[Ratio]:
    """Compare the third's times, kind by kind."""
    found = []
    for kind in ("one", "all", "sections"):
        idle = statistics.median([seconds for times in calm for seconds in times.of(kind)])
        beside = spin.of(kind) if spin else [0.0]
        times, median = attacked.of(kind), statistics.median
        found.append(Ratio(kind, len(times), median(times), max(times), idle, median(beside), max(beside)))
    return found


def _of_uid(uid: int) -> set[int]:
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    found.add(int(entry))
    return found


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


@contextlib.contextmanager
def harmed(hosts: NamespaceHosts, server: Server) -> Iterator[Harmed]:
    """Bring the mesh up on ``hosts``, and take it down."""
    os.chmod(server.directory, 0o755)
    with while_up(SystemMesh(hosts, server, processors=PROCESSORS)) as mesh:
        made = Harmed(mesh)
        try:
            yield made
        finally:
            made.close()


def trial(
    made: Harmed, seed: int, seconds: float, baseline_s: float, names: Sequence[str], say: Callable[[str], None] = print
) -> list[str]:
    """Run all phases and report; returns what is wrong."""
    say(f"before: {made.usage()}")
    calm = [made.for_seconds(baseline_s)]
    with made.beside(seed, 0.0, "--spin"):
        spin = made.for_seconds(baseline_s)
    with made.beside(seed, seconds, names=names) as goes_on:
        attacked = made.launches(goes_on)
        say(f"beside: {made.usage()}")
    left = made.left()
    calm.append(made.for_seconds(baseline_s))
    say(f"after: {made.usage()}")
    for one in sorted(attacked.launches, key=lambda launch: -launch.seconds)[:5]:
        say(f"{one.kind} that ended at {one.at} took {one.seconds:.1f} s")
    say(", ".join(f"{name} {count}" for name, count in sorted(made.ran.items())))
    say("\n".join([f"{counted(len(made.failed), 'attack')} failed by an error of its own", *made.failed]))
    made.ratios = ratios(calm, spin, attacked)
    for ratio in made.ratios:
        say(str(ratio))
    wrong = [line for times in (*calm, spin, attacked) for line in times.wrong()]
    return [*wrong, *made.faults, *left]


def main() -> int:
    """Report a run by hand."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.harmed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default=",".join(harm.LOGIN))
    parser.add_argument("--keep", type=Path, help="where the daemons' logs go, and when each attack began and ended")
    options = parser.parse_args()
    print(f"seed {options.seed}, load {os.getloadavg()[0]:.1f}", flush=True)
    hosts = NamespaceHosts(2, users=tuple(USERS))

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        with private_server() as server, harmed(hosts, server) as made:
            minutes, names = options.minutes, options.only.split(",")
            wrong = trial(made, options.seed, 60 * minutes, min(60.0, 6 * minutes), names, say)
            say("\n".join(wrong) or "nothing is wrong")
            if options.keep:
                made.keep(options.keep)
    finally:
        hosts.close()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
