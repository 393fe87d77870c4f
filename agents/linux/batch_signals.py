"""The signals that a batch system sends to a job, and what the processes of a job's mesh do with each.

The table of docs/managers.md has these rows (tests/unit/managers/test_batch_signals.py). Which processes the batch
system signals depends on it: see ``Reach``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional, Tuple


class Reach:
    """Which processes a batch system signals. The values are in the configuration and in variables."""

    UNKNOWN = ""  # the batch system has not answered; treated as TASK
    TASK = "task"  # only the process that it started itself (Slurm's proctrack/cgroup, flux exec)
    GROUP = "group"  # the process group or the session of this process (proctrack/pgid, Grid Engine, pbs_mom)
    ALL = "all"  # every descendant of this process (proctrack/linuxproc)


class Row:
    """A signal, what ranks get, what our processes on the nodes do (starter, keeper, PCT, launch child), and yod."""

    __slots__ = ("daemons", "name", "number", "ranks", "yod")

    def __init__(self, name: str, number: int, ranks: str, daemons: str, yod: str) -> None:
        self.name, self.number, self.ranks, self.daemons, self.yod = name, number, ranks, daemons, yod


#: What ranks get, and what our processes do.
ONCE, EACH, STOPPED = "once", "each", "stop and continue"
PASS, PASS_AND_ASK = "pass it on", "pass it on; end if the job ends"
STOP, CONTINUE = "send SIGSTOP to the ranks", "send it to the ranks"
ENDS, INTERRUPTS, DIES, NOTHING = "passes it on; ends the launch", "^C: SIGTERM to the ranks", "default", "nothing"
PASSES, LEAVES = "passes it on", "^\\: leaves the terminal"

#: Every signal that a batch system sends, and the others that a program may expect.
ROWS: Tuple[Row, ...] = (
    Row("USR1", 10, ONCE, PASS, PASSES),
    Row("USR2", 12, ONCE, PASS, PASSES),
    Row("TERM", 15, ONCE, PASS_AND_ASK, ENDS),
    Row("INT", 2, EACH, PASS, INTERRUPTS),
    Row("HUP", 1, EACH, PASS, ENDS),
    Row("QUIT", 3, EACH, PASS, LEAVES),
    Row("XCPU", 24, ONCE, PASS, PASSES),
    Row("ALRM", 14, EACH, PASS, DIES),
    Row("VTALRM", 26, EACH, PASS, DIES),
    Row("PROF", 27, EACH, PASS, DIES),
    Row("IO", 29, EACH, PASS, DIES),
    Row("PWR", 30, EACH, PASS, DIES),
    Row("TSTP", 20, STOPPED, STOP, NOTHING),
    Row("CONT", 18, EACH, CONTINUE, NOTHING),
)
#: The numbers of the signals that our processes pass on to the ranks, and of those that ``yod`` and the batch system
#: both may send to them.
PASSED = tuple(row.number for row in ROWS if row.daemons in (PASS, PASS_AND_ASK))
ONLY_ONCE = tuple(row.number for row in ROWS if row.ranks == ONCE)
#: The same as names for the shell's ``trap``.
TRAPPED = " ".join(row.name for row in ROWS)

#: Seconds within which a signal of the batch system and the same signal from yod count as one, and for which yod's
#: waits for that of the batch system, which sends them to a job's hosts one after the other.
SAME_S, HOLD_S = 5.0, 1.0
#: Seconds from a signal to the last question whether the job ends: KillWait of Slurm is 30 by default, and the batch
#: system may be slow just when jobs end.
LAST_S = 60.0


class Copies:
    """Two copies of one signal to the ranks of a node: the batch system's, and the one that yod got and passed on."""

    def __init__(self) -> None:
        self._manager: dict[int, float] = {}  # when the batch system sent it, monotonic
        self._yod: dict[int, float] = {}  # when a copy of yod's was delivered
        self._held: set[int] = set()

    def from_manager(self, number: int, now: float) -> bool:
        """The batch system has sent it: True if it is the first copy. Yod's copy is dropped."""
        self._manager[number] = now
        self._held.discard(number)
        return now - self._yod.get(number, -SAME_S) >= SAME_S

    def from_yod(self, number: int, now: float) -> Optional[float]:
        """Yod has passed it on: the seconds until ``is_due`` must be asked; None: it is the second copy."""
        if number not in ONLY_ONCE:
            return 0.0
        if now - self._manager.get(number, -SAME_S) < SAME_S:
            return None
        self._held.add(number)
        return HOLD_S

    def is_due(self, number: int, now: float) -> bool:
        """True if yod's copy must be delivered now, because the batch system has not sent the signal."""
        if number in ONLY_ONCE and number not in self._held:
            return False
        self._held.discard(number)
        self._yod[number] = now
        return True
