"""``mesh upgrade``: installs this version on a running mesh."""

import argparse
import json

from console.cli.mesh.host_progress import as_rows, progress
from console.cli.mesh.up import tell_policy
from console.deploy.mesh.upgrade import upgrade as bring
from console.settings import Settings
from redmesh.text import counted


def upgrade(settings: Settings, options: argparse.Namespace) -> int:
    """Upgrade a running mesh; returns 1 if a host failed."""
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
    return 1 if tell_policy(settings) or done.failed else 0
