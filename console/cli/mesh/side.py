"""``mesh side``: the open switch columns, and the sides of the machine."""

import argparse
import json
import signal
import time
from typing import Any

from agents.wire.address import SCHEME
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.deploy.personal.plan import cpa_url
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.machine.sides import TO_BE_WIPED, mesh_of, shown
from db.topology import Mesh
from db.views.viewer import open_viewer
from redmesh.text import counted

_AGAIN_S = 0.5
_SET_S = 60.0
_SILENT_S = 10.0  # waiting ends after so many seconds without an answer from a CPA
_BACK_S = 30.0  # the most seconds to wait until wiped nodes have registered again
OP, OPEN, CLOSED = "set_switches", "open", "closed"
_TOLD = 5


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print switches and sides, directly from the database."""
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
    """Open and close switches in one transaction; with --wait, as soon as running launches permit."""
    with open_viewer(settings.database) as viewer:
        mesh = mesh_of(viewer.read().mesh.topology)
    said = _said(mesh, options.switch)
    named = {state: sorted(one for one in said if said[one] == state) for state in (OPEN, CLOSED)}
    request: dict[str, Any] = {"op": OP, **named}
    if options.wipe_both:
        request["wipe_both"] = True
    reply = (
        ask_cpa(settings, request, _SET_S) if options.wait is None else _when_it_can_be(settings, request, options.wait)
    )
    with open_viewer(settings.database) as viewer:
        opened = sorted(mesh_of(viewer.read().mesh.topology).open)
    was = "was" if reply["wiped"] == 1 else "were"
    print(f"open switches: {', '.join(opened) or 'none'}; {_nodes(reply['wiped'])} changed sides and {was} wiped")
    for name, why in list(reply["left"].items())[:_TOLD]:
        print(f"{name} stays down: {why}")
    if len(reply["left"]) > _TOLD:
        print(f"and {len(reply['left']) - _TOLD} more")
    if reply["left"]:
        print("the same command asks them again")
    if reply["wiped"]:
        _new_keys(settings)
    return 0


def _when_it_can_be(settings: Settings, request: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """Repeat the request until no launch prevents it. If it fails, the nodes that were drained for it are resumed."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # like SIGINT: the code below then resumes the drained nodes
        signal.signal(number, signal.default_int_handler)
    now = answered = time.monotonic()
    deadline = now + wait_s
    try:
        while True:
            try:
                return ask_cpa(settings, {**request, "drain": True}, _SET_S)
            except AgentError as error:
                now = answered = time.monotonic()
                if error.code not in ("unavailable", "database") or now > deadline:
                    raise
            except ConsoleError:  # CPAs may be restarted meanwhile
                now = time.monotonic()
                if now > min(deadline, answered + _SILENT_S):
                    raise
            time.sleep(_AGAIN_S)  # no CPA or database answers: ask again
    except BaseException:
        _give_up(settings, request)
        raise


def _give_up(settings: Settings, request: dict[str, Any]) -> None:
    """Resume nodes that were drained for the change; retry for some seconds if no CPA or database answers.

    Raises ConsoleError.
    """
    deadline = time.monotonic() + _SILENT_S
    while True:
        try:
            ask_cpa(settings, {"op": OP, OPEN: [], CLOSED: []}, _SET_S)
            return
        except (AgentError, ConsoleError) as error:
            if time.monotonic() > deadline:
                now = [*(f"{name}={CLOSED}" for name in request[OPEN]), *(f"{name}={OPEN}" for name in request[CLOSED])]
                raise ConsoleError(
                    f"the switches are as they were, but nodes may be kept out of service for them: {error.message}",
                    f"when the database answers again: mesh side set {' '.join(now)}",
                ) from None
        time.sleep(_AGAIN_S)  # no CPA or database answers: ask again


def _nodes(count: int) -> str:
    return counted(count, "node")


def _new_keys(settings: Settings) -> None:
    """Rotate the mesh's keys: keys that wiped nodes had on their former side become invalid. Local nodes have none."""
    deadline = time.monotonic() + _BACK_S
    while True:
        with open_viewer(cpa_url(settings)) as viewer:  # a viewer of all sides
            far = [node for node in viewer.read().nodes if node.address.startswith(SCHEME)]
        if not far:
            return
        if not any(node.state == "down" and node.reason == TO_BE_WIPED for node in far) or time.monotonic() > deadline:
            break
        time.sleep(_AGAIN_S)  # poll: a database does not report changes
    from console.deploy.trust.key_rotation import rotate  # imports cryptography, only for machines with keys

    try:
        absent = rotate(settings, print)
    except AgentError as error:
        raise ConsoleError(
            f"the sides are set, but the nodes keep their former keys: {error.message}", "mesh trust rotate"
        ) from None
    if absent:
        print(f"{_nodes(len(absent))} down now: mesh up brings the keys")


def _said(mesh: Mesh, words: list[str]) -> dict[str, str]:
    """The requested state of each named switch. Raises UsageError."""
    names = {switch.name for switch in mesh.switches}
    said: dict[str, str] = {}
    for word in words:
        name, _, state = word.partition("=")
        if name not in names or state not in (OPEN, CLOSED):
            raise UsageError(
                f"{word!r} is not a switch and its state",
                f"like {min(names, default='left')}=open; there are: " + (", ".join(sorted(names)) or "none"),
            )
        if said.setdefault(name, state) != state:
            raise UsageError(f"switch {name} is to be {OPEN} and {CLOSED}", "name each switch once")
    return said
