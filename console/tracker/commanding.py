"""Commands and queries that need more than a job's summary, for a job on another host.

A running job's owner gets commands through the node with its standby copy. A job that has ended, or was suspended, is
brought to this host first. A query gets a copy of the object.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from agents.objects.commands import ANSWER_S
from agents.objects.connection import connect
from agents.wire.control import decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, FILE
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.objects import directory_of, make_directory
from console.jobs.owner_client import NoOwner
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.destination import await_arrival, continue_on
from console.tracker.source import Source, source

#: Seconds: for a job on the move to have an owner again; between two looks; for a node to send an object of any size.
_FOUND_S, _LOOK_S, _LONGEST_S = 60.0, 0.5, 600.0


def command_there(
    settings: Settings, name: str, command: str, *, ended: bool, members: dict[str, Any]
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Have the owner of a job on another host carry out a command; returns its answer. If the job has no owner there
    because it was suspended, or (``ended``) has ended, the answer is empty, and the second is the path of its object,
    brought here.

    Raises ConsoleError.
    """
    until = time.monotonic() + _FOUND_S
    while True:
        try:
            found = source(settings, name)
            if found.path:
                return {}, found.path
            job = found.job()
            if job.has_ended and not ended:
                raise ConsoleError(f"job {found.uuid[:8]} has ended already: {job.state}", "", exit_status=1)
            if not found.proxied or job.has_ended:
                return {}, _brought(settings, found)
            if not job.owner_lost:
                return _asked(found, command, members), ""
            trouble: ConsoleError = NoOwner(
                f"job {found.uuid} has lost its owner on {found.proxied}", f"mesh job resume {found.uuid} there"
            )
        except NoOwner as error:
            trouble = error  # it is being moved
        if time.monotonic() > until:
            raise trouble
        time.sleep(_LOOK_S)  # poll: on its way


def bring_ended(settings: Settings, found: Source) -> str:
    """Bring the object of a job that has ended on another login processor; returns its path. Raises ConsoleError."""
    job = found.job()
    if not job.has_ended:
        raise ConsoleError(
            f"job {found.uuid} has not ended: it is {job.state} on {found.proxied}", "end the job first (mesh cancel)",
            exit_status=1,
        )  # fmt: skip
    return _brought(settings, found)


def _asked(found: Source, command: str, members: dict[str, Any]) -> dict[str, Any]:
    message = {"op": "command", "uuid": found.uuid, "command": command, "members": members}
    try:
        with connect(found.address) as client:
            answer: dict[str, Any] = client.call(message, 2 * ANSWER_S)["answer"]
    except AgentError as error:
        raise NoOwner(error.message, error.hint or "mesh job show") from None
    if answer.get("gone"):
        raise NoOwner(str(answer["error"]), str(answer.get("hint", "")))
    if "error" in answer:
        raise ConsoleError(str(answer["error"]), str(answer.get("hint") or "mesh job show"), exit_status=1)
    return answer


def _brought(settings: Settings, found: Source) -> str:
    """Bring the object of a job that does not run here; returns its path. Raises NoOwner while it is on the move."""
    home = login_name(settings)
    try:
        told = ask_cpa(settings, {"op": "state_locate", "uuid": found.uuid})
        if told["goes_to"] not in ("", home):
            raise NoOwner(f"job {found.uuid} is on its way to {told['goes_to']}", "mesh job show")
        if not found.proxied:
            from console.tracker.standby import bring

            return bring(settings, found.uuid)
        continue_on(settings, found.uuid, home)
        await_arrival(settings, found.uuid, home)
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    here = source(settings, found.uuid)
    if not here.path:
        raise NoOwner(f"job {found.uuid} has moved on", "mesh job show")
    return here.path


@contextlib.contextmanager
def at_hand(settings: Settings, name: str) -> Iterator[str]:
    """The path of a job's object on this host, or of a copy as of now of one on another host, deleted afterwards.

    Raises ConsoleError.
    """
    found = source(settings, name)
    if found.path:
        yield found.path
        return
    found.job()  # finds the node that has the object, or its copy, now
    directory = directory_of(settings.state_dir)
    make_directory(directory)
    aside = os.path.join(directory, f".copy-{os.urandom(8).hex()}")
    try:
        _fetch(found, aside)
        yield aside
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside + ending)


def _fetch(found: Source, path: str) -> None:
    import hashlib

    digest = hashlib.sha256()
    try:
        with (
            connect(found.address, _LONGEST_S) as client,
            open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file,
        ):
            client.tell({"op": "content", "id": 0, "uuid": found.uuid})
            while True:
                kind, payload = client.receive_frame()
                if kind == FILE:
                    digest.update(payload)
                    file.write(payload)
                elif kind != CONTROL:
                    raise WireError(f"a frame of kind {kind} where an object was expected")
                elif "re" in (told := decode(payload)):  # not the node's hello
                    break
            if "error" in told:
                raise AgentError.from_message(told["error"])
            if told.get("digest") != digest.hexdigest():
                raise WireError(f"{found.node} sent another object than it has")
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror or error}", "check the disk", exit_status=1) from None
