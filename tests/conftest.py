"""Fixtures that every test may use."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.support.daemons import daemons, make_daemons
from tests.support.hosts import NOT_ROOT, loopback_hosts, netns_hosts
from tests.support.mesh import mesh
from tests.support.stores import NO_SERVER, database_url, machine, sql_database, sql_server, store

__all__ = [
    "daemons",
    "database_url",
    "loopback_hosts",
    "machine",
    "make_daemons",
    "mesh",
    "netns_hosts",
    "nobodys_own_mesh",
    "pytest_configure",
    "pytest_terminal_summary",
    "sql_database",
    "sql_server",
    "store",
]


# How long an example takes says more of the machine's other work than of ours.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


#: Where this process, and what it starts without directories of its own, would have its personal mesh.
HOME = Path(tempfile.mkdtemp(prefix="rm-home-", dir="/tmp"))


@pytest.fixture(autouse=True)
def nobodys_own_mesh() -> Iterator[None]:
    """No test starts the mesh of whoever runs the tests: one that starts any outside its own directories fails."""
    yield
    if (HOME / "redmesh").exists():
        mesh = [sys.executable, "-m", "console.cli.mesh", "down", "--force"]
        subprocess.run(mesh, stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(HOME / "redmesh")
        pytest.fail("a personal mesh was started; tests have meshes in directories of their own")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says loudly what was not tested for want of something."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for want in (NO_SERVER, NOT_ROOT):
        count = sum(want in why for why in skipped)
        if count:
            terminalreporter.write_line(f"{count} tests DID NOT RUN: {want}", red=True, bold=True)


def pytest_unconfigure() -> None:
    """The directories of the personal mesh that nobody started."""
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """A run that is told to end (a time limit, a cancelled job) takes its meshes down like one that is interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt("SIGTERM")

    os.environ.update(dict.fromkeys(("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"), str(HOME)))
    # how the tests are run (in several processes, without buffers) is nothing to what they run
    for name in ("COLUMNS", "LINES", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, interrupt)
    # under nohup, or in the background of a script, these are ignored, and so they would be in all that tests start
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
