"""Has jobs go on that are to continue on another login processor: this one, or one to which they leave from here.

The tracker says which jobs (docs/decisions/0033-the-tracker-says-who-continues.md). It does so until a job continues
where it is to, so whichever process of this is lost, another one is started.
"""

from __future__ import annotations

import os
import time

from agents.link.journal import Journal
from redmesh.start_command import start_command

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from typing import Any

#: Seconds after the start of a process for a job until another one is started for this job.
AGAIN_S = 5.0
#: Processes of one user at once: mesh drain may move hundreds of jobs, and a user may report any number of them.
MOST_OF_ONE = 8


class MovingJob:
    """A job of the user ``uid``, its object on ``node``, that is to continue on the login processor ``goes_to``."""

    __slots__ = ("goes_to", "node", "uid", "uuid")

    def __init__(self, uuid: str, uid: int, node: str, goes_to: str) -> None:
        self.uuid, self.uid, self.node, self.goes_to = uuid, uid, node, goes_to


class _Process:
    """A process that has a job go on, started ``since``, in monotonic seconds."""

    __slots__ = ("process", "since", "uid")

    def __init__(self, process: subprocess.Popen[bytes], since: float, uid: int) -> None:
        self.process, self.since, self.uid = process, since, uid


class MovingJobs:
    """Starts a process for each job on the move that concerns this login processor, ``login``: the Redmesh in
    ``installed``, in system mode with the uid of the job's user."""

    def __init__(
        self, login: str, installed: str, journal: Journal, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._login, self._installed, self._journal, self._clock = login, installed, journal, clock
        self._started: dict[str, _Process] = {}
        self._tried: dict[str, float] = {}  # when a process was last started for each job on the move
        #: True while jobs are on the move: the tracker is read until they are where they are to be.
        self.any = False

    def learn(self, jobs: Sequence[MovingJob]) -> None:
        """Apply what the tracker says: the jobs on the move, as in *nodes_out*."""
        now = self._clock()
        self.any = bool(jobs)
        self._started = {
            uuid: one for uuid, one in self._started.items() if one.process.poll() is None or now - one.since < AGAIN_S
        }
        ours = [job for job in jobs if self._login in (job.node, job.goes_to)]
        self._tried = {job.uuid: self._tried.get(job.uuid, 0.0) for job in ours}
        running = [one.uid for one in self._started.values() if one.process.poll() is None]
        # Those that never had a turn come first: a job that cannot go on holds up no other one.
        for job in sorted(ours, key=lambda job: self._tried[job.uuid]):
            if job.uuid not in self._started and running.count(job.uid) < MOST_OF_ONE:
                running.append(job.uid)
                self._tried[job.uuid] = now
                self._start(job, now)

    def _start(self, job: MovingJob, now: float) -> None:
        import subprocess  # most RCAs never have a job go on

        try:
            process = subprocess.Popen(
                [*start_command("mesh", self._installed), "job", "take-over", job.uuid],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
                **({} if job.uid == os.geteuid() else as_user(job.uid)),
            )  # fmt: skip
        except (OSError, KeyError) as error:
            why = getattr(error, "strerror", None) or f"there is no user with uid {job.uid} here"
            self._journal.write("fault", reason=f"a job cannot go on here: {why}", job=job.uuid)
            return
        self._started[job.uuid] = _Process(process, now, job.uid)
        self._journal.write("job_moving", job=job.uuid, node=job.node, goes_to=job.goes_to, pid=process.pid)


def as_user(uid: int) -> dict[str, Any]:
    """How subprocess starts a command of another user, with nothing of root's in its environment, and none of root's
    files open, which the user could truncate. Raises KeyError."""
    import pwd
    import subprocess

    user = pwd.getpwuid(uid)
    kept = {name: os.environ[name] for name in ("PATH", "REDMESH_CONFIG") if name in os.environ}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    environment = {**kept, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    ids = {"user": uid, "group": user.pw_gid, "extra_groups": groups, "umask": 0o077}
    return {**ids, "env": environment, "stderr": subprocess.DEVNULL}
