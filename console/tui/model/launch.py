"""A launch's model from its event stream: ranks, exits, output. No I/O: events in, state out."""

import enum
import math
import signal
from typing import Any, NamedTuple

from agents.wire.control import Message
from console.launch.options.signal_names import signal_name
from console.tui.format import program_words
from console.tui.model.output import Output
from console.tui.model.stacks.crash import Crashes
from redmesh.idset import fold_names, fold_ranks
from redmesh.sanitise import clean

#: The exit status of a launch is that of a shell: after a signal, its number and this.
SIGNALLED = 128


class Phase(enum.Enum):
    """The phase of a launch, as far as known."""

    ATTACHING = "attaching"
    WAITING = "waiting for processors"
    LOADING = "loading"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "out of sight"  # the connection was lost before the launch ended


class RankState(enum.IntEnum):
    """The state of a rank; the value is its cell in the grid."""

    WAITING = 0
    RUNNING = 1
    HELD = 2  # at its first instruction
    EXITED = 3  # status 0
    FAILED = 4  # another status
    SIGNALLED = 5
    LOST = 6
    STOPPED = 7  # by yod, after another rank had failed or at the user's request


#: Exits that are failures of the rank itself, or of its node.
BAD = (RankState.FAILED, RankState.SIGNALLED, RankState.LOST)
#: Signals with which a user ends ranks: an exit after one of them is no failure of the rank itself.
_ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM))


#: All changes of phase: (phase, event) → phase. An event that is not listed changes nothing.
TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    **{
        (phase, event): after
        for phase in (Phase.ATTACHING, Phase.WAITING, Phase.LOADING)
        for event, after in (
            ("allocated", Phase.LOADING),
            ("loading", Phase.LOADING),
            ("started", Phase.RUNNING),
            ("end", Phase.ENDED),
        )
    },
    (Phase.ATTACHING, "hello"): Phase.WAITING,
    (Phase.RUNNING, "end"): Phase.ENDED,
    (Phase.GONE, "restart"): Phase.ATTACHING,
    (Phase.ATTACHING, "disconnected"): Phase.GONE,
    (Phase.WAITING, "disconnected"): Phase.GONE,
    (Phase.LOADING, "disconnected"): Phase.GONE,
    (Phase.RUNNING, "disconnected"): Phase.GONE,
}

#: The phase in a late *hello*, by the state of the launch (console.launch.states.State).
_STATES = {"loading": Phase.LOADING, "confirming": Phase.LOADING, "running": Phase.RUNNING}


class End(NamedTuple):
    """How one rank ended."""

    status: int
    signal: int
    elapsed_s: float
    by_yod: bool


class Row(NamedTuple):
    """A row of the completion table: ranks with equal exits."""

    ranks: str  # folded
    what: str
    nodes: str  # folded
    shortest_s: float
    longest_s: float
    state: RankState
    members: frozenset[int] = frozenset()
    first: frozenset[int] = frozenset()  # those of them with which the failure of the launch began


