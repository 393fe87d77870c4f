"""Finds the MPI libraries of this machine for tests: compilers of MPICH and Open MPI, and a Python with mpi4py."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
MPICC = shutil.which("mpicc.mpich") or ""
#: What -P does, also for a Python older than 3.11, which has no such option.
NOT_FROM_HERE = "import sys; sys.path = [place for place in sys.path if place]; "
OPEN_MPICC = shutil.which("mpicc.openmpi") or ""
needs_mpich = pytest.mark.skipif(not MPICC, reason="no MPICH here (Debian: mpich, libmpich-dev)")
needs_open_mpi = pytest.mark.skipif(not OPEN_MPICC, reason="no Open MPI here (Debian: openmpi-bin, libopenmpi-dev)")


def compiled(source: str, into: Path, *options: str, compiler: str = "") -> str:
    """Compile a C file of this repository; return the path of the program."""
    program = into / Path(source).stem
    command = [compiler or MPICC, "-O1", "-Wall", "-Werror", "-o", str(program), str(ROOT / source), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return str(program)


@functools.cache
def with_mpi4py() -> tuple[str, ...]:
    """Return yod's options and the path of a Python that has mpi4py; else skip the test.

    mpi4py over Open MPI needs ``--mpi pmix``: yod cannot tell that from the interpreter's file.
    """
    asked = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])"
    python, vendor = _python_that_runs(asked, "mpi4py.MPI")
    return (*(("--mpi", "pmix") if vendor == "Open MPI" else ()), python)


@functools.cache
def python_with(module: str) -> str:
    """Return a Python that has the package ``module``: $REDMESH_MPI_PYTHON, this one or the system's; else skip."""
    # The import itself takes a second of some packages.
    asked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return _python_that_runs(asked, module)[0]


def _python_that_runs(code: str, module: str) -> tuple[str, str]:
    """Return a Python in which ``code`` succeeds, and what it prints."""
    for python in (os.environ.get("REDMESH_MPI_PYTHON", ""), sys.executable, "/usr/bin/python3"):
        if python and shutil.which(python):
            words = [python, "-c", NOT_FROM_HERE + code]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
            if done.returncode == 0:
                return python, done.stdout.strip()
    pytest.skip(f"no Python here has {module} (REDMESH_MPI_PYTHON may name one)")
