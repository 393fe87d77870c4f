"""Scripts for a batch system's prolog and epilog: they make a partition of the site's mesh for the time of each job.

Sources: slurm.conf(5) (PrologSlurmctld, EpilogSlurmctld, TaskProlog) of Slurm 22.05; prologue and epilogue in the
administrators' guides of OpenPBS 22.05 and Torque 6.1; sge_conf(5) (``prolog``, ``epilog``) of Son of Grid Engine
8.1.9, whose shepherd reads the file ``environment`` of the job's spool directory after the prolog.
"""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple


class Script(NamedTuple):
    """A script: its file name, the configuration key that runs it, and its text."""

    path: str
    runs: str
    text: str


class Site(NamedTuple):
    """Directories of a site.

    ``scripts`` is where the scripts are, ``commands`` where ``mesh`` is; the prolog writes ``jobs``, which jobs read.
    """

    scripts: str
    jobs: str
    commands: str


#: The job's user may control the script's environment, so commands that run as root do not get it.
_HEAD = """#!/bin/sh
# {name}: {runs}
set -eu
PATH={path}
jobs={jobs}
mesh() {{ env -i PATH="$PATH" HOME={home} mesh "$@"; }}
"""

#: Makes a partition, and a file with its variables that only the job's user can read. The file is renamed when it is
#: complete. Whatever can fail is done before the partition is made.
_MAKE = """mkdir -p -m 711 "$jobs"
umask 077
rm -f "$jobs/$job.new"
: >"$jobs/$job.new"
chown "$user" "$jobs/$job.new"
made=$(mesh partition create --batch-job "{manager}.$job" --list "$hosts" --user "$user")
printf '%s\\n' "$made" >"$jobs/$job.new"
mv "$jobs/$job.new" "$jobs/$job"
"""

#: Destroys the partition; a job whose prolog failed has none.
_DESTROY = """rm -f "$jobs/$job.new"
[ -f "$jobs/$job" ] || exit 0
partition=$(sed -n 's/^REDMESH_PARTITION=\\([0-9]*\\)$/\\1/p' "$jobs/$job")
mesh partition destroy "$partition" --force
rm -f "$jobs/$job"
"""

#: ``exec_host`` of ``qstat -f``: HOST/0*4+HOST/1 (OpenPBS), HOST/0-3+HOST/0 (Torque).
_PBS_HOSTS = """hosts=$(qstat -f "$job" | tr -d '\\n\\t' | sed -n 's/.*exec_host = \\([^ ]*\\).*/\\1/p' |
  tr + '\\n' | sed 's,[./].*,,' | sort -u | paste -sd, -)
"""

_SGE_JOB = """user=$1 job=$2
[ "$3" = 0 ] || job=$job.$3
"""

#: A job without a parallel environment has no such file.
_SGE_HOSTS = """hosts=$(sed 's/[. ].*//' "$SGE_JOB_SPOOL_DIR/pe_hostfile" 2>/dev/null | sort -u | paste -sd, -)
hosts=${hosts:-$(uname -n | sed 's/[.].*//')}
"""
_SGE_HAND = """printf '%s\\n' "$made" >>"$SGE_JOB_SPOOL_DIR/environment"
"""


def scripts(manager: str, site: Site) -> tuple[list[Script], list[str]]:
    """The scripts of ``manager`` (a key of _MAKERS), and lines that say what to configure where."""
    return _MAKERS[manager](site)


def _script(site: Site, name: str, runs: str, *parts: str) -> Script:
    path = f"{site.commands}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    words = {"path": path, "jobs": site.jobs, "home": os.path.expanduser("~")}
    head = _HEAD.format(name=name, runs=runs, **{key: shlex.quote(word) for key, word in words.items()})
    return Script(f"{site.scripts}/{name}", runs, head + "".join(parts))


def _slurm(site: Site) -> tuple[list[Script], list[str]]:
    job = "job=$SLURM_JOB_ID user=$SLURM_JOB_USER hosts=$SLURM_JOB_NODELIST\n"
    hand = 'if [ -r "$jobs/$SLURM_JOB_ID" ]; then sed "s/^/export /" "$jobs/$SLURM_JOB_ID"; fi\n'
    made = [
        _script(
            site,
            "redmesh-prolog",
            "slurmctld runs it before each job, as SlurmUser",
            job,
            _MAKE.format(manager="slurm"),
        ),
        _script(
            site, "redmesh-task", "slurmd runs it as the job's user; what it prints is the job's environment", hand
        ),
        _script(site, "redmesh-epilog", "slurmctld runs it after each job, as SlurmUser", job, _DESTROY),
    ]
    return made, [
        "slurm.conf (slurmctld loads it when it starts; slurmd by scontrol reconfigure):",
        f"  PrologSlurmctld={made[0].path}",
        f"  TaskProlog={made[1].path}",
        f"  EpilogSlurmctld={made[2].path}",
        "  PartitionName=… OverSubscribe=EXCLUSIVE     a job has its nodes alone",
        "SlurmUser is root, or an account that may do what `mesh partition create --user` does.",
    ]


def _pbs(site: Site) -> tuple[list[Script], list[str]]:
    job = "job=$1 user=$2\n"
    made = [
        _script(
            site, "prologue", "pbs_mom runs it before each job, as root, on the job's first host", job, _PBS_HOSTS,
            _MAKE.format(manager="pbs"),
        ),
        _script(site, "epilogue", "pbs_mom runs it after each job, as root, on the job's first host", job, _DESTROY),
    ]  # fmt: skip
    return made, [
        "Both scripts are root's, mode 0500, in mom_priv of every host that may be a job's first one.",
        "PBS hands a job no variables of its prologue. The job's script begins with:",
        f'  set -a; . {shlex.quote(site.jobs)}/"$PBS_JOBID"; set +a',
        "A job has its hosts alone: -l place=excl (OpenPBS), -n (Torque).",
    ]


def _sge(site: Site) -> tuple[list[Script], list[str]]:
    made = [
        _script(
            site, "redmesh-prolog", "sge_shepherd runs it before each job, as root, on the job's master host",
            _SGE_JOB, _SGE_HOSTS, _MAKE.format(manager="sge"), _SGE_HAND,
        ),
        _script(site, "redmesh-epilog", "sge_shepherd runs it after each job, as root", _SGE_JOB, _DESTROY),
    ]  # fmt: skip
    return made, [
        "qconf -mconf (or -mq QUEUE):",
        f"  prolog root@{made[0].path} $job_owner $job_id $ja_task_id",
        f"  epilog root@{made[1].path} $job_owner $job_id $ja_task_id",
        "A job has its hosts alone: a queue with as many slots as processors, and -l exclusive.",
    ]


_MAKERS = {"slurm": _slurm, "pbs": _pbs, "sge": _sge}
