"""Client of PBS's TM interface, a program of its own: ``tm.py LIBRARY NODE[,NODE…] PROGRAM ARGUMENTS``.

It starts the program once on every TM node, forwards signals to these tasks, and exits with the highest status when all
of them have ended. The library is libpbs or libtorque; it serves one thread only, and a blocked ``tm_poll`` cannot be
interrupted, so this program asks without waiting.

Source: tm(3) of OpenPBS 20 and of Torque 6: tm_init, tm_spawn, tm_obit, tm_kill, tm_poll, tm_finalize; ``tm.h`` for the
types (tm_task_id is an unsigned int in OpenPBS and an unsigned long in Torque) and ``tm_.h`` for the errors.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence

_SUCCESS, _NULL_EVENT, _NOT_FOUND = 0, 0, 17006
_ERRORS = {
    17000: "system error",
    17002: "not connected to pbs_mom",
    17005: "the environment is not that of a job's task",
    17006: "no such node or task",
    17007: "initialised twice",
}
#: Seconds between two questions for events: soon after a start, and later.
_SOON_S, _LATER_S = 0.01, 0.1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class TMError(Exception):
    """A call of the library failed."""


class _Roots(ctypes.Structure):
    _fields_ = [
        ("me", ctypes.c_ulong), ("parent", ctypes.c_ulong), ("nodes", ctypes.c_int), ("tasks", ctypes.c_int),
        ("pool", ctypes.c_int), ("list", ctypes.c_void_p),
    ]  # fmt: skip


class Tasks:
    """The tasks of one client."""

    def __init__(self, library: str) -> None:
        """Connect to the pbs_mom of this host. Raises OSError if the library cannot be loaded, TMError."""
        self._tm = ctypes.CDLL(library)
        self._starting: Dict[int, int] = {}  # event of tm_spawn → index of the task
        self._ending: Dict[int, int] = {}  # event of tm_obit → index of the task
        self._events: set[int] = set()  # of tm_kill
        self._ids: List[Any] = []  # the library writes to these later, so they must stay where they are
        self._statuses: List[Any] = []
        self._check("tm_init", self._tm.tm_init(None, ctypes.byref(_Roots())))

    def spawn(self, node: int, argv: Sequence[bytes]) -> None:
        """Request a task on a TM node. Raises TMError."""
        words = (ctypes.c_char_p * (len(argv) + 1))(*argv, None)
        task, event = ctypes.c_ulong(0), ctypes.c_int(0)
        self._ids.append(task)
        self._statuses.append(ctypes.c_int(0))
        # Without an environment, the task has that of the job.
        status = self._tm.tm_spawn(len(argv), words, None, node, ctypes.byref(task), ctypes.byref(event))
        self._check(f"tm_spawn on node {node}", status)
        self._starting[event.value] = len(self._ids) - 1

    def signal(self, number: int) -> None:
        """Send a signal to every task that has not ended. A task that ended meanwhile is no error."""
        for index in self._ending.values():
            event = ctypes.c_int(0)
            if self._tm.tm_kill(self._ids[index], number, ctypes.byref(event)) == _SUCCESS:
                self._events.add(event.value)

    def step(self) -> bool:
        """Handle one event, and return True if there was one. Raises TMError."""
        event, error = ctypes.c_int(_NULL_EVENT), ctypes.c_int(_SUCCESS)
        self._check("tm_poll", self._tm.tm_poll(_NULL_EVENT, ctypes.byref(event), 0, ctypes.byref(error)))
        if event.value == _NULL_EVENT:
            return False
        if event.value in self._starting:
            index = self._starting.pop(event.value)
            self._check("tm_spawn", error.value)
            self._watch(index)
        elif event.value in self._ending:
            del self._ending[event.value]
            if error.value != _NOT_FOUND:
                self._check("tm_obit", error.value)
        self._events.discard(event.value)
        return True

    def _watch(self, index: int) -> None:
        event = ctypes.c_int(0)
        status = self._tm.tm_obit(self._ids[index], ctypes.byref(self._statuses[index]), ctypes.byref(event))
        if status != _NOT_FOUND:
            self._check("tm_obit", status)
            self._ending[event.value] = index

    @property
    def started(self) -> bool:
        """Whether every task has started."""
        return not self._starting

    @property
    def over(self) -> bool:
        """Whether every task has ended."""
        return not (self._starting or self._ending)

    @property
    def status(self) -> int:
        """The highest exit status of the tasks, 0 to 255. A task that a signal ended has 256 and more in PBS."""
        return min(255, max((abs(one.value) for one in self._statuses), default=0))

    def close(self) -> None:
        """Disconnect. Tasks that have not ended continue."""
        self._tm.tm_finalize()

    def _check(self, what: str, status: int) -> None:
        if status != _SUCCESS:
            raise TMError(f"{what}: {_ERRORS.get(status, 'error of the TM interface')} ({status})")


def main(words: Sequence[str]) -> int:
    """Run the client; returns its exit status."""
    library, nodes, *argv = words
    pending: List[int] = []
    for number in _FORWARDED:
        signal.signal(number, lambda number, _frame: pending.append(number))
    try:
        tasks = Tasks(library)
        for node in nodes.split(","):
            tasks.spawn(int(node), [word.encode("utf-8", "surrogateescape") for word in argv])
        while not tasks.over:
            while pending and tasks.started:  # a task that has not started has no signal to receive
                tasks.signal(pending.pop(0))
            if not tasks.step():
                time.sleep(_LATER_S if tasks.started else _SOON_S)  # poll: libtorque has no descriptor to wait for
    except (OSError, TMError) as error:
        print(f"{library}: {error}", file=sys.stderr)
        return 1
    tasks.close()
    return tasks.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
