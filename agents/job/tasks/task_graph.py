"""Which tasks of a job wait for others: a state machine without I/O.

Memory is needed for tasks that wait for others, about 100 bytes each, and for what they come after, 8 bytes each.
"""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Iterator, List

#: The end of a chain of edges.
_NONE = -1


class TaskGraph:
    """The tasks that come after others that have not succeeded yet: these tasks are *blocked*."""

    def __init__(self) -> None:
        # A task that is blocked has a place in ``_numbers`` and ``_missing``. Edges lead to places, not to tasks: a
        # task that is cancelled and run again has another place, and what led to the former one counts no more.
        self._places: Dict[int, int] = {}
        self._numbers = array("q")
        self._missing = array("l")  # how many tasks it waits for; 0: nothing is blocked at this place
        # The edges of a task are a chain: the newest one, and of each edge the one before.
        self._newest: Dict[int, int] = {}
        self._before, self._to = array("l"), array("l")

    def __len__(self) -> int:
        """The number of blocked tasks."""
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def block(self, number: int, after: Collection[int]) -> None:
        """Task ``number``, which is not blocked, comes after the tasks ``after``, each named once."""
        place = self._places[number] = len(self._numbers)
        self._numbers.append(number)
        self._missing.append(len(after))
        for one in after:
            self._before.append(self._newest.get(one, _NONE))
            self._newest[one] = len(self._to)
            self._to.append(place)

    def succeed(self, number: int) -> List[int]:
        """A task has succeeded. Returns the tasks that are no longer blocked."""
        free: List[int] = []
        for place in self._followers(number):
            self._missing[place] -= 1
            if not self._missing[place]:
                free.append(self._numbers[place])
                del self._places[self._numbers[place]]
        return free

    def fail(self, number: int) -> List[int]:
        """A task will not succeed. Returns the tasks that come after it, directly or not: they are no longer
        blocked."""
        gone: List[int] = []
        ended = [number]
        while ended:
            for place in self._followers(ended.pop()):
                gone.append(self._numbers[place])
                ended.append(self._numbers[place])
                self.unblock(self._numbers[place])
        return sorted(gone)

    def unblock(self, number: int) -> None:
        """Forget that a blocked task comes after others."""
        self._missing[self._places.pop(number)] = 0

    def blocked(self) -> List[int]:
        """The tasks that are blocked, in order."""
        return sorted(self._places)

    def _followers(self, number: int) -> Iterator[int]:
        """The places of the blocked tasks that come directly after a task, which is forgotten."""
        edge = self._newest.pop(number, _NONE)
        while edge != _NONE:
            if self._missing[self._to[edge]]:
                yield self._to[edge]
            edge = self._before[edge]


def merged(numbers: Collection[int]) -> List[range]:
    """Sorted numbers as ranges."""
    found: List[range] = []
    for number in numbers:
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found
