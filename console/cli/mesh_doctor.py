"""``mesh doctor``: what is wrong on which host, and what to do."""

import argparse
import json
from typing import Any

from console.cli.host_progress import Lines, Silent, progress
from console.counted import counted
from console.deploy import doctor
from console.deploy.crew import Report
from console.launch.sanitise import clean
from console.settings import Settings


def examine(settings: Settings, options: argparse.Namespace) -> int:
    """Look at every host; status 1 when one of them cannot be used."""
    with progress(options.json) as report:
        quiet: Report = Silent() if isinstance(report, Lines) else report  # what is wrong is told below
        found = doctor.examine(settings, quiet, options.only, options.label)
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "hosts": [_as_row(one) for one in found]}))
    else:
        print("\n".join(line for one in found for line in _as_lines(one)))
        ill = sum(not one.well for one in found)
        are = "is" if len(found) - ill == 1 else "are"
        print(f"{len(found) - ill} of {counted(len(found), 'host')} {are} well")
    return 0 if all(one.well for one in found) else 1


def _as_lines(one: doctor.Examined) -> list[str]:
    facts = one.errand.facts
    about = ""
    if facts:
        about = f" (Python {clean(str(facts['version']))}, {counted(facts['processors'], 'processor')})"
    lines = [f"{one.errand.name}: {'well' if one.well else 'NOT WELL'}{about}"]
    for finding in one.findings:
        hint = f" – {clean(finding.hint)}" if finding.hint else ""
        lines.append(f"  {finding.code}: {clean(finding.message)}{hint}")
    return lines


def _as_row(one: doctor.Examined) -> dict[str, Any]:
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
