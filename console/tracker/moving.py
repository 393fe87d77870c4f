"""Has a job continue on another login processor: the tracker says on which, and processes there and here see to it.

``mesh job take-over JOB`` is such a process. RCAs start it for the jobs on the move that concern their login processor,
until the tracker says that the job continues where it is to (docs/decisions/0033-the-tracker-says-who-continues.md).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

from agents.job.start import start_owner
from agents.linux import prctl
from agents.objects.connection import connect
from agents.objects.holder import Holder
from agents.objects.sender import move
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.job_record import ENDED
from console.jobs.objects import directory_of, opened, summary
from console.jobs.owner_client import NoOwner, ask
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.destination import stay
from console.tracker.source import address_of, report
from console.tracker.standby import there_or_brought
from redmesh.sanitise import clean
from redmesh.state import HANDED_TO, RUNNING, StateError, owned, url_on

#: Seconds: between two looks; between two while another login processor has it; for which a process does this.
_LOOK_S, _FAR_S, _MINE_S = 0.25, 1.0, 60.0
#: Seconds between two starts of an owner, or two requests to one that refuses; requests until the job stays.
_START_S, _REFUSALS = 5.0, 3
#: The most seconds that a hand-over takes after the end of the owner.
HANDING_S = 30.0


def go_on(settings: Settings, options: argparse.Namespace) -> int:
    """Have jobs on the move go on, as far as this login processor has to do with it. An RCA starts this command."""
    prctl.set_name(b"redmesh-move")  # a keeper that inherits this process must know that it is no task
    return max(_Move(settings, uuid).run() for uuid in options.jobs)


class _Move:
    """One job on the move, as seen from this login processor."""

    def __init__(self, settings: Settings, uuid: str) -> None:
        self._settings, self._uuid, self._home = settings, uuid, login_name(settings)
        self._path = Holder(directory_of(settings.state_dir), self._home).path(uuid)
        self._started = self._refused_at = -_START_S
        self._refused = 0  # how often an owner here has refused to hand the job over
        self._asked: Any = None  # the pid of the owner that hands it over
        self._idle_since = 0.0  # when no process was seen to own the object here

    def run(self) -> int:
        """Do what there is to do until the job continues where it is to; returns 1 if it does not within a minute."""
        until, trouble = time.monotonic() + _MINE_S, ""
        while time.monotonic() < until:
            try:
                if self._step():
                    return 0
            except (AgentError, ConsoleError, StateError, OSError) as error:
                # a CPA, a node or the other login processor does not answer now
                trouble = getattr(error, "message", None) or str(error)
            time.sleep(_LOOK_S)  # poll: the owner's lock, and the tracker
        if trouble:
            print(f"mesh: job {self._uuid} does not go on here yet: {clean(trouble)}", file=sys.stderr)
        return 1  # the RCA starts another process as long as the tracker says so

    def _step(self) -> bool:
        """Returns True if nothing is left to do here."""
        try:
            found = ask_cpa(self._settings, {"op": "state_locate", "uuid": self._uuid})
        except AgentError as error:
            if error.code == "invalid":
                return True  # it was purged
            raise
        goes_to, here = str(found["goes_to"]), found["url"] == url_on(self._home, self._uuid)
        if not goes_to:
            return True
        if goes_to == self._home:
            return self._arrive(found, here=here)
        return not here or self._leave(goes_to, str(found["standby"]))

    def _arrive(self, found: dict[str, Any], *, here: bool) -> bool:
        """The job is to continue here: fetch it, start its owner, and say so when it has taken up the tasks."""
        if not here:
            if found["standby"] and not found.get("lost"):
                time.sleep(_FAR_S)
                return False  # that login processor hands it over
            there_or_brought(self._settings, self._uuid)
        job = summary(self._path)
        if not job.has_ended:
            self._start()
            if not owned(self._path) or (job.state != RUNNING and not job.held):
                return False
        stay(self._settings, self._uuid, self._home)
        return True

    def _carry(self, node: str) -> bool:
        """Send the object of a job that has ended to the node with its standby copy; the target fetches it there."""
        holder = Holder(directory_of(self._settings.state_dir), self._home)
        address = address_of(self._settings, node)
        with contextlib.suppress(AgentError), connect(address) as client:
            client.call({"op": "drop", "uuid": self._uuid})  # the object comes instead
        moved = move(holder, self._uuid, node, address)
        if moved.live:
            report(self._settings, self._uuid, self._home, node, moved.counter)
        return moved.live

    def _leave(self, login: str, standby: str) -> bool:
        """The job is to leave from here: have its owner hand it over."""
        with opened(self._path) as job:
            handed, ended = job.meta(HANDED_TO), job.meta("state") in ENDED
        if ended and not owned(self._path):
            return self._carry(standby)
        if self._refused >= _REFUSALS:
            stay(self._settings, self._uuid, login)
            return True
        if not owned(self._path):
            # Between the end of its owner and the new place its standby's process has it, unless that was killed.
            self._idle_since = self._idle_since or time.monotonic()
            if time.monotonic() - self._idle_since >= (HANDING_S if handed else _LOOK_S):
                self._start()
            return False
        self._idle_since = 0.0
        with opened(self._path) as job:
            owner = job.meta("pid")
        if handed or owner == self._asked or time.monotonic() - self._refused_at < _START_S:
            return False
        try:
            ask(self._path, "move", node=login)
            self._asked = owner
        except NoOwner:
            pass
        except ConsoleError:
            self._refused, self._refused_at = self._refused + 1, time.monotonic()
        return False

    def _start(self) -> None:
        """Start an owner unless one runs."""
        if not owned(self._path) and time.monotonic() - self._started >= _START_S:
            self._started = time.monotonic()
            start_owner(self._path)
