"""One job of Slurm: submitting, signals, its end, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

RANK = Path(__file__).with_name("rank.py")
#: Seconds: for a step of a case, for a signal to reach every rank, and for one that comes twice to come again.
PATIENCE_S, TWICE_S = 120.0, 1.5
#: Seconds after a job for its last processes to end.
LEFT_S = 30.0
#: Seconds between two questions to Slurm: many jobs that ask often would be a load of their own.
ASK_S = 2.0
#: The states of a job that has ended.
ENDED = ("", "CA", "CD", "F", "TO", "PR", "NF")
#: In this time a rank that runs appends several times to its file of beats.
BEAT_S = 1.0
#: Directories that are searched for what a job left.
PLACES = ("/tmp", "/dev/shm", "/run", "/var/tmp")


def setting(name: str) -> str:
    """A setting of the Slurm that is used."""
    said = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    found = dict(line.partition("=")[::2] for line in said.splitlines())
    return {key.strip(): value.strip() for key, value in found.items()}[name]


class User:
    """The ordinary user whose jobs these are, the directory of its commands, and one for the jobs' files."""

    def __init__(self, name: str, commands: str) -> None:
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home, self.commands = (
            name,
            entry.pw_uid,
            entry.pw_gid,
            entry.pw_dir,
            commands,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user."""
        environ = {
            "HOME": self.home, "PATH": f"{self.commands}:/usr/bin:/bin", "SLURM_CONF": os.environ["SLURM_CONF"],
            "LANG": "C.UTF-8", "USER": self.name,
        }  # fmt: skip
        return subprocess.run(
            list(words), env=environ, user=self.uid, group=self.gid, extra_groups=[], cwd=self.home,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip

    def processes(self, job: str = "") -> dict[int, str]:
        """The command lines of the processes of this user, by process; with ``job``, those that its job started."""
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid != self.uid:
                    continue
                words = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")[:100].strip()
                if words and (not job or f"SLURM_JOB_ID={job}" in variables(int(entry))):  # a zombie has no words
                    found[int(entry)] = os.fsdecode(words)
        return found

    def files(self, everywhere: bool = False) -> list[str]:
        """Files and directories of this user where a job may leave some; ``everywhere``: in other users' directories
        too, which takes seconds."""
        found = []
        for place in PLACES:
            for folder, names, files in os.walk(place):
                kept = []
                for name in (*names, *files):
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError):
                        mine = path != self.home and os.lstat(path).st_uid == self.uid
                        if mine or (everywhere and path != self.home):
                            kept.append(name)
                        if mine:
                            found.append(path)
                names[:] = [name for name in names if name in kept]
        return found

    def left(self) -> list[str]:
        """Processes and files of this user, after some seconds for the last ones to end."""
        return wait_for_none(lambda: [*self.processes().values(), *self.files(everywhere=True)])


def variables(pid: int) -> list[str]:
    """The environment with which a process began: ``NAME=VALUE``."""
    return os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")


def wait_for_none(found: Callable[[], list[str]]) -> list[str]:
    """What ``found`` returns when it returns nothing, or after LEFT_S."""
    deadline = time.monotonic() + LEFT_S
    while (last := found()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return last


class Job:
    """A job of ``nodes`` nodes whose script runs ``yod`` with ``ranks`` ranks."""

    def __init__(self, user: User, level: str, nodes: int, ranks: int, options: Sequence[str], script: str) -> None:
        """``script``: the job's script; ``{yod}`` stands for the command."""
        self.user, self.ranks = user, ranks
        self.directory = Path(user.home) / "tried" / f"{level}-{time.time_ns()}"
        subprocess.run(["install", "-d", "-o", str(user.uid), "-g", str(user.gid), str(self.directory)], check=True)
        yod = shlex.join(
            ["yod", f"--parent={level}", "-sz", str(ranks), sys.executable, str(RANK), str(self.directory)]
        )
        yod = yod.replace(sys.executable, f"{user.commands}/python3", 1)
        path = self.directory / "script"
        path.write_text("#!/bin/sh\n" + script.format(yod=yod) + "\n")
        done = user.run(
            "sbatch", "--parsable", f"--nodes={nodes}", f"--ntasks-per-node={-(-ranks // nodes)}",
            f"--output={self.directory}/out", "--no-requeue", "--exclusive", *options, str(path),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        self.number, self._mesh = done.stdout.strip(), ""

    def lines(self, rank: int) -> list[str]:
        """What a rank has written, a word for each line."""
        try:
            return [line.split()[0] for line in (self.directory / f"rank.{rank}").read_text().splitlines()]
        except OSError:
            return []

    def variables(self, rank: int) -> dict[str, str]:
        """The environment of a rank."""
        found: dict[str, str] = json.loads((self.directory / f"variables.{rank}").read_text())
        return found

    def nodes(self) -> list[str]:
        """The job's nodes; the script runs on the first."""
        said = self.user.run("squeue", "--noheader", "--format=%N", f"--jobs={self.number}").stdout.strip()
        return self.user.run("scontrol", "show", "hostnames", said).stdout.split()

    def counts(self, word: str) -> list[int]:
        """How often each rank has written ``word``."""
        return [self.lines(rank).count(word) for rank in range(self.ranks)]

    def when(self, word: str, rank: int = 0) -> str:
        """The last seconds at which a rank has written ``word``."""
        lines = [line.split() for line in (self.directory / f"rank.{rank}").read_text().splitlines()]
        return " ".join(line[1] for line in lines[-8:] if line[0] == word)

    def wait(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S, poll_s: float = 0.2) -> bool:
        """Wait until ``condition`` holds, and look every ``poll_s``; False after ``patience_s``."""
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(poll_s)
        return True

    def begins(self) -> bool:
        """Wait until all ranks run; False if they do not."""
        begun = self.wait(lambda: self.counts("ready") == [1] * self.ranks)
        with contextlib.suppress(OSError):
            self._mesh = os.path.basename(os.readlink(f"{self.state_directory()}/run"))
        return begun

    def ends(self, patience_s: float) -> bool:
        """Wait for the job's end; False after ``patience_s``."""
        return self.wait(lambda: self.state() in ENDED, patience_s, ASK_S)

    def state_directory(self) -> str:
        """The directory of the job's mesh."""
        return f"/tmp/redmesh-{self.user.uid}/jobs/slurm-{setting('ClusterName')}.{self.number}"

    def processes(self, node: str = "") -> dict[int, str]:
        """The processes that the job has started, on ``node`` or on all."""
        found = self.user.processes(self.number)
        for pid in list(found) if node else ():
            try:
                if f"SLURMD_NODENAME={node}" in variables(pid):
                    continue
            except OSError:
                pass  # it has exited
            del found[pid]
        return found

    def left(self) -> list[str]:
        """Processes and files of the job, after some seconds for the last ones to end."""
        state = self.state_directory()

        def found() -> list[str]:
            sockets = f"/tmp/redmesh-{self.user.uid}/{self._mesh}"
            running = list(self.processes().values())  # before the files, which they remove
            files = self.user.files()
            ours = [
                path
                for path in files
                if f"{path}/".startswith(f"{state}/") or (self._mesh and path.startswith(sockets))
            ]
            return [*running, *ours]

        return wait_for_none(found)

    def state(self) -> str:
        """The job's state as squeue abbreviates it; empty when Slurm has forgotten it."""
        return self.user.run(
            "squeue", "--noheader", "--states=all", "--format=%t", f"--jobs={self.number}"
        ).stdout.strip()

    def steps(self) -> list[str]:
        """The names of the job's steps, JOB.STEP."""
        said = self.user.run("squeue", "--noheader", "--steps", "--format=%i %j", f"--jobs={self.number}").stdout
        return [line.split()[0] for line in said.splitlines() if "redmesh" in line]

    def said(self) -> str:
        """What the job's script has written."""
        try:
            return (self.directory / "out").read_text()
        except OSError:
            return ""

    def root(self, *words: str) -> None:
        """Run a command of Slurm as root."""
        subprocess.run(list(words), check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)

    def moves(self) -> list[bool]:
        """For each rank, whether it beats: a stopped one appends nothing to its file."""
        before = [self._beats(rank) for rank in range(self.ranks)]
        time.sleep(BEAT_S)
        return [self._beats(rank) != then for rank, then in enumerate(before)]

    def _beats(self, rank: int) -> int:
        try:
            return (self.directory / f"beats.{rank}").stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """Cancel the job, and wait for its end."""
        self.user.run("scancel", "--quiet", self.number)
        self.ends(60.0)

    def remove(self) -> None:
        """Remove the job's files."""
        shutil.rmtree(self.directory, ignore_errors=True)
