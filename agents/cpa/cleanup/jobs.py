"""Restarts jobs of tasks whose owner was lost with its login processor, or that were handed over to this one."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from typing import Any

from agents.link.journal import Journal
from redmesh.start_command import start_command


class JobsLeft:
    """Continues jobs on this login processor, ``login``, with the Redmesh in ``installed``."""

    def __init__(self, login: str, installed: str, journal: Journal) -> None:
        self._login, self._installed, self._journal = login, installed, journal
        self._started: list[subprocess.Popen[bytes]] = []

    def go_on(self, login: str, jobs: Sequence[tuple[str, int]]) -> None:
        """Start processes that fetch the objects of ``jobs`` (UUID and uid) and start owners, unless they are for
        another login processor: in system mode one for each user, of that user's uid."""
        self._started = [one for one in self._started if one.poll() is None]
        if login not in ("", self._login):
            return
        for uid in sorted({uid for _, uid in jobs}):
            self._start(uid, [uuid for uuid, its_uid in jobs if its_uid == uid])

    def _start(self, uid: int, uuids: list[str]) -> None:
        try:
            process = subprocess.Popen(
                [*start_command("mesh", self._installed), "job", "take-over", *uuids],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
                **({} if uid == os.geteuid() else as_user(uid)),
            )  # fmt: skip
        except (OSError, KeyError) as error:
            why = getattr(error, "strerror", None) or f"there is no user with uid {uid} here"
            self._journal.write("fault", reason=f"jobs cannot go on here: {why}", jobs=uuids[:20])
            return
        self._started.append(process)
        self._journal.write("jobs_left", jobs=uuids[:20], count=len(uuids), pid=process.pid)


def as_user(uid: int) -> dict[str, Any]:
    """How subprocess starts a command of another user, with nothing of root's in its environment. Raises KeyError."""
    user = pwd.getpwuid(uid)
    kept = {name: os.environ[name] for name in ("PATH", "REDMESH_CONFIG") if name in os.environ}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    environment = {**kept, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    return {"user": uid, "group": user.pw_gid, "extra_groups": groups, "env": environment}
