"""The command line of the storm, and the namespaces in which it runs.

As root everything runs in mount and process namespaces of its own: small disks can be mounted and filled, and whatever
becomes of the storm, the kernel ends every process of it. Anybody else has the faults that need no root.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

from tests.storm.engine import Storm
from tests.storm.faults import FAMILIES, FAULTS, Fault
from tests.storm.journal import Journal
from tests.storm.settings import SETTINGS, Unavailable
from tests.support import campaigns


def arguments() -> argparse.ArgumentParser:
    parser = campaigns.parser("storm", __doc__.partition("\n")[0], 5.0, "choices")
    parser.add_argument("--setting", default="all", help=f"all, or some of: {','.join(SETTINGS)}")
    parser.add_argument("--faults", default="", help="only these faults or families; --list names them")
    parser.add_argument("--without", default="", help="none of these faults or families")
    parser.add_argument("--every", type=float, default=0.8, metavar="S", help="seconds between faults (default: 0.8)")
    parser.add_argument("--list", action="store_true", help="print the table of faults")
    return parser


def chosen_faults(options: argparse.Namespace) -> list[Fault]:
    """The faults that ``--faults`` names (all of them when it names none), but for those of ``--without``."""
    wanted, unwanted = ([word for word in words.split(",") if word] for words in (options.faults, options.without))
    unknown = {*wanted, *unwanted} - set(FAMILIES) - {fault.name for fault in FAULTS}
    if unknown:
        sys.exit(f"storm: no fault or family is called {', '.join(sorted(unknown))} (--list names them)")
    return [
        fault
        for fault in FAULTS
        if (not wanted or {fault.name, fault.family} & set(wanted)) and not {fault.name, fault.family} & set(unwanted)
    ]


def chosen_settings(words: str) -> list[str]:
    wanted = list(SETTINGS) if words == "all" else words.split(",")
    unknown = set(wanted) - set(SETTINGS)
    if unknown:
        sys.exit(f"storm: no setting is called {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    return wanted


def print_table() -> None:
    for fault in FAULTS:
        where = "all" if len(fault.settings) == len(SETTINGS) else ",".join(sorted(fault.settings))
        print(f"{fault.family:<12}{fault.name:<24}{where:<16}{fault.touches}; may end: {fault.may_end}; {fault.heals}")


def inside(options: argparse.Namespace) -> int:
    """Storm at one setting after the other; 0 if nothing was violated."""
    kind, _, work = options.inside.partition(":")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    journal = Journal(options.report / "storm.jsonl")
    totals: dict[str, int] = {}
    settings = chosen_settings(options.setting)
    begun = time.monotonic()
    broken = ""
    for number, name in enumerate(settings):
        left_s = options.minutes * 60 - (time.monotonic() - begun)
        chance = random.Random(f"{options.seed} {name}")
        try:
            storm = Storm(
                SETTINGS[name],
                journal,
                chance,
                chosen_faults(options),
                Path(work),
                kind == "root",
                options.every,
            )
        except Unavailable as error:
            print(f"storm: setting {name} is left out: {error}", flush=True)
            continue
        try:
            storm.storm(left_s / (len(settings) - number))
        except KeyboardInterrupt:
            broken = "interrupted"
        except Exception as error:
            journal.violate("the storm itself failed", repr(error), evidence=_traceback())
        for key, count in storm.counts.items():
            totals[key] = totals.get(key, 0) + count
        counts = ", ".join(f"{count} {key}" for key, count in storm.counts.items())
        print(f"storm: {name}: {counts}, {sum(v.setting == name for v in journal.violations)} violations", flush=True)
        if broken:
            break
    journal.close()
    return summary(options, journal, totals, time.monotonic() - begun, broken)


def _traceback() -> str:
    import traceback

    return traceback.format_exc()


def summary(options: argparse.Namespace, journal: Journal, totals: dict[str, int], seconds: float, broken: str) -> int:
    """Print the last line, with the kinds of violations before it; the exit status."""
    kinds: dict[str, int] = {}
    for one in journal.violations:
        kinds[f"{one.setting}: {one.kind}"] = kinds.get(f"{one.setting}: {one.kind}", 0) + 1
    for kind, count in sorted(kinds.items()):
        print(f"storm: {count} × {kind}")
    hour = totals.get("faults", 0) * 3600 / max(seconds, 1)
    print(
        f"storm: seed {options.seed}: {totals.get('faults', 0)} faults in {seconds / 60:.1f} minutes "
        f"({hour:.0f} an hour), "
        f"{totals.get('launches', 0)} launches, {totals.get('commands', 0)} commands, {totals.get('checkpoints', 0)} "
        f"checkpoints, {len(journal.violations)} violations{'; ' + broken if broken else ''}; log: {journal.path}",
        flush=True,
    )
    return 1 if journal.violations or broken or not totals else 0


def main() -> int:
    options = arguments().parse_args()
    if options.list:
        print_table()
        return 0
    if not options.inside:
        chosen_faults(options)
        chosen_settings(options.setting)
    return campaigns.start("storm", options, inside)


if __name__ == "__main__":
    sys.exit(main())
