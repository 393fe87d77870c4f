"""One job of Slurm: submitting, signals, its end, and what is left of it."""

from __future__ import annotations

import contextlib
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
#: Seconds after the jobs for the last processes to end.
LEFT_S = 12.0
#: In this time a rank that runs appends several times to its file of beats.
BEAT_S = 1.0
#: Directories that are searched for what a job left.
PLACES = ("/tmp", "/dev/shm", "/run", "/var/tmp")


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

    def processes(self) -> list[str]:
        """The command lines of all processes of this user."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == self.uid:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        words = os.fsdecode(file.read()).replace("\0", " ")[:100].strip()
                    if words:  # a zombie has none
                        found.append(f"{entry} {words}")
        return found

    def left(self) -> list[str]:
        """Processes and files of this user, after some seconds for the last ones to end."""
        deadline = time.monotonic() + LEFT_S
        while (found := [*self.processes(), *self.files()]) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def files(self) -> list[str]:
        """Files and directories of this user where a job may leave some."""
        found = []
        for place in PLACES:
            for folder, names, files in os.walk(place):
                names[:] = [name for name in names if os.path.join(folder, name) != self.home]
                for name in (*names, *files):
                    with contextlib.suppress(OSError):
                        path = os.path.join(folder, name)
                        if os.lstat(path).st_uid == self.uid and not path.startswith(self.home):
                            found.append(path)
        return found


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
            f"--output={self.directory}/out", "--no-requeue", *options, str(path),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr)
        self.number = done.stdout.strip()

    def lines(self, rank: int) -> list[str]:
        """What a rank has written, a word for each line."""
        try:
            return [line.split()[0] for line in (self.directory / f"rank.{rank}").read_text().splitlines()]
        except OSError:
            return []

    def counts(self, word: str) -> list[int]:
        """How often each rank has written ``word``."""
        return [self.lines(rank).count(word) for rank in range(self.ranks)]

    def wait(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Wait until ``condition`` holds; False after ``patience_s``."""
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

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

    def cluster(self) -> str:
        """The name of the cluster."""
        said = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
        [line] = [line for line in said.splitlines() if line.startswith("ClusterName")]
        return line.partition("=")[2].strip()

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
        self.wait(lambda: self.state() in ("", "CA", "CD", "F", "TO", "PR", "NF"), 30.0)

    def remove(self) -> None:
        """Remove the job's files."""
        shutil.rmtree(self.directory, ignore_errors=True)
