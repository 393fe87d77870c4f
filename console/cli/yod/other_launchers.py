"""Words of other launchers: what to write instead of them. Imported only after an error.

The launchers are srun and sbatch, prun, mpiexec of MPICH and Open MPI, aprun, GNU parallel, pdsh and clush.
"""

from __future__ import annotations

import shutil

from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.cli.options.parser import OptionError, Parsed
    from console.errors import ConsoleError

_NO_QUEUES = "leave it out: a mesh has no partitions and accounts; mesh reserve gives processors to one user"
_DAEMONS = "leave it out: the mesh's daemons start the ranks"
_MPIR = "debuggers attach by yod -proctable FILE, or mesh procs ID --mpir-stub"
_JOBS = "tasks are for mesh submit and mesh sections run"

#: Words without dashes, with yod's alternative. Words that yod accepts (-np, -ppn, --ntasks, --hostfile, --chdir,
#: --time) are not here.
_HINTS = {
    "oversubscribe": "-overcommit",
    "overlap": "-overcommit",
    "map-by": "-distribution block|cyclic, -nodes N and -tasks-per-node N say where ranks go",
    "rank-by": "-distribution block|cyclic",
    "bynode": "-distribution cyclic",
    "byslot": "-distribution block",
    "npernode": "-tasks-per-node N",
    "N": "-nodes N",
    "bind-to": "-cpu-bind core, none or map:0,2,4",
    "bind-to-core": "-cpu-bind core",
    "bind-to-none": "-cpu-bind none",
    "report-bindings": "leave it out: yod tells who is bound to what when -cpu-bind is given",
    "H": "-list NODES",
    "env": "-export ALL,NAME=VALUE",
    "genv": "-export ALL,NAME=VALUE",
    "envall": "leave it out: -export ALL is the default",
    "genvall": "leave it out: -export ALL is the default",
    "envnone": "-export NONE",
    "genvnone": "-export NONE",
    "envlist": "-export NAME,NAME",
    "genvlist": "-export NAME,NAME",
    "wdir": "-chdir DIR",
    "wd": "-chdir DIR",
    "path": "write the program's path, or PATH=DIR:$PATH yod …",
    "tag-output": "-label",
    "prepend-rank": "-label",
    "output-filename": "-output FILE, with {rank} in it",
    "merge-stderr-to-stdout": "-output FILE and -error FILE may name the same file",
    "display-map": "-dry-run",
    "display-allocation": "-dry-run",
    "timeout": "-time 90s",
    "mem": "leave it out: yod does not limit memory",
    "mem-per-node": "leave it out: yod does not limit memory",
    "exclusive": "leave it out: a processor serves one launch at a time",
    "exact": "leave it out: a processor serves one launch at a time",
    "job-name": "leave it out: the launcher's id names a launch",
    "multi-prog": "-load FILE",
    "configfile": "-load FILE",
    "app": "-load FILE",
    "allow-run-as-root": "leave it out: yod runs as whoever calls it",
    "mca": "-export ALL,OMPI_MCA_NAME=VALUE",
    "gmca": "-export ALL,OMPI_MCA_NAME=VALUE",
    "tune": "-export ALL,OMPI_MCA_NAME=VALUE",
    "usize": "leave it out: yod starts all ranks at once",
    "launcher": _DAEMONS,
    "rsh": _DAEMONS,
    "bootstrap": _DAEMONS,
    "rmk": _DAEMONS,
    "gdb": "yod -hold, then mesh debug ID RANK; or mesh debug ID RANK while the launch runs",
    "debugger": "yod -hold, then mesh debug ID RANK",
    "stop-on-exec": "-hold",
    "stop-in-init": "-hold",
    "stop-in-app": "-hold",
    "tv": _MPIR,
    "ddt": _MPIR,
    "outfile-pattern": "-output FILE, with {rank} in it",
    "outfile": "-output FILE, with {rank} in it",
    "errfile-pattern": "-error FILE, with {rank} in it",
    "errfile": "-error FILE, with {rank} in it",
    "V": "-version",
    "info": "-version",
    "perhost": "-tasks-per-node N",
    "ranks-per-proc": "-tasks-per-node N",
    "pernode": "-tasks-per-node 1",
    "rr": "-distribution cyclic",
    "cpus-per-rank": "-cpus-per-task N",
    "cpus-per-proc": "-cpus-per-task N",
    "print-rank-map": "-dry-run",
    "display": "-dry-run",
    "display-devel-map": "-dry-run",
    "do-not-launch": "-dry-run",
    "test-only": "-dry-run",
    "trace": "-D",
    "nooversubscribe": "leave it out: ranks never share a processor without -overcommit",
    "nolocal": "-exclude NODES",
    "default-hostfile": "-hostfile FILE",
    "nodefile": "-hostfile FILE",
    "prefix": "write the program's path, or PATH=DIR:$PATH yod …",
    "preload-binary": "-bcast always",
    "gres": "-gpus-per-task N",
    "gpus-per-node": "-gpus-per-task N",
    "G": "-gpus-per-task N",
    "mem-per-cpu": "leave it out: yod does not limit memory",
    "mem-per-gpu": "leave it out: yod does not limit memory",
    "J": "leave it out: the launcher's id names a launch",
    "comment": "leave it out: mesh history keeps the command line",
    "partition": _NO_QUEUES,
    "account": _NO_QUEUES,
    "A": _NO_QUEUES,
    "qos": _NO_QUEUES,
    "constraint": "-list NODES",
    "C": "-list NODES",
    "reservation": _NO_QUEUES,
    "licenses": "leave it out: a mesh counts no licences",
    "jobid": "REDMESH_PARTITION and REDMESH_ALLOCATION_COOKIE in the environment, as in a batch job of the mesh",
    "array": "mesh submit --array LIST -- PROGRAM",
    "wrap": "yod sh -c '…', or mesh submit -- sh -c '…'",
    "dependency": "mesh submit --after JOB -- PROGRAM",
    "begin": "mesh submit --hold -- PROGRAM, then mesh release JOB",
    "mail-type": "leave it out: yod returns the exit status; mesh wait JOB waits for a job",
    "mail-user": "leave it out: yod returns the exit status; mesh wait JOB waits for a job",
    "open-mode": "leave it out: a file is emptied; {launcher} in its name keeps former ones",
    "no-kill": "leave it out: the ranks on other nodes continue",
    "ntasks-per-core": "-cpus-per-task N, -cpu-bind core",
    "ntasks-per-socket": "-cpus-per-task N, -cpu-bind core",
    "threads-per-core": "-cpu-bind map:0,2,4",
    "hint": "-cpu-bind map:0,2,4",
    "cpu_bind": "-cpu-bind core, none or map:0,2,4",
    "cc": "-cpu-bind core, none or map:0,2,4",
    "accel-bind": "leave it out: -gpus-per-task gives each rank its own GPUs",
    "jobs": f"{_JOBS}: --limit N",
    "joblog": "mesh sections report --joblog",
    "halt": f"{_JOBS}; a launch ends at the first bad exit with -kill",
    "resume": "mesh sections resume",
    "colsep": "mesh sections run --colsep TEXT",
    "arg-file": "mesh submit --tasks FILE",
    "a": "pdsh -a: -nodes N; GNU parallel -a FILE: mesh submit --tasks FILE",
}
#: yod's options with a value, and the option of another launcher that has the same spelling and another meaning.
_ELSEWHERE = {
    "list": "srun's and mpiexec's -l, the rank before every line, is -label",
    "d": "to print all steps: -D, which takes no value",
    "umask": "srun's -u is -N",
    "pid": "srun's -p: a mesh has no partitions of that kind; leave it out",
    "exclude": "Open MPI's -x NAME is -export ALL,NAME; ALL alone is the default",
}
#: yod's flags whose spelling takes a value elsewhere.
_FLAGS = {
    "D": "-D is a flag; srun's -D DIR is -chdir DIR",
    "interactive": "-i is the flag -interactive; srun's -i FILE is -stdin FILE",
    "json": "-j is the flag -json; GNU parallel's -j N is --limit N of mesh sections run and mesh submit",
    "immediate": "-immediate is a flag; -wait-for-nodes S waits up to S seconds",
    "quiet": "-q is the flag -quiet; a mesh has no queues to choose from",
    "kill": "-kill is a flag; yod -signal KILL ID ends a launch",
    "Log": "-L is the flag -Log; a mesh counts no licences",
}
#: Beginnings that several of yod's options share, with another launcher's meaning.
_SHARED = {"s": "mpiexec's -s WHO is -input WHO", "m": "srun's -m is -distribution", "b": "-batch or -bt"}


