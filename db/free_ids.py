"""The free ids of a machine, by what they may be used for: as flags, so that a change costs what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from operator import or_

#: To whom a processor may be given: role of its node, alloc mode, user it is reserved for.
Use = tuple[str, str, str | None]
#: The same, and the side of the machine that its node is on (db/sides.py).
Key = tuple[Use, int]


class FreeIds(list[int]):
    """Ids, ascending, and the same as flags: a byte for every id, 1 for those in the list. Never changed."""

    __slots__ = ("flags",)

    def __init__(self, flags: bytes) -> None:
        super().__init__(compress(range(len(flags)), flags))
        self.flags = flags

    def has_all(self, ids: Iterable[int]) -> bool:
        """Whether all of these are among them."""
        return has_all(self.flags, ids)


class FreeLists:
    """Which ids are free, for each key."""

    def __init__(self) -> None:
        self._flags: dict[Key, bytearray] = {}
        self._lists: dict[Key, FreeIds] = {}

    def add(self, key: Key, ids: Sequence[int]) -> None:
        """These are free now."""
        flags = self._flags.setdefault(key, bytearray())
        most = max(ids, default=-1)
        if most >= len(flags):
            flags.extend(bytes(most + 1 - len(flags)))
        for one in ids:
            flags[one] = 1
        self._lists.pop(key, None)

    def remove(self, key: Key, ids: Sequence[int]) -> None:
        """These are free no longer."""
        flags = self._flags[key]
        for one in ids:
            flags[one] = 0
        self._lists.pop(key, None)

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
    """Whether the flags of all these ids are set."""
    try:
        return all(map(flags.__getitem__, ids))
    except IndexError:
        return False
