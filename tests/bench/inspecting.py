"""Merged stacks beside a stack tool on one rank after the other, and what an open debugger costs other ranks."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN, PrivateMesh
from tests.support.mpis import ROOT
from tests.support.waiting import wait_until

RANKS, FEW, NODES = 256, 8, 4
ASKED = 20
MESH, YOD = str(BIN / "mesh"), str(BIN / "yod")


def launched(one: PrivateMesh, *command: str) -> str:
    """A detached launch's number."""
    return one.run("yod", "-detach", *command, check=True, timeout_s=120).stdout.strip()


def stacks() -> list[Row]:
    """Merged stacks of 256 ranks in a C program beside 256 ``eu-stack -p``."""
    if not shutil.which("eu-stack"):
        print("no eu-stack here", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, mesh(RANKS, NODES) as one:
        program = f"{folder}/deep"
        subprocess.run(["gcc", "-g", "-O1", "-o", program, str(ROOT / "tests/bench/deep.c")], check=True)
        launcher = launched(one, "-sz", str(RANKS), program)
        pids: list[str] = []

        def running() -> bool:
            pids[:] = [pid for pid, words in one.processes().items() if words == program]  # type: ignore[misc]
            return len(pids) == RANKS

        wait_until(running, "every rank runs")
        told = json.loads(one.run("mesh", "stacks", launcher, "--json", check=True).stdout)
        assert told["tree"][0]["ranks"] == f"0-{RANKS - 1}" and not told["missing"], told["missing"]

        def other() -> float:
            began = time.perf_counter()
            for pid in pids:
                subprocess.run(["eu-stack", "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.perf_counter() - began

        mine, theirs = in_turn(lambda: seconds([MESH, "stacks", launcher], one.env), other, 5)
        many = cost(one, launcher)
        one.run("yod", "-signal", "KILL", launcher, check=True)
        wait_until(lambda: one.json("showmesh")["states"]["free"] == RANKS, "it is over")
        few = cost(one, launched(one, "-sz", str(FEW), program))
    return [
        Row(f"merged stacks of {RANKS} ranks (s)", f"{RANKS} eu-stack -p in turn", mine, theirs, Bar(0.7, 0.4)),
        Row(f"yod's processor time for stacks of {RANKS} ranks (s)", f"of {FEW} ranks", many, few, Bar(1.5, 1.2)),
    ]


def cost(one: PrivateMesh, launcher: str) -> float:
    """Seconds of processor time that the yod of ``launcher`` spends on one ``mesh stacks``, beats and all."""
    (pid,) = [one_["pid"] for one_ in one.json("showmesh")["launchers"] if one_["id"] == int(launcher)]

    def spent() -> float:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9  # ns on a processor

    one.run("mesh", "stacks", launcher, check=True)
    before = spent()
    for _ in range(ASKED):
        one.run("mesh", "stacks", launcher, check=True)
    return (spent() - before) / ASKED


#: Rank 0 waits; rank 1 computes and writes, and says how long each round took it.
ROUNDS = """
import os, sys, time
if os.environ["YOD_RANK"] == "0":
    time.sleep(3600)
line = b"x" * 63 + b"\\n"
while True:
    began = time.perf_counter()
    for _ in range(200):
        sum(range(5000))
        os.write(2, line * 16)
    print(time.perf_counter() - began, flush=True)
"""


def hold() -> list[Row]:
    """A rank's rounds while a debugger holds another rank of its launch, beside rounds without."""
    if not shutil.which("gdb"):
        print("no gdb here", file=sys.stderr)
        return []
    with mesh(4, 2) as one:
        process = one.start(
            YOD, "-sz", "2", sys.executable, "-c", ROUNDS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        launcher = wait_until(lambda: one.json("showmesh")["launchers"], "it runs")[0]["id"]

        def rounds(count: int) -> float:
            assert process.stdout is not None
            return statistics.median(float(process.stdout.readline()) for _ in range(count))

        rounds(20)
        held: list[float] = []
        free: list[float] = []
        for _ in range(5):
            free.append(rounds(20))
            sits = one.start(MESH, "debug", str(launcher), "0", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert sits.stdout is not None and sits.stdin is not None
            seen = b""
            while b"(gdb)" not in seen:
                seen += sits.stdout.read1(4096)
            held.append(rounds(20))
            sits.terminate()
            sits.communicate()
        process.terminate()
        process.communicate()
    mine, theirs = statistics.median(held), statistics.median(free)
    return [Row("a rank's round while another is held (s)", "without a debugger", mine, theirs, Bar(1.1, 1.03))]
