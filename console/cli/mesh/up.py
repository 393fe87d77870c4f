"""``mesh up`` and ``mesh down``."""

import argparse
import json
import os
import sys
from typing import Any

from agents.wire.errors import AgentError
from console.deploy.mesh.schema import Census, census
from console.deploy.personal import lifecycle
from console.deploy.personal.plan import Size, cpa_url
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.errors import StoreError

#: Differences between the topology and the nodes that ``mesh up`` tells.
DIFFERENCES = 3


def up(settings: Settings, options: argparse.Namespace) -> int:
    """Start the mesh, or say that it is up."""
    if options.system and not settings.system:
        raise UsageError(
            "--system needs the key `system` in a configuration that everybody reads",
            'system = "/var/lib/redmesh" in /etc/redmesh/mesh.toml (docs/system.md)',
        )
    if (settings.hosts or settings.system or settings.allocation) and not options.simulate:
        from console.cli.mesh import up_hosts  # paramiko is not loaded for a mesh of this machine

        return up_hosts.up(settings, options)
    simulation = None
    if options.simulate:
        from console.deploy.mesh.simulated import read

        simulation = read(options.simulate, boards=options.boards, each=options.each)
    done = lifecycle.up(settings, auto=options.auto, simulation=simulation)
    if options.auto:
        return 0  # yod speaks for itself
    there, told = count(settings, done.size)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "up": True, "hosts": [], **as_row(there)}))
    elif done.started:
        print(f"mesh up: {told} ({done.took_s:.1f} s)")
    elif done.adopted:
        print(f"mesh up: {told}, under a new keeper ({done.took_s:.1f} s)")
    else:
        print(f"mesh is up already: {told}")
    if settings.topology is not None and simulation is None:
        _tell_differences(settings)
    return 1 if there is None or there.down else 0


def count(settings: Settings, size: Size) -> tuple[Census | None, str]:
    """What of the machine is up according to the database, and that for people; None where the database is away."""
    try:
        there = census(cpa_url(settings))
    except (StoreError, ConsoleError) as error:
        print(f"mesh: what is up cannot be told: {error.message}", file=sys.stderr)
        return None, f"{size} described"
    return there, f"{there}{size.with_cpas}"


def as_row(there: Census | None) -> dict[str, Any]:
    """The same for programs; nulls where the database is away."""
    if there is None:
        return dict.fromkeys(("processors", "processors_up", "nodes", "nodes_up", "out"))
    out = [{"name": name, "state": state, "reason": reason} for name, state, reason in there.out]
    return {**there._asdict(), "out": out}


def _tell_differences(settings: Settings) -> None:
    """What the configuration's topology says otherwise than the nodes: most placements then refuse everybody."""
    from console.cli.mesh.topology import differences  # loaded where a topology is described

    found = differences(settings)
    for line in found[:DIFFERENCES]:
        print(f"mesh: [topology]: {line}", file=sys.stderr)
    if len(found) > DIFFERENCES:
        print("mesh: more of that: mesh topology check", file=sys.stderr)


def down(settings: Settings, options: argparse.Namespace) -> int:
    """End the mesh; with launches on it only by --force or a yes."""
    if settings.hosts or settings.allocation or os.path.exists(f"{settings.state_dir}/hosts.json"):
        from console.cli.mesh import up_hosts

        return up_hosts.down(settings, options)
    try:
        was_up = lifecycle.down(settings, force=options.force)
    except AgentError as error:
        if error.code != "busy" or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        print(f"{error.message}. End what runs too? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
        was_up = lifecycle.down(settings, force=True)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "was_up": was_up, "hosts": []}))
    else:
        print("mesh down" if was_up else "no mesh is up")
    return 0
