"""``mesh up`` and ``mesh down`` of a mesh over SSH."""

import argparse
import json
import signal
import sys

from console.cli.mesh.host_progress import as_rows, progress
from console.cli.mesh.up import as_row, count
from console.deploy.mesh import lifecycle
from console.deploy.personal.plan import size_of
from console.errors import UsageError
from console.settings import Settings
from redmesh.text import counted


def up(settings: Settings, options: argparse.Namespace) -> int:
    """Bring hosts up; status 1 when one of them could not be had."""
    for word in ("processors", "nodes", "service_nodes"):
        if getattr(options, word) is not None:
            told = f"--{word.replace('_', '-')} is for a mesh of this machine alone"
            raise UsageError(told, f"the hosts are described in {settings.where.get('hosts', 'the configuration')}")
    for number in (signal.SIGTERM, signal.SIGHUP):  # as an interrupt: what was begun is taken back
        signal.signal(number, signal.default_int_handler)
    try:
        with progress(options.json or options.auto) as report:
            done = lifecycle.up(settings, report, options.only, options.label, accept_new=options.accept_new)
    except lifecycle.NoHost as failed:
        if not options.json:
            raise
        print(json.dumps({"mesh": settings.mesh, "up": False, "hosts": as_rows(failed.errands)}))
        return failed.exit_status
    assert done.config is not None
    if options.auto:
        return 0 if done.started or not done.failed else 1  # yod speaks for itself
    there, size = count(settings, size_of(done.config))
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "up": True, "hosts": as_rows(done.errands), **as_row(there)}))
    else:
        missing = (
            f"; {len(done.failed)} of {counted(len(done.errands), 'host')} could not be had" if done.failed else ""
        )
        print(f"mesh up: {size}{missing} ({done.took_s:.1f} s)")
    return 1 if done.failed or there is None or there.down else 0


def down(settings: Settings, options: argparse.Namespace) -> int:
    """End the mesh; status 1 when something may be left on a host."""
    force = options.force
    while True:
        try:
            with progress(options.json) as report:
                done = lifecycle.down(settings, report, force=force, keep_agent=options.keep_agent)
            break
        except lifecycle.LaunchesRun as running:
            if force or options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            print(f"{running.message}. End what runs too? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                return 1
            force = True
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "was_up": done.started, "hosts": as_rows(done.errands)}))
    elif done.failed:
        names = ", ".join(errand.name for errand in done.failed[:5]) + (" …" if len(done.failed) > 5 else "")
        print(f"mesh down, but something may be left on {names}: mesh down once more when they can be reached")
    else:
        print("mesh down" if done.started or done.errands else "no mesh is up")
    return 1 if done.failed else 0


def upgrade(settings: Settings, options: argparse.Namespace) -> int:
    """Bring this version to a mesh that is up; status 1 when a host could not have it."""
    from console.deploy.agent.upgrade import upgrade as bring

    with progress(options.json) as report:
        done = bring(settings, report, options.only, options.label)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "hosts": as_rows(done.errands)}))
    else:
        failed = f"; {len(done.failed)} could not have it" if done.failed else ""
        have = (
            counted(len(done.errands) - len(done.failed), "host has", "hosts have")
            if done.errands
            else "this machine has"
        )
        print(f"mesh upgrade: {have} this version{failed} ({done.took_s:.1f} s)")
    return 1 if done.failed else 0
