"""Continues a job on another login processor: its owner exits here, the standby's copy becomes the object, and an
owner starts there.

The tracker's counter decides which copy is the object, as after the loss of an owner.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from agents.job.start import start_dependents, start_owner
from agents.objects.connection import connect
from agents.objects.holder import FENCED, Holder
from agents.objects.object_process import FED_S
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.settings import Settings
from console.tracker.destination import stay
from db.errors import StoreError
from db.machine.node_states import NodeState
from db.views.viewer import open_viewer
from redmesh.state import HANDED_TO, StateError, StateObject, url_on

#: Seconds: the most for readers of the object to finish, and for a CPA to answer; between two checks.
_SEAL_S, _ANSWER_S, _LOOK_S = 5.0, 10.0, 0.1


def why_not(settings: Settings, login: str, home: str) -> str:
    """Why a job of the login processor ``home`` cannot continue on ``login``; "" if it can."""
    if login == home:
        return f"it is on {home} already"
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            found = next((one for one in viewer.read().nodes if one.name == login), None)
    except StoreError as error:
        return f"the database does not say what {login} is: {error.message}"
    if found is None:
        return f"the mesh has no login processor {login[:80]!r} (mesh status lists them)"
    if found.role != "login":
        return (
            f"{login} is no login processor: a job's owner starts launches, which nodes cannot"
            f" (mesh down --force suspends jobs, then mesh job move sends the object to any node)"
        )
    return "" if found.state == NodeState.UP else f"the login processor {login} is {found.state}"


class HandOver:
    """Hands an object that has no owner any more over to its copy on the node ``node``."""

    def __init__(self, settings: Settings, holder: Holder, path: str, node: str, address: str) -> None:
        self._settings, self._holder, self._path = settings, holder, path
        self._node, self._address = node, address

    def run(self, login: str, commits: int) -> None:
        """Hand over to a copy on ``login`` with ``commits``; if that fails, the job continues here. Raises OSError.

        If a process is killed before the tracker has the higher counter, the object stays here, to be resumed.
        Afterwards the copy is the object: an owner that starts here asks the tracker before anything runs.
        """
        try:
            job = StateObject(self._path)
        except StateError:
            return  # another process has resumed the job meanwhile
        try:
            if job.meta(HANDED_TO) != login or job.commits != commits:
                # It was killed, or another process has resumed the job: what the tracker says of its move holds.
                self._stay(job, "the copy is not complete" if job.meta(HANDED_TO) == login else "its owner was lost")
                return
            until = time.monotonic() + _SEAL_S
            while not job.seal() and time.monotonic() < until:
                time.sleep(_LOOK_S)  # SQLite does not report the end of a reader
            try:
                found = self._take(job, login)
            except (AgentError, ConsoleError) as error:
                stay(self._settings, job.uuid, login)
                self._stay(job, error.message)
                return
            counter = int(found["counter"])
            self._holder.fence(job.uuid, counter, self._node, self._address)
        finally:
            job.close()
        start_dependents(self._path)  # they follow it from now on
        if self._promoted(job.uuid, counter):
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path + FENCED + ending)

    def _take(self, job: StateObject, login: str) -> dict[str, Any]:
        home, counter = self._holder.node, int(job.meta("counter") or 0)
        take = {"op": "state_takeover", "uuid": job.uuid, "node": home, "counter": counter, "uid": os.geteuid()}
        until = time.monotonic() + _ANSWER_S
        while True:
            try:
                return ask_cpa(self._settings, {**take, "witness": True, "to": login})
            except (AgentError, ConsoleError) as error:
                found = self._located(job.uuid)  # the answer may be lost although the change was made
                if found and found["url"] == url_on(self._node, job.uuid) and int(found["counter"]) == counter + 1:
                    return found
                if (found and isinstance(error, AgentError)) or time.monotonic() > until:
                    raise
            time.sleep(_LOOK_S)  # the keeper starts a CPA that has died

    def _located(self, uuid: str) -> dict[str, Any]:
        try:
            return ask_cpa(self._settings, {"op": "state_locate", "uuid": uuid})
        except (AgentError, ConsoleError):
            return {}

    def _stay(self, job: StateObject, reason: str) -> None:
        job.set_meta(**{HANDED_TO: None})
        job.log(f"the job stays here: {reason}")
        job.close()
        start_owner(self._path)

    def _promoted(self, uuid: str, counter: int) -> bool:
        """Try to make the copy the object now; if that fails, the process that fetches it does so."""
        until = time.monotonic() + FED_S
        while time.monotonic() < until:
            with contextlib.suppress(AgentError, OSError), connect(self._address, FED_S) as client:
                if client.call({"op": "promote", "uuid": uuid, "counter": counter})["live"]:
                    return True
            time.sleep(_LOOK_S)  # the connection that fed the copy may still be open
        return False
