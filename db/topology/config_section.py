"""Reads a section key by key, so that every error names its place."""

from __future__ import annotations

from db.errors import TopologyError

#: More than any machine has. The limit keeps a typing error from exhausting memory.
MOST = 4_000_000


class Section:
    """A table of the configuration, or an object of the ``mesh.topology`` column. Every key must be read."""

    __slots__ = ("_left", "_where")

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise TopologyError(f"[{where}] must be a table, not {_kind(values)}")
        self._left: dict[str, object] = dict(values)
        self._where = where

    def names(self) -> list[str]:
        """The keys that have not been read, in the order of the file."""
        return list(map(self._plain, self._left))

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer of at least ``least``."""
        value = self._left.pop(key, default)
        if value is None:
            raise TopologyError(f"[{self._where}] lacks {key}", f"add a line like {key} = {max(least, 1)}")
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            raise TopologyError(
                f"[{self._where}] {key} must be a whole number from {least} to {MOST}, not {value!r:.40}"
            )
        return value

    def wholes(self, key: str, default: tuple[int, ...], *, below: int) -> tuple[int, ...]:
        """Different integers from 0 to ``below`` - 1, ascending."""
        value = self._left.pop(key, list(default))
        if not isinstance(value, list) or any(not isinstance(one, int) or isinstance(one, bool) for one in value):
            raise TopologyError(f"[{self._where}] {key} must be a list of whole numbers, not {value!r:.40}")
        wrong = [one for one in value if not 0 <= one < below]
        if wrong or len(set(value)) != len(value):
            what = f"{wrong[0]} is not one of 0..{below - 1}" if wrong else "a number stands twice"
            raise TopologyError(f"[{self._where}] {key}: {what}")
        return tuple(sorted(value))

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty text."""
        value = self._left.pop(key, default)
        if value is None:
            raise TopologyError(f"[{self._where}] lacks {key}")
        if not isinstance(value, str) or not value:
            raise TopologyError(f"[{self._where}] {key} must be a text, not {value!r:.40}")
        return self._plain(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text stands for a list of one. Empty if the key is missing."""
        value = self._left.pop(key, [])
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or any(not isinstance(one, str) or not one for one in value):
            raise TopologyError(f"[{self._where}] {key} must be a list of texts, not {value!r:.40}")
        return tuple(map(self._plain, value))

    def _plain(self, name: str) -> str:
        # Names appear on many people's terminals, where an escape sequence would act.
        if not name.isprintable():
            raise TopologyError(f"[{self._where}] {name!r:.60} contains a character that cannot be shown")
        return name

    def tables(self, key: str) -> list[Section]:
        """The tables of an array of tables; empty if the key is missing."""
        value = self._left.pop(key, [])
        if not isinstance(value, list):
            raise TopologyError(f"[{self._where}] {key} must be a list of tables, not {_kind(value)}")
        return [Section(one, f"{self._where}.{key}") for one in value]

    def table(self, key: str) -> Section:
        """The table under ``key``."""
        if key not in self._left:
            raise TopologyError(f"[{self._where}] lacks the table [{self._where}.{key}]")
        return Section(self._left.pop(key), f"{self._where}.{key}")

    def done(self, *known: str) -> None:
        """Raise TopologyError for a key that was not read; the hint names the nearest of ``known``."""
        if not self._left:
            return
        from difflib import get_close_matches  # slow to import, and needed only after a typing error

        key = next(iter(self._left))
        near = get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else "there are: " + ", ".join(known)
        raise TopologyError(f"[{self._where}] knows no key {key[:40]!r}", hint)


def _kind(value: object) -> str:
    return {"list": "a list", "str": "a text", "int": "a number", "NoneType": "nothing"}.get(
        type(value).__name__, f"a {type(value).__name__}"
    )
