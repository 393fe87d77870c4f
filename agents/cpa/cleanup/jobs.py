"""Restarts jobs of tasks whose owner was lost with its login processor, or that were handed over to this one."""

import subprocess
from collections.abc import Sequence

from agents.link.journal import Journal
from redmesh.start_command import start_command


class JobsLeft:
    """Continues jobs on this login processor, ``login``, with the Redmesh in ``installed``."""

    def __init__(self, login: str, installed: str, journal: Journal) -> None:
        self._login, self._installed, self._journal = login, installed, journal
        self._started: list[subprocess.Popen[bytes]] = []

    def go_on(self, login: str, uuids: Sequence[str]) -> None:
        """Start the process that fetches the objects and starts owners, unless they are for another login processor."""
        self._started = [one for one in self._started if one.poll() is None]
        if not uuids or login not in ("", self._login):
            return
        try:
            process = subprocess.Popen(
                [*start_command("mesh", self._installed), "job", "take-over", *uuids],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            self._journal.write("fault", reason=f"jobs cannot go on here: {error.strerror}", jobs=uuids[:20])
            return
        self._started.append(process)
        self._journal.write("jobs_left", jobs=uuids[:20], count=len(uuids), pid=process.pid)
