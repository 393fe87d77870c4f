"""A job of a simulated batch system: sets up its environment, runs commands in it, and ends it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.agent_archive import give_agent
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, wait_until

STAND_IN = Path(__file__).with_name("stand_in.py")
LIBRARY = Path(__file__).with_name("libtm.c")
NEEDS_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for the library that stands in")
BIN = Path(sys.executable).parent
#: The client programs of each manager that tests/support/managers/stand_in.py simulates.
CLIENTS = {
    "slurm": ("srun", "squeue", "scontrol"),
    "grid_engine": ("qrsh",),
    "lsf": ("blaunch",),
    "pbs": ("pbs_tmrsh",),
    "pbsdsh": ("pbsdsh",),
    "tm": (),
    "flux": ("flux",),
}


class Job:
    """A job on ``hosts`` hosts with ``slots`` slots each; its script is a shell that reads commands from a pipe."""

    def __init__(self, kind: str, hosts: int = 2, slots: int = 2, supervisor: str = "") -> None:
        """``supervisor``: the command name of a process that is the parent of the job's script."""
        self.directory = private_directory("rj")
        self.hosts, self.slots = [f"n{index}" for index in range(hosts)], slots
        self.refused = self.directory / "refused"
        clients = self.directory / "bin"
        clients.mkdir()
        for name in CLIENTS[kind]:
            (clients / name).symlink_to(STAND_IN)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("REDMESH_", "YOD_", "SLURM"))},
            "PATH": f"{clients}:{BIN}:/usr/bin:/bin",
            "TMPDIR": str(self.directory),
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "STAND_IN_HOSTS": " ".join(self.hosts),
            "STAND_IN_SLOTS": str(slots),
            "STAND_IN_REFUSED": str(self.refused),
            **self._variables(kind),
        }
        give_agent(self.directory / "state" / "redmesh")
        self._runs = 0
        command, environ = ["sh"], self.environ
        if supervisor:
            parent = self.directory / supervisor
            parent.symlink_to("/bin/sh")
            job = [f"{name}={value}" for name, value in environ.items()]
            command, environ = [str(parent), "-c", 'env "$@" sh; :', "parent", *job], {"PATH": "/usr/bin:/bin"}
        self.script = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=environ, cwd=self.directory, start_new_session=True
        )

    def _variables(self, kind: str) -> dict[str, str]:
        lines = "".join(f"{host}\n" * self.slots for host in self.hosts)
        hostfile = self.directory / "hostfile"
        if kind == "slurm":
            count = len(self.hosts)
            return {
                "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": f"n[0-{count - 1}]", "SLURM_CLUSTER_NAME": "here",
                "SLURM_NTASKS": str(count * self.slots), "SLURM_TASKS_PER_NODE": f"{self.slots}(x{count})",
            }  # fmt: skip
        if kind == "grid_engine":
            hostfile.write_text("".join(f"{host} {self.slots} all.q@{host} UNDEFINED\n" for host in self.hosts))
            return {"JOB_ID": "17", "PE_HOSTFILE": str(hostfile), "SGE_TASK_ID": "undefined"}
        if kind == "lsf":
            return {"LSB_JOBID": "17", "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": f" {self.slots} ".join([*self.hosts, ""])}
        if kind in ("pbs", "pbsdsh", "tm"):
            hostfile.write_text(lines)
            found = {"PBS_JOBID": "17.server", "PBS_NODEFILE": str(hostfile)}
            if kind == "tm":
                library = self.directory / "pbs" / "lib" / "libpbs.so"
                library.parent.mkdir(parents=True)
                subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, LIBRARY], check=True)
                found |= {"PBS_JOBCOOKIE": "c0", "PBS_NODENUM": "0", "PBS_TASKNUM": "1", "PBS_MOMPORT": "15003"}
                found["PBS_EXEC"] = str(library.parent.parent)
            return found
        return {"FLUX_URI": f"local://{self.directory}/run/local-0"}

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a child of the job script's shell, and wait for its end."""
        # A command that a test waits for no more may still end: its status is not that of the next command.
        self._runs += 1
        out, err, status = (self.directory / name for name in ("out", "err", f"status.{self._runs}"))
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        variables = " ".join(f"{name}='{value}'" for name, value in environ.items())
        assert self.script.stdin is not None
        line = f"{variables} {quoted} >{out} 2>{err} </dev/null; echo $? >{status}.new; mv {status}.new {status}\n"
        self.script.stdin.write(line.encode())
        self.script.stdin.flush()
        wait_until(status.exists, f"{words[:3]} has ended")
        return subprocess.CompletedProcess(words, int(status.read_text()), out.read_text(), err.read_text())

    @property
    def jobs(self) -> Path:
        """The directory of the meshes of this user's jobs."""
        return self.directory / f"redmesh-{os.geteuid()}" / "jobs"

    def end(self) -> None:
        """Let the job's script end normally."""
        assert self.script.stdin is not None
        self.script.stdin.close()
        self.script.wait(PATIENCE_S)

    def left(self) -> list[int]:
        """Return the pids of the job's processes that are alive."""
        mark = f"STAND_IN_REFUSED={self.refused}".encode()
        found = []
        for pid in processes.pids():
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if mark in environ and processes.alive(pid) and pid != os.getpid():
                found.append(pid)
        return found

    def files(self) -> list[str]:
        """Return the paths of all files and directories of the meshes of this user's jobs."""
        return [
            place for found in os.walk(self.jobs.parent) for place in (found[0], *(f"{found[0]}/{n}" for n in found[2]))
        ]

    def wait_until_gone(self) -> None:
        """Wait until neither a process nor a file of the job's mesh is left.

        Files too, because a process that is just being executed has no environment to know it by.
        """

        def left() -> str:
            return f"nothing of the job is left: { {pid: arguments(pid) for pid in self.left()} }, {self.files()[:20]}"

        wait_until(lambda: not self.left() and not self.files(), left, step_s=0.1)

    def close(self) -> None:
        """Kill the job's remaining processes and remove its directory."""
        self.script.kill()  # a command that does not end would block the shell's own exit
        self.script.wait()
        assert self.script.stdin is not None
        self.script.stdin.close()
        for pid in self.left():
            processes.send_signal(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


def arguments(pid: int) -> list[str]:
    """Return the words of a process's command line; none if it does not exist."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [word.decode() for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []
