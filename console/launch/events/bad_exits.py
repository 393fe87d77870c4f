"""Announces ranks that fail while others run: promptly, with equal exits in one line, and not too often.

A launch in which every rank succeeds does not import this module.
"""

from __future__ import annotations

import os
import time

from console.launch.events.completion_report import completion_rows, cut_short, same_ends
from console.launch.states import State
from redmesh.idset import fold_ranks
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from console.launch.ranks import Ranks
    from console.launch.states import Launch

#: Seconds to wait for further failures with the same cause. If all ranks end meanwhile, only the completion table
#: reports the failures.
FOLD_S = 0.1
#: Seconds between two announcements. The pause doubles up to the second value while ranks keep failing, so that 10,000
#: ranks that fail one by one cause some dozens of lines.
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
#: Different exits shown in one announcement; further ones are counted.
_ROWS = 4


class BadExits:
    """Failed ranks of a launch that have not been announced.

    ``after(seconds, call)`` is a loop's timer; ``tell`` gets each ``bad_exit`` event.
    """

    def __init__(
        self,
        launch: Launch,
        after: Callable[[float, Callable[[], None]], object],
        tell: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch, self._after, self._tell, self._clock = launch, after, tell, clock
        self._ranks: list[int] = []
        self._due = False
        self._pause_s = 0.0
        self._told_at: float | None = None

    def add(self, ranks: list[int]) -> None:
        """Announce ``ranks``, together with others that fail at about the same time."""
        self._ranks += ranks
        if not self._due:
            self._due = True
            wait_s = 0.0 if self._told_at is None else self._told_at + self._pause_s - self._clock()
            self._after(max(FOLD_S, wait_s), self._announce)

    def _announce(self) -> None:
        self._due = False
        which, self._ranks = sorted(self._ranks), []
        launch = self._launch
        if launch.state is not State.RUNNING or not launch.announces_bad_exits:
            return  # yod ends the others, or the completion table reports it
        now = self._clock()
        quiet = self._told_at is None or now - self._told_at > 2 * LONGEST_PAUSE_S
        self._pause_s = PAUSE_S if quiet else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._told_at = now
        self._tell(bad_exit_event(launch.ranks, which, launch.launcher))


def in_foreground() -> bool:
    """True if a ^C typed now reaches yod."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


def bad_exit_event(ranks: Ranks, which: list[int], launcher: int) -> dict[str, Any]:
    """The event ``bad_exit`` for the ranks ``which``: grouped by equal exits, with the number still running."""
    ends = []
    for alike in same_ends(ranks, which):
        end = ranks.ends[alike[0]]
        ends.append({
            "ranks": alike, "nodes": list(dict.fromkeys(ranks.node_of(rank) for rank in alike)), "status": end.status,
            "signal": end.signal, "core": end.core, "text": completion_rows(ranks, alike)[0],
        })  # fmt: skip
    running = [rank for rank in range(ranks.size) if rank not in ranks.ends]
    return {
        "event": "bad_exit", "launcher": launcher, "ends": ends, "running": len(running), "size": ranks.size,
        "still": cut_short(fold_ranks(running), f"{len(running)} ranks"), "stop": f"yod -signal TERM {launcher}",
    }  # fmt: skip


def lines(event: dict[str, Any], stop: str, *, apart: bool = False) -> list[str]:
    """A ``bad_exit`` event as lines for the terminal; ``stop``: the command that ends the launch, "" for none.

    ``apart``: the ranks that still run get their own line, for narrow terminals.
    """
    ends = event["ends"]
    found = [str(end["text"]) for end in ends[:_ROWS]]
    if len(ends) > _ROWS:
        more = sum(len(end["ranks"]) for end in ends[_ROWS:])
        found.append(f"and {counted(more, 'rank')} more that ended otherwise")
    verbs, them = ("runs", "it") if event["running"] == 1 else ("run", "them")
    still = f"rank {event['still']} still {verbs}" + (f" ({stop} ends {them})" if stop else "")
    return [f"{found[0]}; {still}"] if len(found) == 1 and not apart else [*found, still]
