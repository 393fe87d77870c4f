"""Moves state objects from a node that is being drained to other nodes of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from agents.objects.connection import connect
from agents.wire.address import SCHEME
from agents.wire.errors import AgentError
from console.errors import ConsoleError
from console.jobs.objects import directory_of, summary, uuids
from console.jobs.owner_client import ask
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.hand_over import await_move
from console.tracker.source import address_of, pass_for, report
from db.errors import StoreError
from db.machine.node_states import NodeState
from db.views.viewer import open_viewer
from redmesh.state import job_path, owned, url_on

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
            uids = held.get("uids", {})
            for uuid in held["jobs"]:
                moved += _sent(settings, address, uuid, name, next(others, None), uids.get(uuid), say)
        except (AgentError, ConsoleError) as error:
            say(f"state objects on {name} stay there: {error.message}")
    return moved


def hand_over_all(settings: Settings, names: list[str], say: Callable[[str], None]) -> int:
    """Hand the caller's jobs whose owners run on this login processor over to others that are up and not in ``names``;
    returns how many went. ``say`` gets a line for each job.
    """
    home = login_name(settings)
    directory = directory_of(settings.state_dir)
    with open_viewer(settings.database, settings.login) as viewer:
        nodes = viewer.read().nodes
    up = sorted(one.name for one in nodes if one.role == "login" and one.state == NodeState.UP)
    others, moved = cycle([name for name in up if name not in (home, *names)]), 0
    for uuid in uuids(directory):
        path = job_path(directory, uuid)
        if not owned(path) or summary(path)["kind"] != "job":
            continue  # a launch ends with its yod, which nobody can move
        login = next(others, "")
        if not login:
            say(f"job {uuid} continues on {home}: no other login processor is up")
            continue
        try:
            ask(path, "move", node=login)
            await_move(settings, uuid, url_on(home, uuid))
        except (AgentError, ConsoleError) as error:
            say(f"job {uuid} continues on {home}: {error.message}")
            continue
        say(f"job {uuid} continues on {login}; where that has no CPA: mesh job resume {uuid} there")
        moved += 1
    return moved


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
