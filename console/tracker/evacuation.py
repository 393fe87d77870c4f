"""Moves state objects from a node that is being drained to other nodes of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from agents.objects.commands import ELSEWHERE
from agents.objects.connection import connect
from agents.wire.address import SCHEME
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.objects import directory_of, summary, uuids
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.destination import await_arrival, continue_on
from console.tracker.source import address_of, pass_for, report, source
from db.errors import StoreError
from db.machine.node_states import NodeState
from db.views.viewer import open_viewer
from redmesh.state import job_path, owned

#: The most seconds for a node to send an object of any size.
LONGEST_S = 600.0


def nodes_that_are_up(settings: Settings) -> list[tuple[str, str]]:
    """(name, address) of nodes that are up and reachable from other machines, by name. Raises StoreError."""
    with open_viewer(settings.database, settings.login) as viewer:
        nodes = viewer.read().nodes
    return sorted(
        (one.name, one.address) for one in nodes if one.state == NodeState.UP and one.address.startswith(SCHEME)
    )


def evacuate(settings: Settings, names: list[str], say: Callable[[str], None]) -> int:
    """Send the objects on the nodes ``names`` to other nodes; returns how many were sent. In system mode root sends
    those of all users.

    ``say`` gets a line for each object that was sent, or that stays, with the reason. Nodes of this host are skipped:
    their objects are files of this host, and stay readable.
    """
    try:
        there = nodes_that_are_up(settings)
    except StoreError:
        return 0
    others = cycle([one for one in there if one[0] not in names])
    moved = 0
    for name in names:
        try:
            address = address_of(settings, name)
            if not address.startswith(SCHEME):
                continue
            with connect(address, LONGEST_S) as client:
                held = client.call({"op": "held"})
            for uuid in held.get("fed", ()):
                _keep_elsewhere(address, uuid, name, say)
            uids = held.get("uids", {})
            for uuid in held["jobs"]:
                moved += _sent(settings, address, uuid, name, next(others, None), uids.get(uuid), say)
        except (AgentError, ConsoleError) as error:
            say(f"state objects on {name} stay there: {error.message}")
    return moved


def hand_over_all(settings: Settings, names: list[str], say: Callable[[str], None]) -> int:
    """Have the jobs that run on the login processors among ``names`` continue on others that are up; returns how many
    do. An administrator does so for all users. ``say`` gets a line for each job.
    """
    with open_viewer(settings.database, settings.login) as viewer:
        nodes = viewer.read().nodes
    logins = [one for one in nodes if one.role == "login"]
    up = sorted(one.name for one in logins if one.state == NodeState.UP and one.name not in names)
    others, sent = cycle(up), []
    for name in (one.name for one in logins if one.name in names):
        jobs = [(str(uuid), int(uid)) for uuid, uid in ask_cpa(settings, {"op": "state_on", "login": name})["jobs"]]
        if name == login_name(settings):
            _tell_staying(settings, name, [uuid for uuid, _ in jobs], say)
        for uuid, uid in jobs:
            login = next(others, "")
            if not login:
                say(f"job {uuid} continues on {name}: no other login processor is up")
            elif not _has_ended(settings, uuid):
                continue_on(settings, uuid, login, uid)
                sent.append((uuid, login))
    moved = 0
    for uuid, login in sent:
        try:
            await_arrival(settings, uuid, login)
        except (AgentError, ConsoleError) as error:
            say(f"job {uuid} does not continue on {login} yet: {error.message}")
            continue
        say(f"job {uuid} continues on {login}")
        moved += 1
    return moved


def _tell_staying(settings: Settings, home: str, moving: list[str], say: Callable[[str], None]) -> None:
    """Say which jobs of this login processor cannot move."""
    directory = directory_of(settings.state_dir)
    for uuid in uuids(directory):
        path = job_path(directory, uuid)
        if uuid not in moving and owned(path) and summary(path).kind == "job":  # a launch ends with its yod
            say(f"job {uuid} continues on {home}: it has no standby, whose copy would become the object")


def _has_ended(settings: Settings, uuid: str) -> bool:
    try:
        return source(settings, uuid).job().has_ended
    except ConsoleError:
        return False  # another user's, or its standby does not answer: the processes of the move find out


def _keep_elsewhere(address: str, uuid: str, name: str, say: Callable[[str], None]) -> None:
    """Have the owner of a job keep its standby on another node."""
    try:
        with connect(address) as client:
            client.call({"op": "command", "uuid": uuid, "command": ELSEWHERE})
    except AgentError as error:
        say(f"the standby of job {uuid} stays on {name}: {error.message}")
        return
    say(f"the standby of job {uuid} leaves {name} for another node")


def _sent(
    settings: Settings, address: str, uuid: str, name: str, other: tuple[str, str] | None, uid: int | None,
    say: Callable[[str], None],
) -> bool:  # fmt: skip
    if other is None:
        say(f"the state object of job {uuid} stays on {name}: no other node of another host is up")
        return False
    try:
        # in system mode the other node lets in only who comes for the object's user
        shown = {} if uid is None else pass_for(settings, other[0], uid)
        with connect(address, LONGEST_S) as client:  # one for each object: in system mode it becomes the object's user
            told = client.call({"op": "move", "uuid": uuid, "node": other[0], "address": other[1], **shown})
    except (AgentError, ConsoleError) as error:
        say(f"the state object of job {uuid} stays on {name}: {error.message}")
        return False
    if not told["live"]:
        say(f"the state object of job {uuid} is in doubt: {other[0]} has not confirmed yet whether it has it")
        return False
    say(f"the state object of job {uuid} went from {name} to {other[0]}")
    try:
        report(settings, uuid, name, other[0], told["counter"], uid)
    except (AgentError, ConsoleError):
        pass  # the old node still knows where the object is, and mesh job show reports that to the tracker
    return True
