"""The packaged files of a job (``mesh submit --file``), on their way from its state object to the nodes.

Each launch of the job's workers stages them in as one file: a line of JSON (name, size, mode and SHA-256 of each),
then the contents. agents/yodio/yodpackage.py unpacks it.
"""

from __future__ import annotations

import json
import os

from agents.job.description import BESIDE
from agents.job.parts.part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Dict, List

    from redmesh.state import StateObject

#: Names of packaged files in the state object begin with this; the others are Redmesh's own.
PREFIX = "package/"


class Package(Part):
    """The packaged files as one file that has no name, so that a killed owner leaves nothing."""

    def __init__(self, job: StateObject, place: str) -> None:
        """``place``: where tasks find the files (agents/job/description.py). Raises OSError if the disk is full."""
        self._within = place != BESIDE
        import tempfile  # a command that only names a package needs none

        self._file: IO[bytes] = tempfile.TemporaryFile(dir=os.path.dirname(job.path))  # noqa: SIM115
        files = job.files(PREFIX)
        told = [[name[len(PREFIX) :], size, mode, digest] for name, digest, size, mode in files]
        self._file.write(json.dumps(told).encode() + b"\n")
        for name, *_ in files:
            self._file.write(job.file(name) or b"")
        self._file.flush()

    @property
    def _name(self) -> str:
        """Its name in the directory of staged files."""
        return str(self._file.fileno())

    def words(self) -> List[str]:
        """Stage the file in, by the path under which processes of this user open it."""
        return ["-stage-in", f"/proc/{os.getpid()}/fd/{self._name}"]

    def describe(self, told: Dict[str, object]) -> None:
        """Name the staged file, and say where tasks begin."""
        told["package"] = {"name": self._name, "within": self._within}
