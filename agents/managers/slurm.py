"""Slurm: a step of the job starts our processes (``srun --overlap``), one for all hosts.

Source: the manual pages srun(1), sbatch(1) (INPUT and OUTPUT ENVIRONMENT VARIABLES) and scancel(1) of Slurm 22.05.
"""

from __future__ import annotations

import os
import time
from signal import SIGKILL

from agents.linux import processes
from agents.linux.batch_signals import Reach
from agents.managers import het_jobs
from redmesh.managers import ManagerError, ask, client, need_on_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import List, Mapping, Optional, Sequence, Tuple

    from redmesh.managers import Hosts

#: slurmctld creates every step, so steps requested from each host at once would only queue there.
distributed = False
labelled = True
#: States of a job that ends or has ended.
_ENDS = ("BF", "CA", "CD", "CG", "DL", "F", "NF", "OOM", "PR", "RQ", "RV", "SE", "TO")
#: The last number of a step that srun starts (SLURM_MAX_NORMAL_STEP_ID).
_STEPS = 0xFFFFFFF0
_ASK_S = 3.0  # for squeue and scontrol, while the keeper waits
#: The variable that names the host in each process that ``spawn_all`` starts.
host_variable = "SLURMD_NODENAME"
#: One for each step on a node. It continues when slurmd is restarted.
supervisor = "slurmstepd"
#: Variables of the job's script and of a surrounding srun that our srun would take as options, or that describe the
#: script's node.
_OPTIONS = (
    "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_EXCLUSIVE", "SLURM_GPUS", "SLURM_HINT", "SLURM_KILL_BAD_EXIT",
    "SLURM_LABELIO", "SLURM_MPI_TYPE", "SLURM_NNODES", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET", "SLURM_OPEN_MODE", "SLURM_OVERLAP", "SLURM_STDERRMODE",
    "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_TASK_EPILOG", "SLURM_TASK_PROLOG", "SLURM_TASKS_PER_NODE",
    "SLURM_THREADS_PER_CORE", "SLURM_TRES_PER_TASK", "SLURM_WAIT", "SLURM_WORKING_DIR", "SRUN_CPUS_PER_TASK",
    "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_EXACT", "SLURM_WHOLE", "SLURM_STEP_ID", "SLURM_STEPID",
    "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
)  # fmt: skip


def detect(environ: Mapping[str, str]) -> bool:
    """True if a job's variables are set and list its hosts."""
    return "SLURM_JOB_ID" in environ and "SLURM_JOB_NODELIST" in environ


def in_task(environ: Mapping[str, str]) -> bool:
    """True in one of several tasks of srun. Steps above _STEPS are those of the script and of salloc's shell
    (slurm/slurm.h). A step with one task, such as ``srun --pty bash``, has no others that use the mesh."""
    step, tasks = environ.get("SLURM_STEP_ID", ""), environ.get("SLURM_STEP_NUM_TASKS", "")
    return _is_number(step) and int(step) <= _STEPS and _is_number(tasks) and int(tasks) > 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def hosts(environ: Mapping[str, str]) -> Hosts:
    """The job's nodes. Slots of each: its tasks times the processors of a task, or the allocated processors."""
    return het_jobs.hosts(environ) if het_jobs.components(environ) else het_jobs.job_hosts(environ, "")


def groups(environ: Mapping[str, str], hosts: Sequence[str]) -> List[List[str]]:
    """The nodes by components of a heterogeneous job."""
    return het_jobs.groups(environ, hosts)


def job_id(environ: Mapping[str, str]) -> str:
    """The job's number, after its cluster's name if that is known."""
    cluster = environ.get("SLURM_CLUSTER_NAME", "")
    return f"{cluster}.{environ['SLURM_JOB_ID']}" if cluster else environ["SLURM_JOB_ID"]


def starts_by(environ: Mapping[str, str]) -> str:
    """The path of srun. Raises ManagerError if it is not on PATH."""
    return need_on_path("srun", environ)


