"""Waits until the nodes of a mesh over SSH are up, and diagnoses those that are not."""

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agents.link.client import Client, Unreachable
from agents.wire.errors import AgentError
from console.deploy.hosts.host_states import Event, HostFailed, State
from console.deploy.personal.logs import readable
from console.deploy.ssh.worker_pool import HostTask
from db.store.store import Store, open_store
from db.views.deployment_reads import registered
from redmesh.settings.keeper_file import KeeperFile

#: Seconds for nodes to register after their agents' start: a base, and an addition for each node.
REGISTER_S, REGISTER_EACH_S = 15.0, 0.02
_POLL_S, _REACH_S = 0.01, 3.0


def await_nodes(url: str, config: KeeperFile, errands: Sequence[HostTask]) -> None:
    """Wait until every started host is up in the database; the task of a host that is not in time fails. Raises
    StoreError."""
    waiting = {errand.name: errand for errand in errands if errand.state is State.STARTED}
    await_them(url, config, waiting, REGISTER_S + REGISTER_EACH_S * len(waiting), registered)


def await_them(
    url: str,
    config: KeeperFile,
    waiting: dict[str, HostTask],
    patience_s: float,
    came: Callable[[Store], Iterable[str]],
) -> None:
    """Wait until ``came`` has named every host of ``waiting``; the rest fails after ``patience_s``. Raises
    StoreError."""
    deadline = time.monotonic() + patience_s
    with open_store(url, any_schema=True) as store:  # after an upgrade of some hosts only, the schema is old
        while waiting and time.monotonic() < deadline:
            for name in came(store):
                if name in waiting:
                    waiting.pop(name).handle(Event.REGISTERED)
            if waiting:
                time.sleep(_POLL_S)  # poll: a database does not report changes
    failing = _failing_here(config.run) if waiting else ""
    addresses = {node.name: node.address for node in config.nodes}
    for name, errand in waiting.items():
        errand.fail(diagnosis(errand, addresses[name], config.rca[0], failing))


def _failing_here(run: str) -> str:
    """The mesh's daemons on this machine that do not come up, with their reasons; "" if the keeper names none."""
    try:
        with Client(f"{run}/keeper.sock", "admin", _REACH_S) as client:
            daemons = client.call({"op": "status"})["daemons"]
    except (Unreachable, AgentError):
        return ""
    return "; ".join(f"{one['name']}: {readable(str(one['reason']))}" for one in daemons if "reason" in one)


def diagnosis(errand: HostTask, address: str, login: str, failing: str = "") -> HostFailed:
    """Return why a host's agent has not registered: it exited, a daemon here does not come up (``failing``), or a
    firewall blocks its port or the RCA's."""
    try:
        there = errand.ask("log")
    except HostFailed as failure:
        return failure
    said = _last_words(there)
    if not there.get("keeper"):
        return HostFailed("agent", f"its agent has ended{said}", "its log is in its state directory")
    place = address.partition("//")[2].partition("/")[0]
    if not there.get("pct"):
        return HostFailed("agent", f"its PCT does not come up{said}", f"its log is in {errand.facts.get('state')}/log")
    why = unreachable(place)
    if why:
        return HostFailed("firewall", f"its agent runs, but is not reached at {place}: {why}", "open that TCP port")
    if failing:
        return HostFailed("daemon", f"its agent runs, but here a daemon does not come up: {failing}", "mesh status")
    told = f"its agent runs, but nothing of it arrives at {login} (UDP)"
    return HostFailed("firewall", told + said, "open that port; login_address in mesh.toml says where we are")


def unreachable(place: str) -> str:
    """Why connecting to ``HOST:PORT`` fails; "" if it succeeds."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def silent_pct(errand: HostTask) -> str:
    """The last error of a host's PCT if its keeper runs and cannot start it; "" if it runs."""
    there = errand.ask("log")
    return "" if there.get("pct") else f"its PCT does not come up{_last_words(there)}"


def _last_words(there: dict[str, Any]) -> str:
    logs = there.get("log", {})
    for name in sorted(logs, key=lambda name: not name.endswith(".stderr")):
        if logs[name]:
            return f"; {name}: {readable(str(logs[name][-1]))}"
    return ""
