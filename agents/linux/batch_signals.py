"""The signals that a batch system sends to a job, and what the processes of a job's mesh do with each.

The table of docs/managers.md has these rows (tests/unit/managers/test_batch_signals.py). Which processes the batch
system signals depends on it: see ``Reach``.
"""

from __future__ import annotations

from agents.link.lean import Enum

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Tuple


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
ENDS, HANGS_UP = "passes it on; ends the launch", "SIGTERM to the ranks; ends the launch"
INTERRUPTS, DIES, NOTHING = "^C: SIGTERM to the ranks", "default", "nothing"
PASSES, LEAVES = "passes it on", "^\\: leaves the terminal"

#: Every signal that a batch system sends, and the others that a program may expect.
ROWS: Tuple[Row, ...] = (
    Row("USR1", 10, ONCE, PASS, PASSES),
    Row("USR2", 12, ONCE, PASS, PASSES),
    Row("TERM", 15, ONCE, PASS_AND_ASK, ENDS),
    Row("INT", 2, EACH, PASS, INTERRUPTS),
    Row("HUP", 1, EACH, PASS, HANGS_UP),
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
SAME_S, HOLD_S = 2.5, 1.0
#: Seconds from a signal to the last question whether the job ends: KillWait of Slurm is 30 by default, and the batch
#: system may be slow just when jobs end.
LAST_S = 60.0


class Fate(Enum):
    """What becomes of a copy of a signal."""

    DELIVER = "deliver"  # send it to the ranks
    HOLD = "hold"  # call ``held_over`` after HOLD_S
    DROP = "drop"  # the ranks have it, or its pair will reach them


class YodCopy:
    """A copy of yod's without its pair: when it arrived (monotonic), and whether the ranks have it."""

    __slots__ = ("at", "delivered")

    def __init__(self, at: float) -> None:
        self.at, self.delivered = at, False


class Copies:
    """Pairs the copies of a signal to the ranks of a node: the batch system's, and those that yod got and passed on.

    Each copy has at most one pair, which came from the other side less than SAME_S before or after it; one of the two
    is dropped. So ranks get no fewer signals than either side sent.
    """

    def __init__(self) -> None:
        # By signal, the copies without a pair, oldest first.
        self._manager: dict[int, list[float]] = {}
        self._yod: dict[int, list[YodCopy]] = {}

    def from_manager(self, number: int, now: float) -> Fate:
        """The batch system has sent the signal."""
        if number not in ONLY_ONCE:
            return Fate.DELIVER
        self._expire(number, now)
        waiting = self._yod.get(number)
        if waiting:
            return Fate.DROP if waiting.pop(0).delivered else Fate.DELIVER
        self._manager.setdefault(number, []).append(now)
        return Fate.DELIVER

    def from_yod(self, number: int, now: float) -> Fate:
        """Yod has passed the signal on."""
        if number not in ONLY_ONCE:
            return Fate.DELIVER
        self._expire(number, now)
        sent = self._manager.get(number)
        if sent:
            sent.pop(0)
            return Fate.DROP
        self._yod.setdefault(number, []).append(YodCopy(now))
        return Fate.HOLD

    def held_over(self, number: int, now: float) -> Fate:
        """A copy of yod's was held for HOLD_S."""
        for copy in self._yod.get(number, ()):
            if not copy.delivered:
                # The oldest one that is held may be younger than the one that the call is for, which has its pair.
                copy.delivered = copy.at + HOLD_S <= now
                return Fate.DELIVER if copy.delivered else Fate.DROP
        return Fate.DROP

    def _expire(self, number: int, now: float) -> None:
        sent, waiting = self._manager.get(number), self._yod.get(number)
        while sent and now - sent[0] >= SAME_S:
            sent.pop(0)
        # A process that was stopped may find one that is old and held.
        while waiting and waiting[0].delivered and now - waiting[0].at >= SAME_S:
            waiting.pop(0)
