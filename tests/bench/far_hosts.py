"""Hosts with a network between them: a program on its way over slow links, and what a PCT costs that does nothing."""

import os
import statistics
import time
from pathlib import Path

from tests.bench.ratios import RUNS, Bar, Row, seconds
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts

HOSTS = 16
SIZE, RATE = 16 << 20, 400e6  # bytes, bits a second
IDLE_S = 30.0


def far_image() -> list[Row]:
    """A program of 16 MB that no host has, from yod's start to its end; needs root, for the hosts."""
    made = NamespaceHosts(HOSTS, rate=f"{RATE / 1e6:.0f}mbit")
    try:
        mesh = FarMesh(made, processors=1)
        try:
            mesh.up()
            taken = [_once(mesh, made, number) for number in range(RUNS + 1)][1:]
        finally:
            mesh.close()
    finally:
        made.close()
    what = f"{SIZE >> 20} MB program to {HOSTS} hosts at {RATE / 1e6:.0f} Mbit/s each, launch and all (s)"
    return [Row(what, "size ÷ link rate", statistics.median(taken), SIZE * 8 / RATE, Bar(2.5, 1.3))]


def _once(mesh: FarMesh, made: NamespaceHosts, number: int) -> float:
    program = mesh.home / f"program-{number}"  # new each time: no host has it from before
    base = Path("/bin/true").read_bytes()
    program.write_bytes(base + os.urandom(SIZE - len(base)))
    program.chmod(0o755)
    return seconds(made.command("yod", "-sz", str(HOSTS), str(program)), mesh.env)


def idle_pct() -> list[Row]:
    """Memory and time of a PCT on a host where nothing runs; the host is alone, so that it shares with nobody."""
    made = NamespaceHosts(1)
    try:
        mesh = FarMesh(made)
        try:
            mesh.up()
            (pct,) = mesh.pids_on(made[0], "redmesh-pct")
            time.sleep(2.0)
            began, before = time.monotonic(), _cpu_s(pct)
            time.sleep(IDLE_S)
            share = (_cpu_s(pct) - before) / (time.monotonic() - began)
            memory = _pss_mb(pct)
        finally:
            mesh.close()
    finally:
        made.close()
    return [
        Row("idle PCT on a host: PSS (MB)", "10 MB", memory, 10.0, Bar(1.0, 0.6)),
        Row("idle PCT on a host: share of a core (%)", "0.1 %", 100 * share, 0.1, Bar(1.0, 0.5)),
    ]


def _cpu_s(pid: int) -> float:
    # nanoseconds on the processor: /proc/PID/stat counts in hundredths of a second
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _pss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no PSS of process {pid}")
