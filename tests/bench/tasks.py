"""Jobs of tasks beside xargs and HyperQueue, an array of a million, and functions beside ``ProcessPoolExecutor`` and
dask.distributed."""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.meshes import PEERS, mesh
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN, PrivateMesh
from tests.support.waiting import wait_until

TASKS, CALLS, ARRAY, RUNS = 2000, 20_000, 1_000_000, 5
MESH = str(BIN / "mesh")
#: Calls a second of both, in turns: ours first.
_CALLS = """
import json, sys, time, redmesh
from concurrent.futures import ProcessPoolExecutor
def nothing(n):
    return n
def rate(executor, chunk):
    began = time.perf_counter()
    for _ in executor.map(nothing, range({calls}), chunksize=chunk):
        pass
    return {calls} / (time.perf_counter() - began)
def submitted(executor):
    began = time.perf_counter()
    for one in [executor.submit(nothing, n) for n in range({calls})]:
        one.result()
    return {calls} / (time.perf_counter() - began)
if __name__ == "__main__":
    told = []
    with redmesh.Executor(2) as ours, ProcessPoolExecutor(2) as theirs:
        for executor in (ours, theirs):
            rate(executor, 1)
        for _ in range({runs}):
            told.append([rate(executor, chunk) for chunk in (1, 100) for executor in (ours, theirs)])
            told[-1] += [submitted(executor) for executor in (ours, theirs)]
    print(json.dumps(told))
"""
#: The same beside dask, which is so slow that one call of its ``map`` a turn is enough. It sends calls of a batch
#: together; each is one task, as with our chunks of 1.
_DASK = """
import json, time, redmesh
from dask.distributed import Client, LocalCluster
def nothing(n):
    return n
def ours(executor):
    began = time.perf_counter()
    for _ in executor.map(nothing, range({calls})):
        pass
    return {calls} / (time.perf_counter() - began)
def theirs(client):
    began = time.perf_counter()
    client.gather(client.map(nothing, range({calls}), pure=False))
    return {calls} / (time.perf_counter() - began)
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with redmesh.Executor(2) as executor, cluster, Client(cluster) as client:
        ours(executor), client.gather(client.map(nothing, range(200), pure=False))
        print(json.dumps([[ours(executor), theirs(client)] for _ in range({runs})]))
"""
DASK_RUNS = 3


def tasks() -> list[Row]:
    """2,000 × ``true`` on two processors, and a job of a million tasks."""
    with mesh(2, 1) as one:
        words = [MESH, "submit", "--array", f"1-{TASKS}", "--limit", "2", "--wait", "--quiet", "--", "true"]
        xargs = ["sh", "-c", f"seq {TASKS} | xargs -P2 -n1 true"]
        took, theirs = in_turn(lambda: seconds(words, one.env), lambda: seconds(xargs), RUNS)
        assert theirs is not None
        rows = [Row(f"{TASKS} × true, 2 processors (tasks/s)", "xargs -P2", TASKS / took, TASKS / theirs,
                    Bar(0.7, 1.0, at_least=True))]  # fmt: skip
        peer = _hyperqueue()
        took, theirs = in_turn(lambda: seconds(words, one.env), peer, RUNS if peer else 1)
        rows.append(Row("the same (tasks/s)", "HyperQueue", TASKS / took, TASKS / theirs if theirs else None,
                        Bar(3, 5, at_least=True)))  # fmt: skip
        rows += _array(one)
    return rows


def _hyperqueue() -> Callable[[], float] | None:
    """Seconds of one run by HyperQueue's Python API, which has no arrays."""
    venv = PEERS / "venv" / "bin" / "python"
    python = str(venv) if venv.exists() else sys.executable
    if subprocess.run([python, "-c", "import hyperqueue"], capture_output=True).returncode:
        print("no HyperQueue here", file=sys.stderr)
        return None

    def run() -> float:
        command = [python, str(PEERS / "hq_bench.py"), str(TASKS), "1", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return TASKS / float(done.stdout.split(" = ")[1].split()[0])

    return run


def _array(one: PrivateMesh) -> list[Row]:
    command = [MESH, "submit", "--array", f"1-{ARRAY}", "--", "sleep", "1000"]
    began = time.perf_counter()
    job = one.run(*command, check=True).stdout.strip()
    took = time.perf_counter() - began
    wait_until(lambda: one.json("mesh", "queue")[0]["state"] == "running", "the job runs")
    owner = int(one.json("mesh", "queue")[0]["owner"].rpartition(":")[2])
    status = Path(f"/proc/{owner}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    one.run("mesh", "cancel", job, check=True)
    one.run("mesh", "wait", job)
    return [
        Row(f"array of {ARRAY:,} tasks: submit to accepted (s)", "5 s", took, 5.0, Bar(1.0, 0.4)),
        Row("the same: memory of the owner (MiB)", "150 MiB", peak, 150.0, Bar(1.0, 0.53)),
    ]


def functions() -> list[Row]:
    """20,000 calls that do nothing, by ``map``, chunks of 1 and 100, and by ``submit``."""
    with mesh(2, 1) as one:
        program = one.work / "calls.py"
        program.write_text(_CALLS.format(calls=CALLS, runs=RUNS))
        medians = medians_of(one, program)
        dask = None
        if importlib.util.find_spec("distributed") is None:
            print("no dask.distributed here", file=sys.stderr)
        else:
            program.write_text(_DASK.format(calls=CALLS, runs=DASK_RUNS))
            dask = medians_of(one, program)
    rows = [
        Row(f"{CALLS:,} calls by Executor.map, chunk 1 (calls/s)", "ProcessPoolExecutor(2)", *medians[:2],
            Bar(0.4, 0.8, at_least=True)),
        Row("the same, chunk 100", "ProcessPoolExecutor(2)", *medians[2:4], Bar(0.2, 0.5, at_least=True)),
        Row("the same, by submit", "ProcessPoolExecutor(2)", *medians[4:], Bar(0.4, 0.8, at_least=True)),
    ]  # fmt: skip
    if dask is not None:
        rows.append(Row("the same, chunk 1", "dask LocalCluster, 2 workers", *dask, Bar(4, 8, at_least=True)))
    return rows


def medians_of(one: PrivateMesh, program: Path, *words: str) -> list[float]:
    """The median of each column that a program prints."""
    told = json.loads(one.run(sys.executable, str(program), *words, check=True, timeout_s=600).stdout)
    return [sorted(column)[len(column) // 2] for column in zip(*told, strict=True)]
