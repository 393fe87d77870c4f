"""``mesh doctor``: checks every host and explains how to fix what is wrong."""

import argparse
import json
import sys
from typing import Any

from console.cli.mesh.host_progress import Lines, Silent, progress
from console.deploy.mesh import checks, sharing
from console.deploy.personal.logind import Danger, dangers
from console.deploy.ssh.worker_pool import Report
from console.settings import Settings
from redmesh.sanitise import clean
from redmesh.text import counted


def examine(settings: Settings, options: argparse.Namespace) -> int:
    """Check every host, and what a logout does here; returns 1 if a host cannot be used."""
    here, ram_disk = dangers(settings.run_dir), checks.ram_disk_here()
    if not settings.hosts and not options.only and not options.label:
        return _examine_here(settings, options, here, ram_disk)
    here += [Danger(one.code, one.message, one.hint) for one in ram_disk]
    if not options.json:
        for danger in here:
            print(f"mesh: {danger.code}: {danger.message} ({danger.hint})", file=sys.stderr)
    with progress(options.json) as report:
        quiet: Report = Silent() if isinstance(report, Lines) else report  # problems are printed below
        found = checks.examine(settings, quiet, options.only, options.label)
    if options.json:
        rows = [_as_row(one) for one in found]
        print(json.dumps({"mesh": settings.mesh, "hosts": rows, "here": [danger._asdict() for danger in here]}))
    else:
        print("\n".join(line for one in found for line in _as_lines(one)))
        ill = sum(not one.well for one in found)
        are = "is" if len(found) == 1 or len(found) - ill == 1 else "are"
        print(f"{len(found) - ill} of {counted(len(found), 'host')} {are} well")
    return 0 if all(one.well for one in found) and not any(one.grave for one in ram_disk) else 1


def _examine_here(
    settings: Settings, options: argparse.Namespace, here: list[Danger], ram_disk: list[checks.Finding]
) -> int:
    """Without configured hosts, check what a mesh of this machine alone meets: what ends it, no place for programs,
    and other meshes."""
    others = [*ram_disk, *checks.from_neighbours(sharing.here())]
    status = 1 if any(finding.grave for finding in others) else 0
    if options.json:
        rows = [*(danger._asdict() for danger in here), *(finding._asdict() for finding in others)]
        print(json.dumps({"mesh": settings.mesh, "hosts": [], "here": rows}))
        return status
    for code, message, hint, *_ in (*here, *others):
        print(f"{code}: {clean(str(message))} – {clean(str(hint))}")
    if not here and not others:
        print("this machine: well (a logout does not end a mesh here)")
    print("the configuration describes no hosts to look at (mesh init writes one)")
    return status


def _as_lines(one: checks.Examined) -> list[str]:
    facts = one.errand.facts
    about = ""
    if facts:
        about = f" (Python {clean(str(facts['version']))}, {counted(facts['processors'], 'processor')})"
    lines = [f"{one.errand.name}: {'well' if one.well else 'NOT WELL'}{about}"]
    for finding in one.findings:
        hint = f" – {clean(finding.hint)}" if finding.hint else ""
        lines.append(f"  {finding.code}: {clean(finding.message)}{hint}")
    return lines


def _as_row(one: checks.Examined) -> dict[str, Any]:
    facts = one.errand.facts
    return {
        "name": one.errand.name,
        "address": one.errand.host.address,
        "well": one.well,
        "findings": [finding._asdict() for finding in one.findings],
        "python": facts.get("version"),
        "processors": facts.get("processors"),
        "clock_off_s": round(one.errand.clock_off_s, 3) if facts else None,
        "agent": facts.get("agent"),
    }
