"""A mesh of its own for a benchmark, and the Slurm beside it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.mesh import PrivateMesh

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("REDMESH_PEERS", ROOT.parent / "shared" / "peers"))


@contextlib.contextmanager
def mesh(processors: int, nodes: int, cpas: int = 1, database: str = "") -> Iterator[PrivateMesh]:
    """A mesh that is up, and down again afterwards."""
    made = PrivateMesh(processors, nodes, cpas, database)
    try:
        made.up()
        yield made
    finally:
        for what in made.close():
            print(f"left behind: {what}", file=sys.stderr)


@contextlib.contextmanager
def slurm(nodes: int) -> Iterator[dict[str, str] | None]:
    """The environment of a Slurm with ``nodes`` virtual nodes, or None where it cannot be had."""
    script = PEERS / "setup_slurm.sh"
    if not script.exists() or not shutil.which("srun") or os.geteuid() != 0:
        print("no Slurm here: figures stand alone", file=sys.stderr)
        yield None
        return
    home = os.environ.get("PEERS") or os.path.join(tempfile.gettempdir(), "peers")
    env = dict(os.environ, PEERS=home, SLURM_CONF=os.path.join(home, "slurm", "slurm.conf"))
    subprocess.run([str(script), str(nodes)], env=env, check=True, stdout=subprocess.DEVNULL, timeout=180)
    try:
        yield env
    finally:
        subprocess.run([str(script), "stop"], env=env, timeout=60)


def wait_completing(env: dict[str, str]) -> None:
    """Until no node of Slurm is COMPLETING: the next srun would wait for it, not for its own launch."""
    while subprocess.run(["sinfo", "-h", "-t", "comp", "-o", "%n"], env=env, capture_output=True).stdout.strip():
        time.sleep(0.05)


def pss_kib(pid: int) -> int:
    """Proportional set size of a process in KiB (its private pages and its share of the others)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError(f"no Pss for {pid}")


def pids(name: str) -> list[int]:
    """Processes by the name in /proc/PID/comm."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{entry}/comm").read_text().strip() == name:
                    found.append(int(entry))
    return found
