"""``mesh grow`` and ``mesh shrink``: nodes of a batch job in a standing mesh."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

from console.errors import UsageError
from console.settings import Settings
from redmesh.start_command import start_command
from redmesh.text import counted


def grow(settings: Settings, options: argparse.Namespace) -> int:
    """Add the nodes of a new batch job to the mesh; returns 1 if one of them did not come up."""
    from console.cli.mesh.host_progress import progress
    from console.deploy.mesh import growth

    if options.list:
        return _list(settings, json_too=options.json)
    if not (options.count.isascii() and options.count.isdigit() and 0 < int(options.count) < 100_000):
        raise UsageError(f"-N needs a number of nodes, not {options.count!r}", "mesh grow -N 8 --time 1:00:00")
    for number in (signal.SIGTERM, signal.SIGHUP):  # like SIGINT: the job is cancelled
        signal.signal(number, signal.default_int_handler)
    with progress(options.json) as report:
        grown, errands = growth.grow(
            settings, options.batch_system, int(options.count), options.time, options.option, report, _tell
        )
    if grown.drain_at is not None:
        _start_watcher(grown.job)
    failed = [errand.name for errand in errands if errand.failure is not None]
    if options.json:
        print(json.dumps({**grown._asdict(), "failed": failed}))
    else:
        print(
            f"mesh grew by {counted(len(grown.nodes) - len(failed), 'node')} of job {grown.job}{_until(grown.drain_at)}"
        )
    return 1 if failed else 0


def shrink(settings: Settings, options: argparse.Namespace) -> int:
    """Drain a job's nodes and end the job."""
    from console.deploy.mesh import growth
    from console.tracker import evacuation

    def evacuate(names: list[str]) -> None:
        evacuation.evacuate(settings, names, _tell)

    if options.when_due:
        growth.shrink_when_due(settings, options.job, evacuate)
        return 0
    grown = growth.shrink(settings, options.job, force=options.force, evacuate=evacuate, tell=_tell)
    print(f"mesh shrank by {counted(len(grown.nodes), 'node')} of job {grown.job}")
    return 0


def _list(settings: Settings, *, json_too: bool) -> int:
    from console.deploy.mesh import growth

    rows = growth.recorded(settings)
    if json_too:
        print(json.dumps({"grown": [{**row._asdict(), "drain_at": row.drain_at} for row in rows]}))
        return 0
    for row in rows:
        print(f"{row.manager} {row.job}: {','.join(row.nodes)}{_until(row.drain_at)}")
    return 0


def _until(drain_at: float | None) -> str:
    return "" if drain_at is None else f"; drained at {time.strftime('%H:%M:%S', time.localtime(drain_at))}"


def _start_watcher(job: str) -> None:
    """Start the process that empties the drained nodes and ends the job before its time limit. It ends with them."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_JOB_")}
    subprocess.Popen(
        [*start_command("mesh"), "shrink", "--when-due", job], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=variables, cwd="/", start_new_session=True,
    ).returncode = 0  # fmt: skip  # it outlives this command


def _tell(text: str) -> None:
    print(f"mesh: {text}", file=sys.stderr, flush=True)
