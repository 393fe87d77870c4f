"""``mesh up``: brings up a mesh of this machine, or of hosts over SSH."""

import argparse
import json
import os
import signal
import sys
from typing import Any

from console.deploy.personal import lifecycle
from console.deploy.personal.plan import Size, cpa_url, size_of
from console.deploy.personal.schema import Census, census
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.errors import StoreError
from redmesh.text import counted

#: The most differences between topology and nodes that ``mesh up`` prints.
DIFFERENCES = 3


def up(settings: Settings, options: argparse.Namespace) -> int:
    """Start the mesh, or report that it is up."""
    if options.system and not settings.system:
        raise UsageError(
            "--system needs the key `system` in a configuration that everybody reads",
            'system = "/var/lib/redmesh" in /etc/redmesh/mesh.toml (docs/system.md)',
        )
    if (settings.hosts or settings.system or settings.allocation) and not options.simulate:
        return _up_hosts(settings, options)
    simulation = None
    if options.simulate:
        from console.deploy.personal.simulated import read

        simulation = read(options.simulate, boards=options.boards, each=options.each)
    done = lifecycle.up(settings, auto=options.auto, simulation=simulation)
    if options.auto:
        return 0  # yod prints its own message
    there, told = _count(settings, done.size)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "up": True, "hosts": [], **_as_row(there)}))
    elif done.started:
        print(f"mesh up: {told} ({done.took_s:.1f} s)")
    elif done.adopted:
        print(f"mesh up: {told}, under a new keeper ({done.took_s:.1f} s)")
    else:
        print(f"mesh is up already: {told}")
    if not done.started:
        tell_policy(settings)
    if settings.topology is not None and simulation is None:
        _tell_differences(settings)
    _tell_resumable(settings)
    return 1 if there is None or there.down else 0


def _up_hosts(settings: Settings, options: argparse.Namespace) -> int:
    """Bring hosts up; returns 1 if one of them failed."""
    # Do not import paramiko for a mesh of this machine.
    from console.cli.mesh.host_progress import as_rows, progress
    from console.deploy.mesh import lifecycle as hosts
    from console.deploy.mesh import sharing

    for word in ("processors", "nodes", "service_nodes"):
        if getattr(options, word) is not None:
            told = f"--{word.replace('_', '-')} is for a mesh of this machine alone"
            raise UsageError(told, f"the hosts are described in {settings.where.get('hosts', 'the configuration')}")
    for number in (signal.SIGTERM, signal.SIGHUP):  # like SIGINT: what was started is undone
        signal.signal(number, signal.default_int_handler)
    try:
        with progress(options.json or options.auto) as report:
            done = hosts.up(settings, report, options.only, options.label, accept_new=options.accept_new)
    except hosts.NoHost as failed:
        if not options.json:
            raise
        print(json.dumps({"mesh": settings.mesh, "up": False, "hosts": as_rows(failed.errands)}))
        return failed.exit_status
    assert done.config is not None
    if options.auto:
        return 0 if done.started or not done.failed else 1  # yod prints its own message
    there, size = _count(settings, size_of(done.config))
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "up": True, "hosts": as_rows(done.errands), **_as_row(there)}))
    else:
        missing = (
            f"; {len(done.failed)} of {counted(len(done.errands), 'host')} could not be had" if done.failed else ""
        )
        print(f"mesh up: {size}{missing} ({done.took_s:.1f} s)")
        for line in () if settings.allocation else sharing.notes(done.errands):
            print(f"mesh: {line}", file=sys.stderr)
    if not done.started:
        tell_policy(settings)
    return 1 if done.failed or there is None or there.down else 0


def _count(settings: Settings, size: Size) -> tuple[Census | None, str]:
    """Return what is up according to the database (None if it cannot be read), and a description of the size."""
    try:
        there = census(cpa_url(settings))
    except (StoreError, ConsoleError) as error:
        print(f"mesh: what is up cannot be told: {error.message}", file=sys.stderr)
        return None, f"{size} described"
    return there, f"{there}{size.with_cpas}"


def _as_row(there: Census | None) -> dict[str, Any]:
    """The census in the form of ``--json``; nulls if the database could not be read."""
    if there is None:
        return dict.fromkeys(("processors", "processors_up", "nodes", "nodes_up", "out"))
    out = [{"name": name, "state": state, "reason": reason} for name, state, reason in there.out]
    return {**there._asdict(), "out": out}


def _tell_resumable(settings: Settings) -> None:
    """Print jobs that can be resumed: their owner ended with an earlier mesh, or with the machine."""
    if not os.path.isdir(f"{settings.state_dir}/jobs"):
        return
    from console.cli.mesh.queue import resumable  # imported only if there are jobs

    for job in resumable(settings):
        print(f"mesh: job {job.name} has not ended: mesh job resume {job.name}", file=sys.stderr)


def tell_policy(settings: Settings) -> bool:
    """Print whether the configured managers and limits differ from those of the running mesh. True if they do."""
    from console.deploy.personal.lifecycle import found_config

    config, _ = found_config(settings)
    if config is None:
        return False
    compared = (
        ("managers", list(config.managers), settings.managers),
        ("max_processors", config.max_processors, settings.max_processors),
        ("max_jobs", config.max_jobs, settings.max_jobs),
    )
    changed = [key for key, was, now in compared if was != now]
    if changed:
        told = ", ".join("[[manager]]" if key == "managers" else key for key in changed)
        print(
            f"mesh: {told}: the mesh that is up has the values it began with (mesh down, then mesh up)", file=sys.stderr
        )
    return bool(changed)


def _tell_differences(settings: Settings) -> None:
    """Print differences between the configured topology and the nodes: most placements refuse requests because of
    them."""
    from console.cli.mesh.topology import differences  # imported only if a topology is described

    found = differences(settings)
    for line in found[:DIFFERENCES]:
        print(f"mesh: [topology]: {line}", file=sys.stderr)
    if len(found) > DIFFERENCES:
        print("mesh: more of that: mesh topology check", file=sys.stderr)
