"""Tasks that come after others beside a list without an order and HyperQueue; calls with futures as arguments beside
dask.distributed."""

import importlib.util
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench.meshes import PEERS, mesh
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.bench.tasks import MESH, medians_of

TASKS, CALLS, RUNS = 2000, 5000, 3
#: A task comes after up to four of the thousand before it.
_SPAN, _MOST = 1000, 4
#: Seconds of one run: ``true`` for each line of a file with the places of those that it comes after.
_HYPERQUEUE = """
import sys, tempfile, time
from hyperqueue import LocalCluster, Job
from hyperqueue.cluster import WorkerConfig
with tempfile.TemporaryDirectory() as directory, LocalCluster(
    server_dir=directory, worker_config=WorkerConfig(cores=2)
) as cluster:
    client, job, tasks = cluster.client(), Job(max_fails=None), []
    for line in open(sys.argv[1]):
        after = [tasks[int(one)] for one in line.split()]
        tasks.append(job.program(["true"], stdout=None, stderr=None, deps=after))
    stamp = "date +%s.%N > " + directory + "/end"
    job.program(["sh", "-c", stamp], deps=tasks, stdout=None, stderr=None)
    began = time.time()
    client.wait_for_jobs([client.submit(job)])
    print(float(open(directory + "/end").read()) - began)
"""
_DASK = """
import json, sys, time, redmesh
from dask.distributed import Client, LocalCluster
def nothing(*before):
    return 0
def run(pool, **options):
    began, futures = time.perf_counter(), []
    for line in open(sys.argv[1]):
        futures.append(pool.submit(nothing, *[futures[int(one)] for one in line.split()], **options))
    for future in futures:
        future.result()
    return len(futures) / (time.perf_counter() - began)
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with redmesh.Executor(2) as executor, cluster, Client(cluster) as client:
        print(json.dumps([[run(executor), run(client, pure=False)] for _ in range({runs})]))
"""


def graphs() -> list[Row]:
    """A random graph of ``true`` on two processors, and one of calls that do nothing."""
    with mesh(2, 1) as one:
        order = _random_order(TASKS)
        (one.work / "order").write_text("".join(" ".join(map(str, after)) + "\n" for after in order))
        lines = [f"t{n}: {', '.join(f't{one}' for one in after)}: {n}\n" for n, after in enumerate(order)]
        (one.work / "graph").write_text("".join(lines))
        (one.work / "list").write_text("".join(f"{n}\n" for n in range(TASKS)))
        words = [MESH, "submit", "--limit", "2", "--wait", "--quiet"]
        graph = [*words, "--graph", str(one.work / "graph"), "--", "true"]
        plain = [*words, "--tasks", str(one.work / "list"), "--", "true"]
        took, ours = in_turn(lambda: seconds(graph, one.env), lambda: seconds(plain, one.env), RUNS)
        assert ours is not None
        rows = [Row(f"random graph of {TASKS:,} × true, 2 processors (tasks/s)", "a list without an order",
                    TASKS / took, TASKS / ours, Bar(0.8, 0.95, at_least=True))]  # fmt: skip
        peer = _hyperqueue(one.work)
        took, theirs = in_turn(lambda: seconds(graph, one.env), peer, RUNS if peer else 1)
        rows.append(Row("the same (tasks/s)", "HyperQueue", TASKS / took, TASKS / theirs if theirs else None,
                        Bar(2, 4, at_least=True)))  # fmt: skip
        if importlib.util.find_spec("distributed") is None:
            print("no dask.distributed here", file=sys.stderr)
            return rows
        (one.work / "order").write_text("".join(" ".join(map(str, after)) + "\n" for after in _random_order(CALLS)))
        program = one.work / "calls.py"
        program.write_text(_DASK.replace("{runs}", str(RUNS)))
        found = medians_of(one, program, str(one.work / "order"))
    what = f"random graph of {CALLS:,} calls, futures as arguments (calls/s)"
    return [*rows, Row(what, "dask LocalCluster, 2 workers", *found, Bar(10, 20, at_least=True))]


def _random_order(count: int) -> list[list[int]]:
    """The places of the tasks that each task comes after."""
    chance = random.Random(1)
    return [
        sorted({chance.randrange(max(0, place - _SPAN), place) for _ in range(chance.randint(0, _MOST))})
        if place
        else []
        for place in range(count)
    ]


def _hyperqueue(work: Path) -> Callable[[], float] | None:
    venv = PEERS / "venv" / "bin" / "python"
    python = str(venv) if venv.exists() else sys.executable
    if subprocess.run([python, "-c", "import hyperqueue"], capture_output=True).returncode:
        print("no HyperQueue here", file=sys.stderr)
        return None
    command = [python, "-c", _HYPERQUEUE, str(work / "order")]
    # Its server prints a table before.
    return lambda: float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
