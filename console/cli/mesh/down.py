"""``mesh down``: ends a mesh of this machine, or of hosts over SSH."""

import argparse
import json
import os
import sys

from agents.wire.errors import AgentError
from console.deploy.personal import lifecycle
from console.errors import ConsoleError
from console.jobs.objects import directory_of, summary, uuids
from console.jobs.owner_client import ask, await_end
from console.settings import Settings, state_directory
from redmesh.state import job_path, owned
from redmesh.text import counted


def down(settings: Settings, options: argparse.Namespace) -> int:
    """End the mesh. Running launches need --force or a yes, jobs of tasks need --force."""
    _suspend_all(settings, force=options.force)
    if settings.hosts or settings.allocation or os.path.exists(f"{settings.state_dir}/hosts.json"):
        return _down_hosts(settings, options)
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


def _suspend_all(settings: Settings, *, force: bool) -> None:
    """Suspend running jobs, so that they can be resumed after ``mesh down``. Without ``force``, raise ConsoleError."""
    directory = directory_of(settings.state_dir)
    paths = [job_path(directory, uuid) for uuid in uuids(directory)]
    running = [path for path in paths if owned(path) and summary(path).has_tasks]
    if running and not force:
        names = ", ".join(os.path.basename(path)[:8] for path in running[:5])
        hint = "wait for them, or suspend them with mesh down --force: mesh job resume continues them"
        raise ConsoleError(f"jobs have not ended: {names}", hint, exit_status=1)
    for path in running:
        try:
            ask(path, "suspend")
            await_end(path)
        except ConsoleError:
            continue  # it has ended meanwhile


def _down_hosts(settings: Settings, options: argparse.Namespace) -> int:
    """End the mesh; returns 1 if something may be left on a host."""
    # Do not import paramiko for a mesh of this machine.
    from console.cli.mesh.host_progress import as_rows, progress
    from console.deploy.mesh import lifecycle as hosts
    from console.deploy.mesh.growth import cancel_all

    force = options.force
    ours = uuids(directory_of(settings.state_dir)) if settings.allocation else []
    while True:
        try:
            with progress(options.json) as report:
                done = hosts.down(settings, report, force=force, keep_agent=options.keep_agent)
            break
        except hosts.LaunchesRun as running:
            if force or options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            print(f"{running.message}. End what runs too? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                return 1
            force = True
    cancel_all(settings)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "was_up": done.started, "hosts": as_rows(done.errands)}))
    elif done.failed:
        names = ", ".join(errand.name for errand in done.failed[:5]) + (" …" if len(done.failed) > 5 else "")
        print(f"mesh down, but something may be left on {names}: mesh down once more when they can be reached")
    else:
        print("mesh down" if done.started or done.errands else "no mesh is up")
    if not options.json:
        outside = directory_of(state_directory(os.environ))
        carried = sum(os.path.exists(job_path(outside, uuid)) for uuid in ours)
        if carried:
            print(f"state objects of {counted(carried, 'job')} are kept in {outside}")
        for host in done.errands:
            if host.kept_jobs:
                some = ", ".join(uuid[:8] for uuid in host.kept_jobs[:5]) + (" …" if len(host.kept_jobs) > 5 else "")
                print(f"{host.name} keeps the state objects of jobs moved there ({some}): mesh up serves them")
    return 1 if done.failed else 0
