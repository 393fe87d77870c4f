"""Jobs of other users of a system mesh, as far as the launches of the machine tell: everybody sees those (showmesh).

A job's state object is its user's alone. A job that neither has processors nor waits for some is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from agents.cpa.permissions import user_name
from console.errors import ConsoleError
from console.jobs import objects
from console.settings import Settings
from db.errors import StoreError
from db.views.viewer import open_viewer
from redmesh.sanitise import clean

#: How the command of a job's launches begins; 8 digits of the job's UUID follow.
_WORKERS = "yodwork job "
#: The most ended launches that are searched for a job.
_ENDED = 200


class ForeignJob(ConsoleError):
    """The job is another user's."""


def is_admin(settings: Settings) -> bool:
    """True if the caller administers the mesh, by its configuration. For display only: a CPA decides by itself."""
    return os.geteuid() == 0 or user_name(os.geteuid()) in settings.admins


def job_of(command: str) -> str:
    """The beginning of the UUID of the job that a launch works for; "" for other launches."""
    return command[len(_WORKERS) :].partition(" ")[0] if command.startswith(_WORKERS) else ""


def find(settings: Settings, text: str) -> str:
    """Like console.jobs.objects.find, but raise ForeignJob for a job that is another user's."""
    try:
        return objects.find(settings, text)
    except ConsoleError:
        foreign = _error(settings, text) if settings.system and len(text) >= objects.SHORTEST else None
        if foreign is None:
            raise
    raise foreign


def _error(settings: Settings, text: str) -> ForeignJob | None:
    """Whose the job ``text`` is and what to do; None if no launch of another user belongs to it."""
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            live = viewer.read().launchers
            row = _of_job([one for one in live if one.ended_at is None], text) or _of_job(viewer.history(_ENDED), text)
    except StoreError:
        return None
    if row is None or row.uid == os.geteuid():
        return None
    job, whose = job_of(row.command), clean(row.user)
    hint = f"ask {whose} or root; showmesh shows what runs of it"
    if os.geteuid() == 0:
        hint = f"as root: runuser -l {whose} -c 'mesh cancel {job}', or another command"
    elif is_admin(settings):
        hint = f"pingd -user {whose} -kill ends what runs there; {whose} or root ends the job (mesh cancel)"
    return ForeignJob(f"job {job} is {whose}'s, and only {whose} can read or change it", hint)


def _of_job(launchers: Iterable[Any], text: str) -> Any:
    """A launch of the job that ``text`` names by its UUID or the beginning of it; None if there is none."""
    return next((one for one in launchers if (job := job_of(one.command)) and job.startswith(text[: len(job)])), None)
