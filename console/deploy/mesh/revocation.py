"""``mesh login revoke``: removes a login processor, and makes its keys useless.

First it is removed from the system database, so that no CPA serves it. Then its launches are ended. Then the mesh's
keys and certificates are rotated, because other keys can be derived from those it had. The login processor itself may
be lost or compromised, and is not contacted.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agents.wire.errors import AgentError
from console.deploy.hosts.description import read_hosts
from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.mesh import logins
from console.deploy.mesh.cpas import announce_change, ask_cpa
from console.deploy.personal import lifecycle
from console.deploy.personal.plan import cpa_url, cpa_url_file
from console.deploy.trust.authority import authority
from console.deploy.trust.key_rotation import living, rotate_locked
from console.errors import ConsoleError
from console.launch.daemons.connect import user
from console.settings import Settings
from db.allocation import finish
from db.errors import Invalid
from db.machine import rcas
from db.store.store import Store, open_store
from db.store.url import mysql_options
from db.views.deployment_reads import unheard
from redmesh.settings.keeper_file import KeeperFile

#: Seconds: for the clean-up of launches; the least wait for nodes to send heartbeats elsewhere; between two checks.
CLEAN_S, COME_S, _POLL_S = 60.0, 10.0, 0.1

Say = Callable[[str], None]


class LaunchesRun(ConsoleError):
    """The revocation needs ``force``, because it would end running launches."""

    code = "busy"


class Revoked(NamedTuple):
    """The result: ended launchers, launchers that could not be ended, and nodes without the new keys."""

    ended: list[int]
    left: list[int]
    down: list[str]


def revoke(settings: Settings, name: str, say: Say, *, force: bool) -> Revoked:
    """Revoke the login processor ``name``; ``say`` gets lines about progress, and about what the user has to do.

    Raises LaunchesRun (unless ``force``), ConsoleError or StoreError before any change, and Behind if nodes did not
    accept their new keys. A repeated call continues an interrupted revocation.
    """
    config = living(settings)
    with lifecycle.locked(settings):
        _refuse_described(settings, name)
        with open_store(cpa_url(settings)) as store:
            if not force:
                _refuse_while_launches_run(store, name)
            had = _forget(settings, store, name)
            announce_change(settings)
            say(f"{name} is not a login processor any more: no CPA of this mesh serves it")
            left = _end(settings, store, had.launchers, say)
            for partition in had.partitions:
                say(
                    f"partition {partition}, made there, is still its job's: mesh partition destroy {partition} --force"
                )
            _strike_off(settings, name)
            _tell_what_is_left(settings, name, say)
            try:
                down = rotate_locked(settings, config, say)
            finally:  # a lost node delays the rotation until it is marked down
                _await_nodes(store, config, had.nodes, say)
        return Revoked([one for one in had.launchers if one not in left], left, down)


def _refuse_described(settings: Settings, name: str) -> None:
    if any(host.name == name for host in read_hosts(settings)):
        place = settings.where.get("hosts", "the configuration")
        raise ConsoleError(
            f"{name} is described in {place}: the next mesh up would make it one again",
            f"mesh nodes remove {name}, then mesh login revoke {name}",
        )


def _refuse_while_launches_run(store: Store, name: str) -> None:
    running = [live.launcher for live in finish.launchers_of(store, name)]
    if running:
        some = ", ".join(map(str, running[:5])) + (" …" if len(running) > 5 else "")
        told = f"launcher {some} runs" if len(running) == 1 else f"{len(running)} launchers run ({some})"
        raise LaunchesRun(f"{told} from there", f"mesh login revoke --force {name} ends them", exit_status=1)


def _forget(settings: Settings, store: Store, name: str) -> rcas.Revoked:
    """Remove the login processor from the database; return its launchers, partitions and nodes. Raises Invalid."""
    keys = authority(settings.state_dir, settings.mesh)
    goes_on = name in keys.revoked
    keys.distrust(name)  # first, so that the next rotation replaces its keys even if this process is killed
    try:
        return rcas.revoke(store, name, user())
    except Invalid:
        if goes_on:
            return rcas.left_behind(store)
        keys.absolve(name)
        raise


def _end(settings: Settings, store: Store, launchers: Sequence[int], say: Say) -> list[int]:
    """Have a CPA clean up and end ``launchers``; return those that could not be ended."""
    if not launchers:
        return []
    why = ""
    try:
        ask_cpa(settings, {"op": "kill_launchers", "launchers": list(launchers)}, timeout_s=CLEAN_S)
    except (ConsoleError, AgentError) as error:
        why = f": {error.message}"
    left = [one for one in launchers if finish.find_live(store, one) is not None]
    if len(left) < len(launchers):
        say(f"launches ended that ran from there: {len(launchers) - len(left)}")
    for one in left:
        say(f"launcher {one} has not ended{why}; pingd -reset -job {one} frees what it has")
    return left


def _strike_off(settings: Settings, name: str) -> None:
    ledger = HostStateFile(settings.state_dir)
    if any(host.name == name for host in ledger.has_ours()):
        ledger.clear([name])  # mesh down no longer contacts it


def _tell_what_is_left(settings: Settings, name: str, say: Say) -> None:
    """Tell the user which secrets of the login processor cannot be changed from here, and what to do about them."""
    say(f"on {name}, if it is still yours: mesh down --force, then remove `trust` and cpa.url in its state directory")
    url = cpa_url(settings)
    if url.startswith("sqlite:"):
        return
    place = cpa_url_file(settings) or "cpa.url"
    also = "" if settings.cpa_database_file else " and `database`"
    account = mysql_options(url).get("user", "")
    say(
        f"if it had CPAs of its own, it knows the password of the database account {account}:"
        f" change it there, then in {place}{also}, then mesh upgrade"
    )
    view = logins.view_file(settings, name)
    if os.path.exists(view):
        with open(view, encoding="utf-8") as file:
            seen = mysql_options(file.readline().strip())
        say(f"its viewers still see their side: DROP USER {seen.get('user', '')}; DROP DATABASE `{seen['database']}`")
        os.unlink(view)


def _await_nodes(store: Store, config: KeeperFile, heard: Sequence[str], say: Say) -> None:
    """Wait until the nodes ``heard``, whose heartbeats went to the revoked RCA, send heartbeats to another RCA.

    If some do not, restart this machine's RCA: at its start it reports every node that no RCA hears.
    """
    deadline = time.monotonic() + max(COME_S, 3 * config.suspect_s)
    while True:
        left = sorted(unheard(store) & set(heard))
        if not left or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)  # poll: a database does not report changes
    if left:
        some = ", ".join(left[:5]) + (" …" if len(left) > 5 else "")
        say(f"not heard of since, and down soon unless they are: {some}")
        lifecycle.restart(config, "rca")
