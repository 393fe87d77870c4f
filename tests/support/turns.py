"""Decides which tests run at the same time: a test marked ``load_sensitive`` runs while no other test runs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """File locks in ``directory`` that all processes of one test run share."""

    def __init__(self, directory: Path) -> None:
        self._begins = open(directory / "begins", "w")  # noqa: SIM115  # held by the one test that is about to begin
        self._runs = open(directory / "runs", "w")  # noqa: SIM115  # shared by the tests that run

    @contextmanager
    def take(self, alone: bool) -> Iterator[None]:
        """Wait until the test may run, and hold its lock while it does; with ``alone`` no other test runs."""
        fcntl.flock(self._begins, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._runs, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._begins, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._runs, fcntl.LOCK_UN)