def spawn(
    environ: Mapping[str, str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a step of one task on ``host``."""
    return _step(environ, [host], argv, env, label=False)


def spawn_all(
    environ: Mapping[str, str], hosts: Sequence[str], argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start one step with a task on each of ``hosts``."""
    return _step(environ, hosts, argv, env, label=True)


def signals_reach(environ: Mapping[str, str]) -> str:
    """By ProctrackType: ``cgroup`` signals the tasks of slurmstepd, ``pgid`` the group of the first one, ``linuxproc``
    all descendants (src/plugins/proctrack of Slurm 22.05; SIGKILL reaches all processes of a cgroup)."""
    tracker = _setting(environ, "ProctrackType").rpartition("/")[2]
    return {"linuxproc": Reach.ALL, "pgid": Reach.GROUP}.get(tracker, Reach.TASK)


def spawn_ranks(
    environ: Mapping[str, str], hosts: Sequence[Tuple[str, int]], argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start one step with the given number of tasks on each of ``hosts``: --distribution=arbitrary follows
    --nodelist."""
    names = [name for name, count in hosts for _ in range(count)]
    words = [
        "srun", "--overlap", "--overcommit", f"--jobid={environ['SLURM_JOB_ID']}", "--job-name=redmesh-ranks",
        f"--nodes={len(hosts)}", f"--ntasks={len(names)}", "--distribution=arbitrary", f"--nodelist={','.join(names)}",
        "--input=none", "--output=none", "--mpi=none", "--cpu-bind=none", "--mem=0", "--chdir=/", "--export=ALL",
        "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--quiet", *het_jobs.options(environ, names[0]),
    ]  # fmt: skip
    return client([*words, *argv], {**environ, **env}, drop=_OPTIONS)


def _step(
    environ: Mapping[str, str], hosts: Sequence[str], argv: Sequence[str], env: Mapping[str, str], *, label: bool
) -> subprocess.Popen[bytes]:
    count = str(len(hosts))
    words: List[str] = [
        "srun", "--overlap", f"--jobid={environ['SLURM_JOB_ID']}", "--job-name=redmesh", f"--nodes={count}",
        f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}", "--input=all", "--mpi=none",
        "--cpu-bind=none", "--mem=0", "--chdir=/", "--export=ALL", "--kill-on-bad-exit=0", "--wait=0", "--no-kill",
        "--quiet", *het_jobs.options(environ, hosts[0]),
    ]  # fmt: skip
    if label:
        words.append("--label")
    return client([*words, *argv], {**environ, **env}, drop=_OPTIONS)


def settled(handle: subprocess.Popen[bytes]) -> None:
    """Kill srun's second process, which sends SIGKILL to the whole step when srun is killed.

    With proctrack/cgroup, Slurm kills all processes of the job's script as soon as it exits, srun among them, and the
    ranks would not have the time of KillWait (src/srun/libsrun/srun_job.c of 22.05, _shepherd_spawn). Where ``srun`` is
    a script that starts the real one, its child is the client itself, which must not be killed.
    """
    for pid in processes.children(handle.pid):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                name = file.read()
            if name == "srun\n" and os.path.samestat(os.stat(f"/proc/{pid}/exe"), os.stat(f"/proc/{handle.pid}/exe")):
                processes.send_signal(pid, SIGKILL)
        except OSError:
            pass  # it has just exited


def submit(environ: Mapping[str, str], count: int, limit: str, options: Sequence[str]) -> str:
    """Submit a job of ``count`` nodes that does nothing itself; return its number."""
    words = [
        "sbatch", "--parsable", f"--nodes={count}", "--job-name=redmesh-grow", "--output=/dev/null", "--chdir=/",
        "--export=NONE", "--no-requeue", *([f"--time={limit}"] if limit else []), *options,
        "--wrap=exec sleep infinity",
    ]  # fmt: skip
    return ask(words, environ, 60.0).strip().partition(";")[0]  # NUMBER, or NUMBER;CLUSTER


def allocation(environ: Mapping[str, str], job: str) -> Optional[Mapping[str, str]]:
    """The variables of a submitted job that runs; None while it waits. Raises ManagerError if it has ended."""
    said = ask(["squeue", "--noheader", "--format=%T|%N|%C|%D", f"--jobs={job}"], environ).strip()
    state, _, rest = said.partition("|")
    if state in ("PENDING", "CONFIGURING"):
        return None
    if state != "RUNNING":
        raise ManagerError(f"job {job} does not run: {state.lower() or 'it has ended'}", f"scontrol show job {job}")
    names, processors, nodes = rest.split("|")
    each = int(processors) // int(nodes)
    return {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": names, "SLURM_JOB_CPUS_PER_NODE": f"{each}(x{nodes})"}


def cancel(environ: Mapping[str, str], job: str) -> None:
    """Cancel a submitted job; one that has ended is no error."""
    ask(["scancel", "--quiet", job], environ, 60.0)


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """srun forwards signals to the step's tasks."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """srun runs as long as its step."""
    return handle.poll() is None


def time_left(environ: Mapping[str, str]) -> Optional[float]:
    """Seconds until the job's limit, from its variables, or else from squeue."""
    if environ.get("SLURM_JOB_END_TIME", "").isdigit():
        return int(environ["SLURM_JOB_END_TIME"]) - time.time()
    said = ask(["squeue", "--noheader", "--format=%L", f"--jobs={environ['SLURM_JOB_ID']}"], environ)
    # A heterogeneous job has a line for each component.
    known = [seconds for seconds in map(_seconds, said.split()) if seconds is not None]
    return min(known) if known else None


def ending(environ: Mapping[str, str]) -> Optional[float]:
    """KillWait of Slurm's configuration if the job ends, as its state says; otherwise None.

    SIGTERM and KillWait are in the manual page of slurm.conf; job states in that of squeue.
    """
    words = ["squeue", "--noheader", "--states=all", "--format=%t", f"--jobs={environ['SLURM_JOB_ID']}"]
    try:
        states = ask(words, environ, _ASK_S).split()  # a heterogeneous job has one for each component
    except ManagerError as error:
        if "Invalid job id" not in error.message:
            raise
        states = ["CD"]  # Slurm has forgotten the job
    if not states or any(state not in _ENDS for state in states):
        return None
    return float(_setting(environ, "KillWait").split()[0])


def _setting(environ: Mapping[str, str], name: str) -> str:
    for line in ask(["scontrol", "show", "config"], environ, _ASK_S).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == name and value.strip():
            return value.strip()
    raise ManagerError(f"scontrol show config names no {name}", "")


def _seconds(text: str) -> Optional[float]:
    # Formats: [days-][[hours:]minutes:]seconds; UNLIMITED, NOT_SET, INVALID
    days, dash, clock = text.rpartition("-")
    fields = clock.split(":")
    if not all(field.isdigit() for field in (*fields, *([days] if dash else []))):
        return None
    seconds = 0
    for field in fields:
        seconds = seconds * 60 + int(field)
    return float(seconds + 86400 * int(days or 0))
