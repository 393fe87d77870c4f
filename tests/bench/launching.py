"""Launches beside srun's, the launcher's and the viewers' start-up, and what a PCT weighs."""

import contextlib
import json
import statistics
import sys
import time

from agents.linux import processes
from tests.bench.meshes import ROOT, mesh, pids, pss_kib, slurm, wait_completing
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN, PrivateMesh

YOD, TRUE = str(BIN / "yod"), "/bin/true"


def launches() -> list[Row]:
    """The launch rows of the table: 1, 16, 64, 256 processes beside srun, 1,024 beside a bare loop."""
    rows = []
    with slurm(64) as peer:
        plans = [
            (64, 1, "yod -sz 1 true", ["-N1"], Bar(1.0, 0.7)),
            (64, 16, "16 processes over 16 PCTs", ["-N16"], Bar(0.45, 0.3)),
            (64, 64, "64 processes over 64 PCTs", ["-N64"], Bar(0.35, 0.2)),
            (256, 256, "256 processes over 64 PCTs", ["-N64", "-n256", "--overcommit"], Bar(0.4, 0.25)),
        ]
        for processors, size, what, srun, bar in plans:
            with mesh(processors, 64) as one:

                def theirs(srun: list[str] = srun) -> float:
                    assert peer is not None
                    took = seconds(["srun", *srun, TRUE], peer)
                    wait_completing(peer)
                    return took

                def ours(size: int = size, env: dict[str, str] = one.env) -> float:
                    return seconds([YOD, "-sz", str(size), TRUE], env)

                mine, other = in_turn(ours, theirs if peer is not None else None)
            rows.append(Row(what + " (s)", "srun " + " ".join(srun), mine, other, bar))
    return rows


def thousand() -> list[Row]:
    """1,024 processes over 64 PCTs beside a bare gated loop."""
    loop = [sys.executable, str(ROOT / "tests" / "bench" / "gated_loop.py"), "1024", TRUE]
    with mesh(1024, 64) as one:
        mine, other = in_turn(lambda: seconds([YOD, "-sz", "1024", TRUE], one.env), lambda: seconds(loop))
    return [Row("1,024 processes over 64 PCTs (s)", "1,024 gated fork+exec in one Python", mine, other, Bar(0.8, 0.4))]


def start_up() -> list[Row]:
    """``yod --help``, ``showmesh --json`` and commands of ``mesh`` beside a Python that does nothing."""
    bare = [sys.executable, "-P", "-c", "pass"]
    rows = []
    with mesh(64, 64) as one:
        for what, command, bar in (
            ("yod --help (s)", [YOD, "--help"], Bar(3, 2)),
            ("showmesh --json, 64 nodes (s)", [str(BIN / "showmesh"), "--json"], Bar(10, 7)),
            ("mesh version (s)", [str(BIN / "mesh"), "version"], Bar(5, 3)),
            ("mesh status, 64 nodes (s)", [str(BIN / "mesh"), "status"], Bar(10, 6)),
            ("mesh queue (s)", [str(BIN / "mesh"), "queue"], Bar(8, 5)),
        ):
            mine, other = in_turn(lambda command=command: seconds(command, one.env), lambda: seconds(bare), runs=15)  # type: ignore[misc]
            rows.append(Row(what, "python -c pass", mine, other, bar))
    return rows


def _pct_pids(one: PrivateMesh) -> list[int]:
    return [daemon["pid"] for daemon in one.keeper()["daemons"] if daemon["name"].startswith("n")]


def _weights(processes_of: list[int]) -> list[int]:
    """PSS of those that are still there: a slurmd forks helpers under its own name."""
    found = []
    for pid in processes_of:
        with contextlib.suppress(OSError, RuntimeError):
            found.append(pss_kib(pid))
    return found


def _wait_for_rest(one: PrivateMesh) -> None:
    """Until the launch children that might have served another launch have ended."""
    deadline = time.monotonic() + 30
    while any(processes.children(pid) for pid in _pct_pids(one)):
        if time.monotonic() > deadline:
            raise RuntimeError("launch children do not end")
        time.sleep(0.1)


def memory() -> list[Row]:
    """PSS of a PCT at rest, alone and among 64, beside slurmd."""
    rows = []
    with slurm(4) as peer:
        slurmd = None
        if peer is not None:
            wait_completing(peer)
            slurmd = statistics.median(_weights(pids("slurmd"))) / 1024
        for processors, nodes, what, bar in (
            (2, 1, "PCT at rest, alone: PSS (MiB; bar in MiB)", Bar(5.0, 4.0)),
            (64, 64, "PCT at rest, one of 64: PSS (MiB; bar in MiB)", Bar(3.0, 2.4)),
        ):
            with mesh(processors, nodes) as one:
                seconds([YOD, "-sz", str(nodes), TRUE], one.env)
                _wait_for_rest(one)
                mine = statistics.median(pss_kib(pid) for pid in _pct_pids(one)) / 1024
            against = "1 MiB" + (f" (slurmd beside it: {slurmd:.2f} MiB)" if slurmd else "")
            rows.append(Row(what, against, mine, 1.0, bar))
    return rows


def main() -> None:
    """Run one section by itself and print its rows as JSON: python -m tests.bench.launching launches."""
    print(json.dumps([row._asdict() for row in globals()[sys.argv[1]]()], indent=1))


if __name__ == "__main__":
    main()
