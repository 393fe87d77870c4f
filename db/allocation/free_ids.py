"""The free ids of a machine by their use, stored as flags, so that an update costs only what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress
from operator import or_
from typing import overload

#: The use of a processor: role of its node, alloc mode, user it is reserved for.
Use = tuple[str, str, str | None]
#: A use and the side of the machine that the node is on (db/machine/sides.py).
Key = tuple[Use, int]


class FreeIds(Sequence[int]):
    """Immutable ascending ids, also available as flags: one byte for every id, 1 for the ids in the set.

    The list is built when it is first needed: placements along a curve use only the flags.
    """

    __slots__ = ("_ids", "flags")

    def __init__(self, flags: bytes) -> None:
        self.flags = flags
        self._ids: list[int] | None = None

    @property
    def ids(self) -> list[int]:
        """The ids as a list."""
        if self._ids is None:
            self._ids = list(compress(range(len(self.flags)), self.flags))
        return self._ids

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        return self.ids[at]

    def __len__(self) -> int:
        return self.flags.count(1)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def __contains__(self, one: object) -> bool:
        return isinstance(one, int) and 0 <= one < len(self.flags) and bool(self.flags[one])

    def __eq__(self, other: object) -> bool:
        return self.ids == (other.ids if isinstance(other, FreeIds) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.ids)

    def has_all(self, ids: Iterable[int]) -> bool:
        """True if all ``ids`` are in the set."""
        return has_all(self.flags, ids)


class FreeLists:
    """The free ids for each key."""

    def __init__(self) -> None:
        self._flags: dict[Key, bytearray] = {}
        self._lists: dict[Key, FreeIds] = {}

    def add(self, key: Key, ids: Sequence[int]) -> None:
        """Mark ids as free."""
        flags = self._flags.setdefault(key, bytearray())
        most = max(ids, default=-1)
        if most >= len(flags):
            flags.extend(bytes(most + 1 - len(flags)))
        for one in ids:
            flags[one] = 1
        self._lists.pop(key, None)

    def remove(self, key: Key, ids: Sequence[int]) -> None:
        """Mark ids as no longer free."""
        flags = self._flags[key]
        for one in ids:
            flags[one] = 0
        self._lists.pop(key, None)

    def users(self) -> set[str]:
        """The users for whom any of the free ids is reserved."""
        return {key[0][2] for key, flags in self._flags.items() if key[0][2] and 1 in flags}

    def of(self, uses: Collection[Use], side: int | None) -> FreeIds:
        """The ids that are free for any of these uses, on one side of the machine or (None) on all."""
        keys = [key for key in self._flags if key[0] in uses and side in (None, key[1])]
        if len(keys) == 1:
            found = self._lists.get(keys[0])
            if found is None:
                found = self._lists[keys[0]] = FreeIds(bytes(self._flags[keys[0]]))
            return found
        size = max((len(self._flags[key]) for key in keys), default=0)
        flags = bytes(size)
        for key in keys:
            flags = bytes(map(or_, flags, self._flags[key].ljust(size, b"\0")))
        return FreeIds(flags)


def has_all(flags: bytes | bytearray, ids: Iterable[int]) -> bool:
    """True if the flags of all these ids are set."""
    try:
        return all(map(flags.__getitem__, ids))
    except IndexError:
        return False
