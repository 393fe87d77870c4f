"""Fixtures that every test may use."""

import signal
from types import FrameType

import hypothesis
import pytest

from tests.support.daemons import daemons, make_daemons
from tests.support.mesh import mesh
from tests.support.stores import database_url, machine, pytest_terminal_summary, sql_database, sql_server, store

__all__ = [
    "daemons",
    "database_url",
    "machine",
    "make_daemons",
    "mesh",
    "pytest_configure",
    "pytest_terminal_summary",
    "sql_database",
    "sql_server",
    "store",
]


# How long an example takes says more of the machine's other work than of ours.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


def pytest_configure(config: pytest.Config) -> None:
    """A run that is told to end (a time limit, a cancelled job) takes its meshes down like one that is interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt("SIGTERM")

    signal.signal(signal.SIGTERM, interrupt)
    # under nohup, or in the background of a script, these are ignored, and so they would be in all that tests start
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
