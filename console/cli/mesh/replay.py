"""``mesh replay``: runs a trace of jobs through the machine's CPAs, many times faster than in reality."""

import argparse
import glob
import gzip
import json
import zlib
from typing import IO

from console.deploy.personal import lifecycle
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from db.views.viewer import Picture, open_viewer
from redmesh.text import counted
from simulated.trace_player import Outcome, Player
from simulated.traces import Job, generated, read_swf


def replay(settings: Settings, options: argparse.Namespace) -> int:
    """Replay a file in the Standard Workload Format, or generated jobs."""
    config = lifecycle.read_config(settings)
    sockets = sorted(glob.glob(f"{glob.escape(settings.run_dir)}/cpa-*.sock"))
    if config is None or not sockets:
        raise ConsoleError("no mesh is up", "mesh up --simulate examples/red_storm.toml")
    login = settings.login or config.login
    processors = _free(settings, login)
    jobs = _jobs(options, processors)
    if not jobs:
        raise UsageError(
            f"no job of {options.trace} ever ran", "a job has processors, a run time and a time of submission"
        )
    player = Player(sockets, f"{settings.run_dir}/rca.sock", login, processors, options.placement)
    player.register()
    try:
        outcome = player.run(jobs)
    finally:
        player.close()
    print(json.dumps(outcome._asdict()) if options.json else _as_text(outcome, processors))
    return 0


def _free(settings: Settings, login: str) -> int:
    """The number of compute processors on a login processor's side. Raises ConsoleError unless all are free."""
    picture = Picture()
    with open_viewer(settings.database) as viewer:
        picture.update(viewer)
    sides = {node.name: node.side for node in picture.nodes.values()}
    if login not in sides:
        raise UsageError(f"there is no login processor {login!r} in this mesh", "mesh side show names those there are")
    here = {one for one, node in picture.nodes.items() if (node.role, node.side) == ("compute", sides[login])}
    compute = [one for one, row in picture.processors.items() if row.node in here]
    if not compute:
        raise ConsoleError(f"the side of {login} has no compute processors", "mesh side show")
    taken = sum(picture.state(one) != "free" for one in compute)
    if taken:
        raise ConsoleError(
            f"{taken} of {counted(len(compute), 'processor')} {'is' if taken == 1 else 'are'} not free",
            "replay on a mesh that runs nothing else",
        )
    return len(compute)


def _jobs(options: argparse.Namespace, processors: int) -> list[Job]:
    if options.trace is None:
        if options.jobs < 1 or not 0 < options.load <= 1 or not 0 <= options.days <= 3660:
            raise UsageError(
                "--jobs is at least 1, --load above 0 and at most 1, --days at most 3660",
                "mesh replay --jobs 1000 --load 0.8",
            )
        if options.days:
            return generated(processors, days=options.days, load=options.load, seed=options.seed)
        return generated(processors, options.jobs, load=options.load, seed=options.seed)
    try:
        with _opened(options.trace) as file:
            return list(read_swf(file))
    except (OSError, EOFError, zlib.error) as error:
        told = f"{options.trace}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(told, "FILE is a trace in Standard Workload Format; without it, jobs are made up") from None


def _opened(path: str) -> IO[str]:
    # Traces of the Parallel Workloads Archive are compressed.
    return (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8", errors="replace")


def _as_text(outcome: Outcome, processors: int) -> str:
    rate = outcome.jobs / outcome.seconds if outcome.seconds else 0.0
    return "\n".join(
        (
            f"{counted(outcome.jobs, 'job')} in {outcome.seconds:.1f} s, {rate:.0f} a second;"
            f" {outcome.span_s / 86400:.1f} days of {counted(processors, 'processor')},"
            f" {outcome.span_s / max(outcome.seconds, 1e-9):.0f} times real time",
            f"busy {outcome.utilisation:.0%}, mean wait {outcome.mean_wait_s:.0f} s, longest"
            f" {outcome.longest_wait_s:.0f} s",
            "no processor was given twice, and all are free again",
            *(
                [f"{counted(outcome.too_large, 'job is', 'jobs are')} larger than the machine: left out"]
                if outcome.too_large
                else []
            ),
        )
    )
