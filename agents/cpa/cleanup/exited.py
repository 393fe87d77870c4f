"""Launches whose process has exited on this host without *finish*, and without its RCA's report.

Normally an RCA reports the loss of a launcher that has registered. A client need not register, and may unregister
before it exits. So a CPA also watches (pidfd) the processes to which it grants processors. When one has exited and its
launches have not ended soon afterwards, they are cleaned up. After its own start, and when an RCA has lost its CPA, a
CPA looks at every launch of its login processor: those that live are watched, and no poll is needed.
"""

import time
from collections.abc import Callable, Sequence

from agents.cpa.cleanup.launchers import Error, Lost
from agents.cpa.logins.processes import Process, is_known_to_be_gone
from agents.cpa.logins.registry import Logins
from agents.link.journal import Journal
from agents.link.loop import Loop, Timer
from agents.linux.process_ends import ProcessEnds
from db.allocation import finish, waiting_requests
from db.allocation.types import Live
from db.errors import StoreError
from db.store.outage import Outage, is_away
from db.store.store import Store

#: Seconds after a process's exit in which its RCA may deliver the *finish* that no CPA accepted.
FINISH_S = 5.0
MOST_REMEMBERED = 1024  # launchers of one process
AWAY_S = 5.0  # how often a database that is away is tried again
GONE = "its process is gone"


class _Held:
    """What a process has here: its login processors, and its launchers as far as this CPA granted them.

    ``asks``: it has waiting requests, or launchers that another CPA granted, so the database is asked after its exit.
    """

    __slots__ = ("asks", "launchers", "logins")

    def __init__(self) -> None:
        self.logins: set[str] = set()
        self.launchers: set[int] = set()
        self.asks = False


class ExitedProcesses:
    """Watches the processes of launches and requests. ``released`` is called when processors are free.

    ``unwatched_s``: seconds until launches that nobody may watch are looked at, so that an RCA reports first what it
    knows of them, and until a failed clean-up is repeated.
    """

    def __init__(
        self,
        loop: Loop,
        store: Store,
        outage: Outage,
        lost: Lost,
        logins: Logins,
        journal: Journal,
        released: Callable[[], None],
        unwatched_s: float,
    ) -> None:
        self._loop, self._store, self._outage, self._lost = loop, store, outage, lost
        self._logins, self._journal, self._released = logins, journal, released
        self._unwatched_s = unwatched_s
        self._ends = ProcessEnds(loop, lambda pid, started: self._on_exit(Process(pid, started)))
        self._held: dict[Process, _Held] = {}
        self._process_of: dict[int, Process] = {}  # of launchers
        self._exited: dict[Process, float] = {}  # and when to look for their launches (monotonic)
        self._look: Timer | None = None
        self._sweep: Timer | None = None

    def requests(self, login: str, process: Process) -> None:
        """A process on this host waits for processors."""
        held = self._watched(login, process)
        if held is not None:
            held.asks = True

    def has(self, login: str, process: Process, launcher: int) -> None:
        """A process on this host has this launch, or has repeated the request of the process that has it."""
        held = self._watched(login, process)
        if held is None or held.asks:
            return
        held.launchers.add(launcher)
        self._process_of[launcher] = process
        if len(held.launchers) > MOST_REMEMBERED:  # a process may let one reservation after the other expire
            held.asks = True
            for one in held.launchers:
                self._process_of.pop(one, None)
            held.launchers.clear()

    def moved(self, login: str, process: Process, launcher: int) -> None:
        """A process on this host has this launch from now on."""
        self.ended(launcher)
        self.has(login, process, launcher)

    def ended(self, launcher: int) -> None:
        """A launch has ended, or another process has it."""
        process = self._process_of.pop(launcher, None)
        held = self._held.get(process) if process is not None else None
        if held is not None:
            held.launchers.discard(launcher)

    def look_at_all_soon(self) -> None:
        """Look at every launch of this login processor soon, because nobody may watch them."""
        if self._sweep is None:
            self._sweep = self._loop.after(self._unwatched_s, self._look_at_all)

    def _watched(self, login: str, process: Process) -> _Held | None:
        if process.pid <= 0 or not process.started:
            return None
        held = self._held.setdefault(process, _Held())
        held.logins.add(login)
        self._ends.watch(*process)
        return held

    # --- a process exits

    def _on_exit(self, process: Process) -> None:
        held = self._held.pop(process, None)
        if held is None:
            return
        for launcher in held.launchers:
            self._process_of.pop(launcher, None)
        if held.asks:
            self._drop_requests(held.logins, process)
        if held.asks or held.launchers:
            self._exited[process] = time.monotonic() + FINISH_S
            self._arm()

    def _drop_requests(self, logins: set[str], process: Process) -> None:
        """Remove the requests of an exited process at once, so that no request waits behind them."""
        try:
            for login in logins:
                self._outage.guard(lambda login=login: waiting_requests.drop_process(self._store, login, *process))  # type: ignore[misc]
        except StoreError as error:
            self._journal.write("database_away" if is_away(error) else "fault", reason=error.message)
            if is_away(error):
                self._loop.after(AWAY_S, lambda: self._drop_requests(logins, process))

    def _arm(self) -> None:
        if self._look is None and self._exited:
            self._look = self._loop.after(max(0.0, min(self._exited.values()) - time.monotonic()), self._look_for_rest)

    def _look_for_rest(self) -> None:
        """End the launches that exited processes have left."""
        self._look = None
        now = time.monotonic()
        due = {process for process, at in self._exited.items() if at <= now}
        try:
            rows = self._outage.guard(
                lambda: finish.launchers_and_logins(self._store, sorted({process.pid for process in due}))
            )
            left = [live for _, live in self._here(rows) if process_of(live) in due]
            for process in due:
                del self._exited[process]
            self._end(left)
        except StoreError as error:
            self._journal.write("database_away" if is_away(error) else "fault", reason=error.message)
            self._exited.update(dict.fromkeys(due, now + AWAY_S))
        self._arm()

    def _here(self, rows: list[tuple[str, Live]]) -> list[tuple[str, Live]]:
        """The launches of this host. Nothing is known here about processes of other hosts."""
        logins = {login for login, _ in rows}
        here = {login for login in logins if self._outage.guard(lambda login=login: self._logins.is_here(login))}  # type: ignore[misc]
        return [(login, live) for login, live in rows if login in here]

    def _end(self, left: Sequence[Live]) -> None:
        for live in left:
            self._journal.write("launcher_exited", launcher=live.launcher, uid=live.uid, pid=live.pid)
        self._lost.clear(left, GONE, lambda error: self._on_ended(left, error))

    def _on_ended(self, left: Sequence[Live], error: Error | None) -> None:
        if error is not None:  # each launch that could not be cleaned up is tried again
            self._journal.write("refused", op="launcher_exited", code=error.code, reason=error.message)
            at = time.monotonic() + self._unwatched_s
            self._exited.update({process_of(live): at for live in left})
            self._arm()
        if left:
            self._released()

    # --- launches that nobody watches

    def _look_at_all(self) -> None:
        self._sweep = None
        try:
            gone = []
            for login, live in self._here(self._outage.guard(lambda: finish.launchers_and_logins(self._store))):
                if is_known_to_be_gone(process_of(live)):
                    gone.append(live)
                else:
                    self.has(login, process_of(live), live.launcher)
            self._end(gone)
        except StoreError as error:
            self._journal.write("database_away" if is_away(error) else "fault", reason=error.message)
            self.look_at_all_soon()


def process_of(live: Live) -> Process:
    """The process that has a launch."""
    return Process(live.pid, live.pid_started)
