"""Options of other launchers that yod lacks, and what to write instead. Imported only for an unknown option."""

from __future__ import annotations

#: Words of srun, prun, MPICH and Open MPI without dashes, with yod's alternative. Words that yod accepts (-np, -ppn,
#: --ntasks, --hostfile, --chdir, --time) are not here.
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
    "host": "-list NODES",
    "hosts": "-list NODES",
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
    "exclusive": "leave it out: a processor serves one launch at a time",
    "job-name": "leave it out: the launcher's id names a launch",
    "multi-prog": "-load FILE",
    "configfile": "-load FILE",
    "app": "-load FILE",
    "allow-run-as-root": "leave it out: yod runs as whoever calls it",
    "mca": "-export ALL,OMPI_MCA_NAME=VALUE",
    "gmca": "-export ALL,OMPI_MCA_NAME=VALUE",
    "tune": "-export ALL,OMPI_MCA_NAME=VALUE",
    "launcher": "leave it out: the mesh's daemons start the ranks",
    "rsh": "leave it out: the mesh's daemons start the ranks",
}


def hint_for(word: str) -> str:
    """What to write instead of the option ``word``, with its dashes; empty if unknown."""
    name = word.lstrip("-")
    if name[:1] == "N" and name[1:].isdigit():  # srun's -N2
        return f"-nodes {name[1:]}"
    return _HINTS.get(name, "")
