"""``mesh job move``: moves a job's object to another node, and tells the tracker."""

import argparse
import sys
from typing import Any

from agents.job.start import start_dependents, start_owner
from agents.objects.connection import connect, shown_to
from agents.objects.holder import Holder
from agents.objects.receiver import fetch
from agents.objects.sender import move as send
from agents.objects.states import State
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.objects import directory_of, node_of
from console.jobs.owner_client import ask
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.follow import follow
from console.tracker.hand_over import await_move, want
from console.tracker.source import Source, address_of, report, source
from console.tracker.standby import go_on, stand_by, there_or_brought
from redmesh.state import SCHEME, StateError, is_uuid, job_path, owned, url_on

__all__ = ["follow", "go_on", "move", "stand_by"]
#: The most seconds for a node to send an object of any size.
_LONGEST_S = 600.0


def move(settings: Settings, options: argparse.Namespace) -> int:
    """Move a job's object to a node, or a running job to a login processor; returns 1 if the node has not confirmed."""
    home = login_name(settings)
    if options.node == home and is_uuid(options.job) and _handed_to_us(settings, options.job, home):
        return 0
    found = source(settings, options.job, options.at or "")
    if found.path and owned(found.path):
        return _handed_over(settings, found, options.node)
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


def _handed_over(settings: Settings, found: Source, login: str) -> int:
    """Have the owner of a job on this host hand the job over to another login processor."""
    url = url_on(login_name(settings), found.uuid)
    ask(found.path, "move", node=login)
    try:
        told = await_move(settings, found.uuid, url)
    except AgentError as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    print(f"job {found.uuid} continues on {login} (move {told['counter']})")
    node = str(told["url"]).removeprefix(SCHEME).partition("/")[0]
    if node != login:
        print(
            f"mesh: its object is on {node} until {login} fetches it: at once where {login} has CPAs; else with"
            f" mesh job resume {found.uuid} there",
            file=sys.stderr,
        )
    return 0


def _handed_to_us(settings: Settings, uuid: str, home: str) -> bool:
    """Continue here a job that runs on another login processor. Returns False if it does not run on another one."""
    try:
        found = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
        if not found["standby"] or found["url"] == url_on(home, uuid):
            return False
        want(settings, uuid, home, found)
    except AgentError as error:
        if error.code == "invalid":  # the tracker knows no job with this UUID
            return False
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    start_owner(there_or_brought(settings, uuid))
    print(f"job {uuid} continues on {home}")
    return True


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
