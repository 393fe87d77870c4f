"""The cases: what is done to a job, and what its ranks must have seen afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence

from tests.batch.lost_node import Node
from tests.batch.slurm_job import TWICE_S, Job, User

NODES, RANKS = 3, 6
#: Signals to the whole job, and to its steps one by one.
SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP", "XCPU")
#: Variables that ranks keep, and some that tell a program that srun has started it.
KEPT = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_SUBMIT_DIR", "SLURM_JOB_NODELIST", "SLURM_CPUS_PER_TASK")
FOREIGN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_TASK_PID")
#: Seconds in which a mesh says that a node is lost, and in which everything there ends.
SILENCE_S = 15.0
#: How often a rank gets SIGTERM. Before SIGKILL, Slurm itself sends it twice in a row at a time limit and for
#: preemption, also to the tasks of srun; a process gets one or both, because the first may still be pending.
ONCE, OF_SLURM = frozenset((1,)), frozenset((1, 2))
EXEC, SHELL = "exec {yod}", "{yod}"


class Case:
    """``done(job)`` does something to a job whose ranks run, and returns what was wrong with it."""

    def __init__(
        self, name: str, title: str, done: Callable[[Job], list[str]], script: str = EXEC, options: Sequence[str] = ()
    ) -> None:
        self.name, self.title, self.done, self.script, self.options = name, title, done, script, options


def run(case: Case, user: User, level: str) -> tuple[list[str], list[str]]:
    """Run a case in a job of its own; returns what was wrong, and what was left of the job."""
    options = ["--cpus-per-task=1", "--job-name=tried", *case.options]
    job = Job(user, level, NODES, RANKS, options, case.script)
    try:
        wrong = case.done(job) if job.begins() else [f"the ranks do not start: {job.state()} {job.said()[-300:]}"]
    except Exception as error:
        wrong = [repr(error)]
    finally:
        job.close()
    left = job.left()
    job.remove()
    return wrong, left


def signals(job: Job) -> list[str]:
    """Each signal reaches each rank once, whether it goes to the job or to the step that has the ranks."""
    wrong = []
    for name in SIGNALS:
        for target in (job.number, job.steps()[-1]):
            before, sent = job.counts(name), time.time()
            job.user.run("scancel", "-s", name, target)
            job.wait(lambda: min(_more(job, name, before)) > 0, 10.0)  # noqa: B023
            time.sleep(TWICE_S)  # a second copy would come now
            if _more(job, name, before) != [1] * RANKS:
                what = f"SIG{name} to {'the step' if '.' in target else 'the job'} at {sent:.3f}"
                wrong.append(f"{what}: {_more(job, name, before)}, rank 0 at {job.when(name)}")
    return [*wrong, *([] if job.state() == "R" else [f"the job is {job.state()}"])]


def suspended(job: Job) -> list[str]:
    """Every rank stops, and continues."""
    job.root("scontrol", "suspend", job.number)
    stopped = job.wait(lambda: not any(job.moves()), 20.0)
    job.root("scontrol", "resume", job.number)
    back = job.wait(lambda: all(job.moves()), 20.0)
    return [
        text for held, text in ((stopped, "ranks run while suspended"), (back, "ranks do not continue")) if not held
    ]


def announced(job: Job) -> list[str]:
    """``--signal``: the ranks get it once, some time before the limit."""
    job.wait(lambda: min(job.counts("USR1")) > 0, 130.0)
    time.sleep(TWICE_S)
    return [] if job.counts("USR1") == [1] * RANKS else [f"SIGUSR1 of --signal: {job.counts('USR1')}"]


def cancelled(job: Job) -> list[str]:
    """After ``scancel`` each rank gets SIGTERM once, and writes its checkpoint."""
    return _ends(job, lambda: job.user.run("scancel", job.number))


def limited(job: Job) -> list[str]:
    """At the time limit too."""
    return _ends(job, lambda: None, OF_SLURM)


def preempted(job: Job) -> list[str]:
    """A job of a partition of higher priority takes the nodes."""
    nodes = ",".join(job.nodes())
    words = ("sbatch", "--partition=high", "--exclusive", f"--nodelist={nodes}", "--output=/dev/null", "--wrap=true")
    return _ends(job, lambda: job.user.run(*words), OF_SLURM)


def taken_down(job: Job) -> list[str]:
    """``mesh down --force`` in the job."""
    environ = f"REDMESH_JOB={job.state_directory()}"
    ends: list[subprocess.CompletedProcess[str]] = []
    wrong = _ends(job, lambda: ends.append(job.user.run("env", environ, "mesh", "down", "--force")))
    return wrong + [f"mesh down ended with {end.returncode}: {end.stderr}" for end in ends if end.returncode]


def variables(job: Job) -> list[str]:
    """What the job says of itself reaches the ranks; what makes a program think that srun started it does not."""
    found = [job.variables(rank) for rank in range(RANKS)]
    wrong = [f"rank {rank} lacks {name}" for rank, one in enumerate(found) for name in KEPT if not one.get(name)]
    wrong += [f"rank {rank} has {name}" for rank, one in enumerate(found) for name in FOREIGN if name in one]
    return wrong + [
        f"rank {rank} on {one['YOD_NODE']} has SLURMD_NODENAME={one.get('SLURMD_NODENAME')}"
        for rank, one in enumerate(found)
        if one.get("SLURMD_NODENAME") != one["YOD_NODE"]
    ]


def node_dies(job: Job) -> list[str]:
    """A node of ranks is lost: yod says so, what runs there ends by itself, and the other ranks run on."""
    node = job.nodes()[1]
    lost = Node(job, node)
    named = re.compile(rf"{node}: (this node ends: )?slurmstepd \(process \d+\) has exited")
    there = set(job.processes(node))
    lost.kill()
    try:
        said = job.wait(lambda: bool(named.search(job.said())), SILENCE_S)
        ended = job.wait(lambda: not there & set(job.processes(node)), SILENCE_S)
        on = [moves for rank, moves in enumerate(job.moves()) if job.variables(rank)["YOD_NODE"] != node]
        left = [words for pid, words in job.processes(node).items() if pid in there]
    finally:
        lost.restore()
    return [
        *([] if said else [f"yod does not name the node: {job.said()[-300:]}"]),
        *([] if ended else [f"processes run on the lost node: {left}"]),
        *([] if on and all(on) else [f"ranks of other nodes that run on: {on}"]),
    ]


def script_node_dies(job: Job) -> list[str]:
    """The script's node is lost: the whole mesh ends. srun stays there until the job ends."""
    lost = Node(job, job.nodes()[0])
    lost.kill()
    try:
        ended = job.wait(lambda: not _ours(job), SILENCE_S)
        left = _ours(job)
    finally:
        lost.restore()
    return [] if ended else [f"processes run on: {left}"]


