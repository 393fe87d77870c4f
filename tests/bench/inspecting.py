"""Merged stacks beside a stack tool on one rank after the other, and what an open debugger costs other ranks."""

import json
import shutil
import subprocess
import sys
import tempfile
import time

from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN, PrivateMesh
from tests.support.mpis import ROOT
from tests.support.waiting import wait_until

RANKS, NODES = 256, 4
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

        wait_until(running, "every rank runs", 60)
        told = json.loads(one.run("mesh", "stacks", launcher, "--json", check=True).stdout)
        assert told["tree"][0]["ranks"] == f"0-{RANKS - 1}" and not told["missing"], told["missing"]

        def other() -> float:
            began = time.perf_counter()
            for pid in pids:
                subprocess.run(["eu-stack", "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.perf_counter() - began

        mine, theirs = in_turn(lambda: seconds([MESH, "stacks", launcher], one.env), other, 5)
    return [Row(f"merged stacks of {RANKS} ranks (s)", f"{RANKS} eu-stack -p in turn", mine, theirs, Bar(0.7, 0.4))]