def explain(error: OptionError) -> None:
    """Replace the hint of an error about an option if the word has a meaning for another launcher."""
    word = error.word.lstrip("-")
    if error.name:
        error.hint = _ELSEWHERE.get(error.name, error.hint)
    elif word in _SHARED:
        error.hint += f"; {_SHARED[word]}"
    else:
        error.hint = _hint_for(word) or error.hint


def explain_program(error: ConsoleError, parsed: Parsed) -> None:
    """Change the message or the hint of an error about the program if the last option probably was misunderstood."""
    name, written, value = parsed.last
    if not parsed.rest and "load" not in parsed.values:
        if value and ("/" in value or shutil.which(value)):
            error.message = f"no program to launch: {written} took {clean(value)!r} as its value"
            error.hint = _ELSEWHERE.get(name, f"the value of {written} comes first, then the program")
    elif parsed.rest and not parsed.ended and error.exit_status in (126, 127) and name in _FLAGS:
        error.hint = _FLAGS[name]


def _hint_for(name: str) -> str:
    if name[:1] == "N" and name[1:].isdigit():  # srun's -N2
        return f"-nodes {name[1:]}"
    if name[:1] == "j" and name[1:].isdigit():  # GNU parallel's -j8
        return f"{_JOBS}: --limit {name[1:]}"
    return _HINTS.get(name, "")