class Run:
    """One launch being watched."""

    def __init__(self, launcher: int, command: str = "", size: int = 0) -> None:
        self.launcher = launcher
        self.command = clean(command)
        self.size = 0
        self.user = ""
        self.phase = Phase.ATTACHING
        self.states = bytearray()
        self.nodes: list[str] = []
        self.pids: list[int] = []
        self.ends: dict[int, End] = {}
        self.output = Output()
        self.partition: int | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.exit_status: int | None = None
        self.elapsed_s: float | None = None
        self.takes_input = False  # input from observers is accepted
        self.held = False  # at its first instruction
        self.created_at: float | None = None  # of its row: another database counts launchers from 1 again
        self.past = False  # its yod has exited: what is read was kept, and nothing of it is true now
        self.bad_exits = 0  # announcements of failed ranks while others ran
        self.last_bad_exit = ""
        self.crashes = Crashes()
        self._first: frozenset[int] = frozenset()  # the ranks that failed first, before yod ended others
        self._aborted_by: int | None = None  # the rank that called MPI_Abort
        self._stopped_s = math.inf  # when yod began to end ranks, by the ranks' own time
        self._ended_by_user: set[int] | None = set()  # ranks with a signal from the user; None: all
        self._resize(size)

    @property
    def name(self) -> str:
        """The program's name; for an interpreter, the script's."""
        return next(iter(program_words(self.command)), "")

    @property
    def shown(self) -> str:
        """The command without the program's directory, as in all lists."""
        return " ".join(program_words(self.command))

    @property
    def how(self) -> str:
        """How it ended: ``exit 3``, ``exit 139 (SIGSEGV)``."""
        signals = {end.signal for end in self.ends.values()}
        number = (self.exit_status or 0) - SIGNALLED
        return f"exit {self.exit_status}" + (f" ({signal_name(number)})" if number in signals - {0} else "")

    @property
    def live(self) -> bool:
        """True while signals can reach it."""
        return not self.past and self.phase in (Phase.WAITING, Phase.LOADING, Phase.RUNNING)

    @property
    def last_seen(self) -> bool:
        """True if the states of its ranks may be others by now: it is over or out of sight, its end unknown."""
        return self.phase is Phase.GONE or (self.past and self.phase is not Phase.ENDED)

    @property
    def failed(self) -> bool:
        """True if it has failed."""
        return self.phase is Phase.ENDED and bool(self.exit_status)

    def counts(self) -> dict[RankState, int]:
        """The number of ranks in each state, without empty states."""
        return {state: n for state in RankState if (n := self.states.count(state))}

    @property
    def ended_badly(self) -> int:
        """How many ranks failed, were killed by a signal, or were lost with their node; not those that yod ended."""
        return sum(map(self.states.count, BAD))

    @property
    def first_to_fail(self) -> frozenset[int]:
        """The rank that failed first, by itself (or all ranks of the node that was lost first), if it was not the only
        one: others failed or were ended after it."""
        bad = self.ended_badly + self.states.count(RankState.STOPPED)
        end = self.ends.get(next(iter(self._first), -1))
        # It failed because yod was ending the launch, for a time limit for example.
        after = self._aborted_by is None and end is not None and end.elapsed_s > self._stopped_s
        return self._first if bad > len(self._first) and not after else frozenset()

    def died_at(self, ranks: frozenset[int]) -> float | None:
        """When the first of these ranks ended; None if unknown."""
        took = [self.ends[rank].elapsed_s for rank in ranks if rank in self.ends]
        return self.started_at + min(took) if took and self.started_at is not None else None

    def take(self, event: Message) -> None:
        """Apply one event of the stream. Unknown or malformed events are ignored."""
        kind = event.get("event")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if handler is None:
            return
        try:
            handler(self, event)
        except (KeyError, TypeError, ValueError, IndexError):
            self.output.note(f"an event of kind {clean(str(kind))[:20]} that could not be read")
            return
        self.phase = TRANSITIONS.get((self.phase, str(kind)), self.phase)

    def restart(self) -> None:
        """The stream will be repeated, from its beginning if it was kept."""
        self.phase = TRANSITIONS.get((self.phase, "restart"), self.phase)
        self.states = bytearray(len(self.states))
        self.ends.clear()
        self.output.clear()
        self.held = self.past = False
        self.bad_exits, self.last_bad_exit = 0, ""
        self.crashes = Crashes()
        self._first, self._aborted_by, self._ended_by_user = frozenset(), None, set()
        self._stopped_s = math.inf

    def disconnected(self) -> None:
        """The event stream has ended: the launch is over, or out of sight."""
        self.phase = TRANSITIONS.get((self.phase, "disconnected"), self.phase)
        self.output.finish()

    def completion(self) -> list[Row]:
        """The completion table: equal exits folded; first the failure with which it began, then other failures, then
        the ranks that yod ended."""
        first = self.first_to_fail
        groups: dict[tuple[RankState, str, bool], list[int]] = {}
        for rank in range(len(self.states)):
            state = RankState(self.states[rank])
            if state >= RankState.EXITED:
                apart = rank in first and state not in BAD  # it called MPI_Abort, and was ended with the others
                groups.setdefault((state, self._what(rank, state), apart), []).append(rank)
        rows = []
        for (state, what, apart), ranks in groups.items():
            times = [self.ends[rank].elapsed_s for rank in ranks if rank in self.ends] or [0.0]
            nodes = fold_names(list(dict.fromkeys(self.nodes[rank] for rank in ranks)))
            began = first & frozenset(ranks) if apart or state in BAD else frozenset()
            rows.append(Row(fold_ranks(ranks), what, nodes, min(times), max(times), state, frozenset(ranks), began))
        return sorted(rows, key=lambda row: (not row.first, row.state not in BAD, row.state is RankState.EXITED))

    def _what(self, rank: int, state: RankState) -> str:
        if state is RankState.LOST:
            return "lost with its node"
        end = self.ends[rank]
        by = " (by yod)" if end.by_yod else ""
        return f"{signal_name(end.signal)}{by}" if end.signal else f"exit {end.status}{by}"

    def _resize(self, size: int) -> None:
        more = min(max(0, size), 1 << 20) - len(self.states)
        if more > 0:
            self.states.extend(bytes(more))
            self.nodes += [""] * more
            self.pids += [0] * more
        self.size = len(self.states)

    def _set(self, rank: int, state: RankState) -> None:
        self._resize(rank + 1)
        self.states[rank] = state

    def _hello(self, event: Message) -> None:
        self.command = clean(str(event.get("command") or self.command))
        self.user = clean(str(event.get("user") or ""))
        self.takes_input = event.get("input") is True
        self._resize(int(event.get("size") or 0))
        if self.phase is Phase.ATTACHING:
            self.phase = _STATES.get(str(event.get("state")), self.phase)

    def _allocated(self, event: Message) -> None:
        self._resize(int(event.get("size") or 0))
        self.partition = int(event["partition"]) if event.get("partition") is not None else None

    def _started(self, event: Message) -> None:
        self.started_at = float(event["at"])
        for rank, (pid, node) in enumerate(event["ranks"]):
            self._resize(rank + 1)
            self.pids[rank], self.nodes[rank] = int(pid), clean(str(node))
            if self.states[rank] == RankState.WAITING:
                self.states[rank] = RankState.HELD if self.held else RankState.RUNNING

    def _exit(self, event: Message) -> None:
        rank, status, number = int(event["rank"]), int(event["status"]), int(event["signal"])
        end = End(status, number, float(event.get("elapsed_s") or 0.0), bool(event.get("by_yod")))
        bad = RankState.STOPPED if end.by_yod else RankState.SIGNALLED if number else RankState.FAILED
        self._set(rank, bad if number or status else RankState.EXITED)
        self.ends[rank] = end
        if end.by_yod:
            self._stopped_s = min(self._stopped_s, end.elapsed_s)
        if RankState(self.states[rank]) in BAD:
            self._failed(rank, end)
        if event.get("node"):
            self.nodes[rank] = clean(str(event["node"]))

    def _failed(self, rank: int, end: End) -> None:
        """A rank failed by itself: remember it if it was the first."""
        if self._aborted_by is not None or self._ended_by_user is None or rank in self._ended_by_user:
            return
        # Exits of different nodes may arrive in another order; a lost node has no time, and stays the first.
        before = self.ends.get(next(iter(self._first), -1))
        if not self._first or (before is not None and end.elapsed_s < before.elapsed_s):
            self._first = frozenset((rank,))

    def _lost(self, event: Message) -> None:
        lost = []
        for rank in event.get("ranks") or []:
            if int(rank) >= self.size or self.states[int(rank)] < RankState.EXITED:
                self._set(int(rank), RankState.LOST)
                lost.append(int(rank))
        if not self._first and self._ended_by_user is not None:
            self._first = frozenset(lost)
        self.output.note(clean(str(event.get("reason") or "a node was lost")))

    def _signalled(self, event: Message) -> None:
        ranks, number = event.get("ranks"), int(event["signal"])
        if number in _ENDING and self._ended_by_user is not None:
            self._ended_by_user = None if ranks is None else self._ended_by_user | {int(rank) for rank in ranks}
        whom = "all ranks" if ranks is None else f"ranks {fold_ranks(sorted(int(rank) for rank in ranks))}"
        self.output.note(f"{signal_name(number)} sent to {whom}")

    def _note(self, event: Message) -> None:
        text = str(event.get("message") or event.get("text") or "")
        node = str(event.get("node") or "")
        self.output.note(clean(f"{node}: {text}" if node and not text.startswith(node) else text))

    def _aborted(self, event: Message) -> None:
        if self._aborted_by is None and not self._first:
            self._aborted_by = int(event["rank"])
            self._first = frozenset((self._aborted_by,))
        self.output.note(clean(str(event["text"])))

    def _bad_exit(self, event: Message) -> None:
        from console.launch.events.bad_exits import lines as bad_exit_lines  # rare, and slow to import

        stop = str(event["stop"])
        for line in bad_exit_lines(event, stop, apart=True):
            self.output.note(clean(line))
        self.bad_exits += 1
        self.last_bad_exit = clean(bad_exit_lines(event, stop)[0])

    def _held(self, event: Message) -> None:
        del event
        self.held = True
        self.states = self.states.replace(bytes((RankState.RUNNING,)), bytes((RankState.HELD,)))
        self.output.note("held at its first instruction")

    def _released(self, event: Message) -> None:
        del event
        self.held = False
        self.states = self.states.replace(bytes((RankState.HELD,)), bytes((RankState.RUNNING,)))
        self.output.note("released")

    def _backtrace(self, event: Message) -> None:
        if 0 <= int(event["rank"]) < self.size:
            self.crashes.add(int(event["rank"]), event)

    def _skipped(self, event: Message) -> None:
        self.output.skipped_bytes += int(event.get("bytes") or 0)

    def _end(self, event: Message) -> None:
        self.exit_status = int(event["exit_status"])
        self.elapsed_s = float(event.get("elapsed_s") or 0.0)
        self.ended_at = float(event["at"])
        self.output.finish()

    def _nothing(self, event: Message) -> None:
        del event


_HANDLERS: dict[str, Any] = {
    "hello": Run._hello,
    "allocated": Run._allocated,
    "loading": Run._nothing,
    "started": Run._started,
    "exit": Run._exit,
    "lost": Run._lost,
    "signalled": Run._signalled,
    "note": Run._note,
    "gives_way": Run._note,
    "aborted": Run._aborted,
    "bad_exit": Run._bad_exit,
    "held": Run._held,
    "released": Run._released,
    "backtrace": Run._backtrace,
    "skipped": Run._skipped,
    "end": Run._end,
}
