"""``mesh side``: which switch columns are open, and what sides the machine has by them."""

import argparse
import json
import time

from agents.link.trust import SCHEME
from agents.wire.errors import AgentError
from console.deploy.cpas import ask_cpa
from console.deploy.plan import cpa_url
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.sides import TO_BE_WIPED, mesh_of, shown
from db.topology import Mesh
from db.views import open_viewer

_AGAIN_S = 0.5
_SET_S = 60.0
_BACK_S = 30.0  # for wiped nodes to begin anew
OPEN, CLOSED = "open", "closed"


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print switches and sides, straight from the database."""
    with open_viewer(settings.database, settings.login) as viewer:
        reading = viewer.read()
    mesh = mesh_of(reading.mesh.topology)
    processors: dict[int, list[int]] = {}
    for row in reading.processors:
        processors.setdefault(row.node, []).append(row.id)
    sides = shown(mesh, reading.nodes, processors)
    switches = {switch.name: OPEN if switch.name in mesh.open else CLOSED for switch in mesh.switches}
    if options.json:
        print(json.dumps({"switches": switches, "sides": sides}))
        return 0
    for switch in mesh.switches:
        print(f"switch {switch.name}, after column {switch.after}: {switches[switch.name]}")
    for side in sides:
        if not side["seen"]:
            print(f"side {side['side']}: columns {side['first']}..{side['last']}, not seen from this one")
            continue
        logins = f"; login processors: {', '.join(side['logins'])}" if side["logins"] else ""
        print(
            f"side {side['side']}: columns {side['first']}..{side['last']},"
            f" {side['compute_processors']} compute and {side['service_processors']} service processors{logins}"
        )
    return 0


def set_switches(settings: Settings, options: argparse.Namespace) -> int:
    """Open and close switches, all in one transaction; with --wait until what runs lets it."""
    with open_viewer(settings.database) as viewer:
        mesh = mesh_of(viewer.read().mesh.topology)
    names = _wanted(mesh, options.switch)
    deadline = time.monotonic() + (options.wait or 0.0)
    while True:
        request = {"op": "set_switches", "open": names, "drain": options.wait is not None}
        try:
            reply = ask_cpa(settings, request, _SET_S)
            break
        except AgentError as error:
            if error.code != "unavailable" or options.wait is None or time.monotonic() > deadline:
                if options.wait is not None:  # what waited for it is in service again
                    ask_cpa(settings, {"op": "set_switches", "open": sorted(mesh.open)}, _SET_S)
                raise
        time.sleep(_AGAIN_S)
    was = "was" if reply["wiped"] == 1 else "were"
    print(f"open switches: {', '.join(names) or 'none'}; {_nodes(reply['wiped'])} changed sides and {was} wiped")
    for name, why in list(reply["left"].items())[:5]:
        print(f"{name} stays down: {why}")
    if reply["wiped"]:
        _new_keys(settings)
    return 0


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _new_keys(settings: Settings) -> None:
    """What nodes on other machines knew on their former side opens nothing any more; those of this one have no keys."""
    deadline = time.monotonic() + _BACK_S
    while True:
        with open_viewer(cpa_url(settings)) as viewer:  # of every side
            far = [node for node in viewer.read().nodes if node.address.startswith(SCHEME)]
        if not far:
            return
        if not any(node.state == "down" and node.reason == TO_BE_WIPED for node in far) or time.monotonic() > deadline:
            break
        time.sleep(_AGAIN_S)
    from console.deploy.rotation import rotate  # cryptography, for machines that have keys

    try:
        absent = rotate(settings, print)
    except AgentError as error:
        raise ConsoleError(
            f"the sides are set, but keys are the former ones: {error.message}", "mesh trust rotate"
        ) from None
    if absent:
        print(f"{_nodes(len(absent))} down now: mesh up brings the keys")


def _wanted(mesh: Mesh, words: list[str]) -> list[str]:
    names = {switch.name for switch in mesh.switches}
    found = set(mesh.open)
    said: dict[str, str] = {}
    for word in words:
        name, _, state = word.partition("=")
        if name not in names or state not in (OPEN, CLOSED):
            raise UsageError(
                f"{word!r} is no switch and its state",
                f"like {min(names, default='left')}=open; there are: " + (", ".join(sorted(names)) or "none"),
            )
        if said.setdefault(name, state) != state:
            raise UsageError(f"switch {name} is to be {OPEN} and {CLOSED}", "name each switch once")
        (found.add if state == OPEN else found.discard)(name)
    return sorted(found)
