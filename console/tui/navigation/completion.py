"""Suggestions for names of programs and files while the user types."""

from __future__ import annotations

import asyncio
import os

from textual.suggester import Suggester

from redmesh.sanitise import clean


class PathSuggester(Suggester):
    """Completes the last word as a path, and a first word without a slash as a command."""

    def __init__(self, *, commands: bool) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._commands = commands
        self._known: list[str] | None = None

    async def get_suggestion(self, value: str) -> str | None:
        """The whole value with its last word completed; None if there is nothing to add."""
        before, space, word = value.rpartition(" ")
        if not word or word.startswith("-"):
            return None
        found = await asyncio.to_thread(self._complete, word, first=not space)
        return None if found is None else f"{before}{space}{found}"

    def _complete(self, word: str, *, first: bool) -> str | None:
        if first and self._commands and "/" not in word and not word.startswith("~"):
            if self._known is None:
                self._known = commands_of(os.environ.get("PATH", ""))
            return next((name for name in self._known if name.startswith(word) and name != word), None)
        return completed(word)


def completed(word: str) -> str | None:
    """The first path in sorted order with this beginning; directories end with a slash."""
    folder, slash, start = word.rpartition("/")
    try:
        where = os.path.expanduser(f"{folder}{slash}" or ".")
        with os.scandir(where) as entries:
            names = sorted(
                (entry.name, entry.is_dir())
                for entry in entries
                if entry.name.startswith(start) and (start or not entry.name.startswith("."))
            )
    except OSError:
        return None
    for name, is_folder in names:
        whole = f"{folder}{slash}{name}{'/' if is_folder else ''}"
        if whole != word and clean(whole) == whole:
            return whole
    return None


def commands_of(path: str) -> list[str]:
    """The programs on a PATH."""
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            with os.scandir(folder or ".") as entries:
                names.update(entry.name for entry in entries if os.access(entry.path, os.X_OK) and not entry.is_dir())
        except OSError:
            continue
    return sorted(name for name in names if clean(name) == name)