def _ours(job: Job) -> list[str]:
    return [words for words in job.processes().values() if not words.startswith("srun ")]


def _more(job: Job, name: str, before: list[int]) -> list[int]:
    return [now - then for now, then in zip(job.counts(name), before, strict=True)]


def _ends(job: Job, begin: Callable[[], object], times: frozenset[int] = ONCE) -> list[str]:
    before = job.counts("TERM")
    (job.directory / "ending").touch()
    os.chmod(job.directory, 0o755)
    begin()
    job.ends(180.0)
    wrong = []
    if job.counts("saved") != [1] * RANKS:
        wrong.append(f"checkpoints written: {job.counts('saved')}, SIGTERM: {_more(job, 'TERM', before)}")
    elif not {*_more(job, "TERM", before)} <= times:
        wrong.append(f"SIGTERM: {_more(job, 'TERM', before)}")
    return wrong


CASES = (
    Case("signals", "a signal to the job or its step: once to each rank, the mesh stays up", signals),
    Case("suspend", "suspended and resumed", suspended),
    Case("announced", "`--signal=USR1@60`", announced, options=("--time=2", "--signal=USR1@60")),
    Case("announced-shell", "`--signal=B:USR1@60`, the script execs `yod`", announced,
         options=("--time=2", "--signal=B:USR1@60")),
    Case("scancel", "`scancel`: a checkpoint of 2 s is written, the script execs `yod`", cancelled),
    Case("scancel-shell", "`scancel`: a checkpoint of 2 s is written, the script is a shell without a trap", cancelled,
         SHELL),
    Case("limit", "time limit, the same", limited, SHELL, ("--time=1",)),
    Case("preempted", "preempted by a partition of higher priority, the same", preempted, SHELL, ("--partition=low",)),
    Case("down", "`mesh down --force`, the same", taken_down),
    Case("variables", "variables of the job", variables),
    Case("node-dies", "`slurmd` and `slurmstepd` of a node killed: `yod` says so, its processes end, others run on",
         node_dies),
    Case("script-node-dies", "the same on the script's node: all processes end except `srun`, which ends with the job",
         script_node_dies),
)  # fmt: skip
