"""The command line of the monkey."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

from tests.monkey.campaign import Campaign
from tests.storm.journal import Journal
from tests.support.isolated import interruptible, run_isolated


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.monkey", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=6.0, help="how long (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="repeat the acts of a seed (default: a new seed)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="leave out the acts before N")
    parser.add_argument("--acts", type=int, default=0, metavar="N", help="end after act N")
    parser.add_argument("--report", type=Path, help="where the log goes (default: /var/tmp/redmesh-monkey-SEED)")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
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
    events = ", ".join(f"{count} {name}" for name, count in sorted(campaign.world.counts.items()))
    print(f"monkey: events: {events}; slowest heartbeat {campaign.slowest_s:.2f} s")
    print(
        f"monkey: seed {options.seed}: {counts} in {(time.monotonic() - began) / 60:.1f} minutes, "
        f"{len(journal.violations)} violations{broken}; log: {journal.path}",
        flush=True,
    )
    return 1 if journal.violations or broken else 0


def main() -> int:
    options = arguments().parse_args()
    if options.inside:
        interruptible()
        return inside(options)
    if shutil.which("tmux") is None:
        print("monkey: left out: there is no tmux here")
        return 0
    options.seed = options.seed or random.randrange(1, 1 << 30)
    options.report = (options.report or Path(f"/var/tmp/redmesh-monkey-{options.seed}")).resolve()
    options.report.mkdir(parents=True, exist_ok=True)
    print(f"monkey: seed {options.seed}, log {options.report / 'monkey.jsonl'}", flush=True)
    return run_isolated("tests.monkey", sys.argv[1:], options.seed, options.report)


if __name__ == "__main__":
    sys.exit(main())
