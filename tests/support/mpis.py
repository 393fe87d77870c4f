"""The MPIs of this machine, for tests: Debian's MPICH to compile with, and a Python that has mpi4py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MPICC = shutil.which("mpicc.mpich") or ""
OPEN_MPICC = shutil.which("mpicc.openmpi") or ""
needs_mpich = pytest.mark.skipif(not MPICC, reason="no MPICH here (Debian: mpich, libmpich-dev)")
needs_open_mpi = pytest.mark.skipif(not OPEN_MPICC, reason="no Open MPI here (Debian: openmpi-bin, libopenmpi-dev)")


def compiled(source: str, into: Path, *options: str, compiler: str = "") -> str:
    """The program made of a C file of this repository."""
    program = into / Path(source).stem
    command = [compiler or MPICC, "-O1", "-Wall", "-Werror", "-o", str(program), str(ROOT / source), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return str(program)


def with_mpi4py() -> tuple[str, ...]:
    """yod's options and a Python that has mpi4py: over Open MPI it needs PMIx, of which an interpreter says nothing."""
    python = python_with("mpi4py.MPI")
    asked = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])"
    vendor = subprocess.run([python, "-P", "-c", asked], capture_output=True, text=True, timeout=60).stdout.strip()
    return (*(("--mpi", "pmix") if vendor == "Open MPI" else ()), python)


def python_with(module: str) -> str:
    """A Python that can import ``module``: REDMESH_MPI_PYTHON's, ours or the system's; else the test is skipped."""
    for python in (os.environ.get("REDMESH_MPI_PYTHON", ""), sys.executable, "/usr/bin/python3"):
        if python and shutil.which(python):
            found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, timeout=60)
            if found.returncode == 0:
                return python
    pytest.skip(f"no Python here has {module} (REDMESH_MPI_PYTHON may name one)")
