"""``mesh side``: which switch columns are open, and what sides the machine has by them."""

import argparse
import json
import time

from agents.wire.errors import AgentError
from console.deploy.cpas import ask_cpa
from console.errors import UsageError
from console.settings import Settings
from db.sides import mesh_of, shown
from db.topology import Mesh
from db.views import open_viewer

_AGAIN_S = 0.5
_SET_S = 60.0
OPEN, CLOSED = "open", "closed"


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print switches and sides, straight from the database."""
    with open_viewer(settings.database) as viewer:
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
    print(f"open switches: {', '.join(names) or 'none'}; {reply['wiped']} nodes changed sides and were wiped")
    for name, why in list(reply["left"].items())[:5]:
        print(f"{name} stays down: {why}")
    return 0


def _wanted(mesh: Mesh, words: list[str]) -> list[str]:
    names = {switch.name for switch in mesh.switches}
    found = set(mesh.open)
    for word in words:
        name, _, state = word.partition("=")
        if name not in names or state not in (OPEN, CLOSED):
            raise UsageError(
                f"{word!r} is no switch and its state",
                f"like {min(names, default='left')}=open; there are: " + (", ".join(sorted(names)) or "none"),
            )
        (found.add if state == OPEN else found.discard)(name)
    return sorted(found)
