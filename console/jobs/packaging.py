"""The files that a user packages into a job's state object (``mesh submit --file``)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agents.job.parts.package import PREFIX
from console.errors import ConsoleError, UsageError
from redmesh.sanitise import clean

#: The most files in one package, because each is a row that moves with the object.
_MOST = 10_000
#: The part of ``job_limit_mb`` that a package may take; results need the rest.
_PART = 4
#: Directories that no task needs.
_SKIPPED = frozenset((".git", "__pycache__"))


class Packaged(NamedTuple):
    """A file on this machine and its name in the job's directory on the nodes."""

    path: str
    name: str
    mode: int
    size: int

    def content(self) -> bytes:
        """Its bytes. Raises ConsoleError."""
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConsoleError(f"--file {clean(self.path)}: {error.strerror}", exit_status=2) from None


def collect(texts: Sequence[str], limit_mb: int) -> list[Packaged]:
    """The files that ``--file`` names: a file, ``DIR`` (under its name) or ``DIR/`` (what is in it). Raises
    UsageError."""
    found: dict[str, Packaged] = {}
    size = 0
    for text in texts:
        for one in _files(text):
            other = found.get(one.name)
            if other is not None and not os.path.samefile(other.path, one.path):
                raise UsageError(
                    f"--file {clean(text[:200])}: {clean(other.path)} is packaged as {clean(one.name)} already",
                    "put them into directories of different names",
                )
            found[one.name] = one
            size += one.size if other is None else 0
            if len(found) > _MOST:
                raise UsageError(f"--file {clean(text[:200])}: more than {_MOST:,} files", "package an archive")
            if size > (limit_mb << 20) // _PART:
                raise UsageError(
                    f"--file {clean(text[:200])}: the files of a job take more than {limit_mb // _PART} MiB",
                    f"a quarter of job_limit_mb ({limit_mb}) is for files; larger ones belong on a shared file system",
                )
    above = {directory for name in found for directory in _directories(name)}
    for name in sorted(above.intersection(found)):
        raise UsageError(f"--file: {clean(name)} is packaged as a file and as a directory", "rename one of them")
    return [found[name] for name in sorted(found)]


def _directories(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def stored(files: Sequence[Packaged]) -> Iterator[tuple[str, bytes, int]]:
    """Name in the state object, content and mode of each file, one after another. Raises ConsoleError."""
    for one in files:
        yield PREFIX + one.name, one.content(), one.mode


def _files(text: str) -> Iterator[Packaged]:
    path = text.rstrip("/") or "/"
    base = os.path.basename(os.path.abspath(path))
    if not os.path.isdir(path):
        yield _packaged(text, path, base)
        return
    prefix = "" if text.endswith("/") else base + "/"
    for directory, directories, names in os.walk(path, onerror=_refuse):
        directories[:] = sorted(name for name in directories if name not in _SKIPPED)
        for name in directories:
            if os.path.islink(os.path.join(directory, name)):
                raise UsageError(
                    f"--file {clean(text[:200])}: {clean(os.path.join(directory, name))} is a link to a directory",
                    "links to files are followed; name the directory with another --file",
                )
        below = os.path.relpath(directory, path)
        for name in sorted(names):
            own = os.path.join(directory, name)
            yield _packaged(text, own, prefix + (name if below == "." else f"{below}/{name}"))


def _refuse(error: OSError) -> None:
    raise UsageError(f"--file: {clean(str(error.filename))}: {error.strerror}", "check the directory's permissions")


def _packaged(text: str, path: str, name: str) -> Packaged:
    try:
        found = os.stat(path)
    except OSError as error:
        raise UsageError(
            f"--file {clean(text[:200])}: {clean(path)}: {error.strerror}", "name a file or a directory"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(
            f"--file {clean(text[:200])}: {clean(path)} is not a regular file", "devices and pipes stay here"
        )
    if not os.access(path, os.R_OK):
        raise UsageError(f"--file {clean(text[:200])}: {clean(path)} cannot be read", "check its permissions")
    return Packaged(path, name, stat.S_IMODE(found.st_mode) & 0o777, found.st_size)
