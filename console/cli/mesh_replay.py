"""``mesh replay``: a trace of jobs over the whole machine, through its CPAs, many times faster than it happened."""

import argparse
import glob
import json

from agents.simulated.player import Outcome, Player
from agents.simulated.traces import Job, generated, read_swf
from console.deploy import personal
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.views import Picture, open_viewer


def replay(settings: Settings, options: argparse.Namespace) -> int:
    """Replay a file of the Standard Workload Format, or jobs made up."""
    config = personal.read_config(settings)
    sockets = sorted(glob.glob(f"{glob.escape(settings.run_dir)}/cpa-*.sock"))
    if config is None or not sockets:
        raise ConsoleError("no mesh is up", "mesh up --simulate examples/red_storm.toml")
    processors = _free(settings)
    jobs = _jobs(options, processors)
    player = Player(sockets, f"{settings.run_dir}/rca.sock", config["login"], processors, options.placement)
    player.register()
    try:
        outcome = player.run(jobs)
    finally:
        player.close()
    print(json.dumps(outcome._asdict()) if options.json else _as_text(outcome, processors))
    return 0


def _free(settings: Settings) -> int:
    """Compute processors, all of which must be free: nobody else is to get in the way."""
    picture = Picture()
    with open_viewer(settings.database) as viewer:
        picture.update(viewer)
    compute = [one for one, row in picture.processors.items() if picture.nodes[row.node].role == "compute"]
    taken = sum(picture.state(one) != "free" for one in compute)
    if taken:
        raise ConsoleError(f"{taken} of {len(compute)} processors are not free", "replay on a machine of its own")
    return len(compute)


def _jobs(options: argparse.Namespace, processors: int) -> list[Job]:
    if options.trace is None:
        if options.jobs < 1 or not 0 < options.load <= 1 or not 0 <= options.days <= 3660:
            raise UsageError("--jobs is at least 1, --load above 0 and at most 1, --days at most 3660")
        if options.days:
            return generated(processors, days=options.days, load=options.load, seed=options.seed)
        return generated(processors, options.jobs, load=options.load, seed=options.seed)
    try:
        with open(options.trace, encoding="utf-8", errors="replace") as file:
            return list(read_swf(file))
    except OSError as error:
        raise UsageError(f"{options.trace}: {error.strerror}") from None


def _as_text(outcome: Outcome, processors: int) -> str:
    rate = outcome.jobs / outcome.seconds if outcome.seconds else 0.0
    return "\n".join(
        (
            f"{outcome.jobs} jobs in {outcome.seconds:.1f} s, {rate:.0f} a second;"
            f" {outcome.span_s / 86400:.1f} days of {processors} processors,"
            f" {outcome.span_s / max(outcome.seconds, 1e-9):.0f} times real time",
            f"busy {outcome.utilisation:.0%}, mean wait {outcome.mean_wait_s:.0f} s, longest"
            f" {outcome.longest_wait_s:.0f} s",
            "no processor was given twice, and all are free again",
            *([f"{outcome.too_large} jobs are larger than the machine: left out"] if outcome.too_large else []),
        )
    )
