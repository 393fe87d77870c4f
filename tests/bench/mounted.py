"""Files through ``yod --io`` beside ``sshfs``: both on a namespace host, of files that only the login processor has."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.ratios import Bar, Row, in_turn
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NOT_ROOT, NamespaceHosts, can_have_namespaces
from tests.support.mesh import while_up

LARGE_BYTES, SMALL_FILES, RUNS = 256 << 20, 10_000, 3
#: Prints the seconds that the work itself takes.
WORK = r"""
import os, sys, time
what, where = sys.argv[1:]
began = time.perf_counter()
if what == "read":
    with open(where + "/large", "rb", 0) as file:
        while file.read(1 << 20): pass
elif what == "write":
    data = os.urandom(1 << 20)
    with open(where + "/written", "wb", 0) as file:
        for _ in range(256): file.write(data)
else:
    for name in sorted(os.listdir(where + "/many")):
        with open(where + "/many/" + name, "rb", 0) as file: file.read()
print(time.perf_counter() - began)
"""
WHAT = {
    "read": ("256 MiB read through a mounted directory (s)", Bar(2.0, 1.0)),
    "write": ("256 MiB written through a mounted directory (s)", Bar(2.0, 1.0)),
    "many": ("10,000 small files read through a mounted directory (s)", Bar(1.0, 0.7)),
}


def mounted() -> list[Row]:
    """A rank on another host beside ``sshfs`` between the same hosts; needs root, for the hosts."""
    if not can_have_namespaces() or not shutil.which("sshfs"):
        print(f"{NOT_ROOT}, or sshfs is missing: no row", file=sys.stderr)
        return []
    made = NamespaceHosts(1)
    data = Path(tempfile.mkdtemp(prefix="redmesh-b-", dir="/var/tmp"))  # hosts have a small /tmp of their own
    try:
        _fill(data)
        with while_up(FarMesh(made)) as mesh:
            rows = []
            for what, (text, bar) in WHAT.items():
                mine, other = in_turn(_ours(mesh, data, what), _theirs(mesh, data, what), RUNS)
                rows.append(Row(text, "sshfs between the same hosts", mine, other, bar))
            return rows
    finally:
        made.close()
        shutil.rmtree(data)


def _fill(data: Path) -> None:
    (data / "many").mkdir(parents=True)
    (data / "large").write_bytes(os.urandom(1 << 20) * (LARGE_BYTES >> 20))
    for number in range(SMALL_FILES):
        (data / "many" / f"f{number:05d}").write_bytes(os.urandom(1000))


def _ours(mesh: FarMesh, data: Path, what: str) -> Callable[[], float]:
    words = ("yod", "-quiet", "-io", str(data), "-chdir", "/", sys.executable, "-c", WORK, what, str(data))
    return lambda: float(mesh.run(*words, check=True, timeout_s=600).stdout)


def _theirs(mesh: FarMesh, data: Path, what: str) -> Callable[[], float]:
    host = mesh.hosts[0]
    script = f"""
        set -e
        here=$(mktemp -d); trap 'fusermount3 -u "$here"; rmdir "$here"' EXIT
        sshfs -F {mesh.hosts.keys.config} {host.address}:{data} "$here"
        {sys.executable} -c "$1" {what} "$here"
    """
    return lambda: float(mesh.run("sh", "-c", script, "sh", WORK, check=True, timeout_s=600).stdout)
