"""The command line of the monkey."""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from tests.monkey import coverage
from tests.monkey.campaign import Campaign
from tests.storm.journal import Journal
from tests.support import campaigns


def arguments() -> argparse.ArgumentParser:
    parser = campaigns.parser("monkey", __doc__.partition("\n")[0], 6.0, "acts")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="leave out the acts before N")
    parser.add_argument("--acts", type=int, default=0, metavar="N", help="end after act N")
    return parser


def inside(options: argparse.Namespace) -> int:
    """Play; 0 if nothing was violated."""
    journal = Journal(options.report / "monkey.jsonl")
    replay = f"python -m tests.monkey --seed {options.seed} --minutes 60 --from {options.first}"
    began, broken, left = time.monotonic(), "", []
    campaign = Campaign(options.seed, journal, options.report, replay)
    try:
        campaign.play(options.minutes * 60, options.first, options.acts)
    except KeyboardInterrupt:
        broken = "; interrupted"
    finally:
        left = campaign.close()
        journal.close()
    if left:
        print(f"monkey: left behind, which may be a fault of the mesh: {left[0]}")
    counts = ", ".join(f"{count} {name}" for name, count in campaign.counts.items())
    reached = coverage.table(coverage.counted([options.report]))
    print("\n".join(f"monkey: {line}" for line in reached.splitlines()))
    events = ", ".join(f"{count} {name}" for name, count in sorted(campaign.world.counts.items()))
    print(f"monkey: events: {events}; slowest heartbeat {campaign.slowest_s:.2f} s")
    print(
        f"monkey: seed {options.seed}: {counts} in {(time.monotonic() - began) / 60:.1f} minutes, "
        f"{len(journal.violations)} violations{broken}; log: {journal.path}",
        flush=True,
    )
    return 1 if journal.violations or broken else 0


def main() -> int:
    if shutil.which("tmux") is None:
        print("monkey: is left out: there is no tmux here")
        return 0
    return campaigns.start("monkey", arguments().parse_args(), inside)


if __name__ == "__main__":
    sys.exit(main())
