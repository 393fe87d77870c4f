"""Reads source files for the stacks: on this host, or on the node of a rank that runs them."""

from __future__ import annotations

import os
import stat

from console.errors import ConsoleError
from console.launch.attach import stacks
from console.tui.model.stacks.source import Place, SourceText, pieces
from console.tui.sources.unawaited import unawaited
from redmesh.sanitise import clean

_LARGEST = 8 << 20
_AROUND = 400  # lines requested from a node, before and after
_KEPT = 32  # files


class SourceFiles:
    """Files of one launch; what was read once is remembered."""

    def __init__(self, run_dir: str, launcher: int) -> None:
        self._run_dir, self._launcher = run_dir, launcher
        self._read: dict[tuple[str, int], SourceText] = {}  # (path, part) -> text

    async def read(self, place: Place, *, live: bool) -> SourceText:
        """The file around a place; with ``why`` if it is unreadable. ``live``: its node can be queried."""
        part = (place.line - 1) // _AROUND
        for key in ((place.path, -1), (place.path, part)):
            if key in self._read:
                return self._read[key]
        found = await unawaited(self._fetch, place, part, live)
        while len(self._read) >= _KEPT:
            self._read.pop(next(iter(self._read)))
        self._read[place.path, part if found.node or found.why else -1] = found
        return found

    def forget_failures(self) -> None:
        """Try unreadable files again."""
        self._read = {key: text for key, text in self._read.items() if not text.why}

    def _fetch(self, place: Place, part: int, live: bool) -> SourceText:
        path = place.path
        try:
            return SourceText(path, 1, pieces(_lines_here(path), path))
        except OSError as error:
            why = error.strerror or str(error)
        if not live:
            return SourceText(path, 1, [], why=f"not here: {why}")
        first = max(1, part * _AROUND + 1 - _AROUND)
        try:
            node, lines = stacks.source(
                self._run_dir, self._launcher, place.rank, path, first, part * _AROUND + 2 * _AROUND
            )
        except ConsoleError as error:
            told = f"not here: {why}; on the node of rank {place.rank}: {error.message}"
            return SourceText(path, 1, [], why=clean(told))
        return SourceText(path, first, pieces(lines, path), clean(node))


def _lines_here(path: str) -> list[str]:
    """All lines of a regular file on this host. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise OSError(0, "no source file")
        return file.read(_LARGEST).decode("utf-8", "replace").splitlines()
