"""``mesh job move``: moves a job's object to another node, and tells the tracker."""

import argparse
import sys
from contextlib import suppress
from typing import Any

from agents.job.start import start_dependents
from agents.objects.connection import connect, shown_to
from agents.objects.holder import Holder
from agents.objects.receiver import fetch
from agents.objects.sender import move as send
from agents.objects.states import State
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.objects import directory_of, node_of
from console.jobs.owner_client import NoOwner, ask
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.destination import await_arrival, continue_on, stay
from console.tracker.follow import follow
from console.tracker.moving import go_on
from console.tracker.source import Source, address_of, report, source
from console.tracker.standby import stand_by
from redmesh.state import StateError, is_uuid, job_path, owned, url_on

__all__ = ["follow", "go_on", "move", "stand_by"]
#: The most seconds for a node to send an object of any size.
_LONGEST_S = 600.0


def move(settings: Settings, options: argparse.Namespace) -> int:
    """Move a job's object to a node, or a running job to a login processor; returns 1 if the node has not confirmed."""
    home = login_name(settings)
    if options.node == home and is_uuid(options.job) and _runs_elsewhere(settings, options.job, home):
        return _continued(settings, options.job, home)
    found = source(settings, options.job, options.at or "")
    if (found.path and owned(found.path)) or (found.proxied and not found.job().has_ended):
        return _continued(settings, found.uuid, options.node, found.path)
    here = node_of(settings, found.path) if found.path else ""
    if here:  # that node's PCT sends it
        found = Source(found.uuid, address=address_of(settings, here))
    if not found.path:
        found.job()  # finds the node that has the object now
    if options.node == login_name(settings):
        return _fetched(settings, found)
    address = address_of(settings, options.node)
    if found.node == options.node:
        raise ConsoleError(f"job {found.uuid} is on {options.node} already", "mesh job show", exit_status=1)
    try:
        told = _sent(settings, found, options.node, address)
    except (AgentError, StateError) as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    if not told["live"]:
        print(
            f"mesh: job {found.uuid} is in doubt: {options.node} has not confirmed yet whether it has the job. No"
            f" process changes the object until then; the nodes repeat the question",
            file=sys.stderr,
        )
        return 1
    _report(settings, found, options.node, told["counter"])
    start_dependents(job_path(directory_of(settings.state_dir), found.uuid))  # they follow it from now on
    print(f"job {found.uuid} is on {options.node} (move {told['counter']}, {told['paused_s']:.3f} s)")
    return 0


def _runs_elsewhere(settings: Settings, uuid: str, home: str) -> bool:
    """True if a job runs on another login processor, as the tracker says."""
    try:
        found = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
    except AgentError as error:
        if error.code == "invalid":  # the tracker knows no job with this UUID
            return False
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    if not found["standby"] or found["url"] == url_on(home, uuid):
        return False
    with suppress(ConsoleError):  # the copy of an ended job answers too
        return not source(settings, uuid).job().has_ended
    return True


def _continued(settings: Settings, uuid: str, login: str, path: str = "") -> int:
    """Have a running job continue on a login processor. ``path``: its object, if it runs here."""
    try:
        continue_on(settings, uuid, login)
        if path:
            try:
                ask(path, "move", node=login)  # at once, and with the owner's reason if it refuses
            except NoOwner:
                pass  # it was lost; the processes of the move start another one
            except ConsoleError:
                stay(settings, uuid, login)
                raise
        counter = await_arrival(settings, uuid, login)
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    print(f"job {uuid} continues on {login} (move {counter})")
    return 0


def _fetched(settings: Settings, found: Source) -> int:
    """Fetch the object to this login processor, where its job can be resumed."""
    if found.path:
        raise ConsoleError(f"job {found.uuid} is on {login_name(settings)} already", "mesh job show", exit_status=1)
    holder = Holder(directory_of(settings.state_dir), login_name(settings))
    try:
        counter = fetch(holder, found.uuid, found.address, found.node)
    except (AgentError, StateError) as error:
        raise ConsoleError(
            f"job {found.uuid} is not here yet: {error.message}",
            "run mesh job move again, which continues",
            exit_status=1,
        ) from None
    _report(settings, found, login_name(settings), counter)
    print(f"job {found.uuid} is on {login_name(settings)} (move {counter})")
    return 0


def _report(settings: Settings, found: Source, node: str, counter: int) -> None:
    try:
        report(settings, found.uuid, found.node or login_name(settings), node, counter)
    except (AgentError, ConsoleError) as error:
        print(
            f"mesh: job {found.uuid} is on {node}, but the tracker does not know it yet: {error.message}"
            f" (mesh job show {found.uuid} tells it, within a day)",
            file=sys.stderr,
        )


def _sent(settings: Settings, found: Source, node: str, address: str) -> dict[str, Any]:
    if not found.path:
        with connect(found.address, _LONGEST_S) as client:
            return client.call({"op": "move", "uuid": found.uuid, "node": node, "address": address, **shown_to(node)})
    holder = Holder(directory_of(settings.state_dir), login_name(settings))
    entry = holder.entry(found.uuid)
    if entry.place.state is State.DOUBT:
        raise StateError(holder.why_not(entry), "mesh job show asks again")
    if holder.path(found.uuid) != found.path:
        raise ConsoleError(
            f"{found.path} is not an object of this mesh's login processor", "name the job by its UUID", exit_status=1
        )
    moved = send(holder, found.uuid, node, address)
    return {"counter": moved.counter, "live": moved.live, "paused_s": moved.paused_s}
