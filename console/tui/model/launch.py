"""A launch's model from its event stream: ranks, exits, output. No I/O: events in, state out."""

import enum
from typing import Any, NamedTuple

from agents.wire.control import Message
from console.launch.events.crashes import Traces
from console.launch.options.signal_names import signal_name
from console.tui.format import program_words
from console.tui.model.output import Output
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
        self.traces = Traces()
        self.traced: set[int] = set()  # ranks with a known stack
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
    def failed(self) -> bool:
        """True if it has failed."""
        return self.phase is Phase.ENDED and bool(self.exit_status)

    def counts(self) -> dict[RankState, int]:
        """The number of ranks in each state, without empty states."""
        return {state: n for state in RankState if (n := self.states.count(state))}

    @property
    def ended_badly(self) -> int:
        """How many ranks failed, were killed by a signal, or were lost with their node."""
        return sum(map(self.states.count, (RankState.FAILED, RankState.SIGNALLED, RankState.LOST)))

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
        self.traces = Traces()
        self.traced = set()

    def disconnected(self) -> None:
        """The event stream has ended: the launch is over, or out of sight."""
        self.phase = TRANSITIONS.get((self.phase, "disconnected"), self.phase)
        self.output.finish()

    def completion(self) -> list[Row]:
        """The completion table: equal exits folded, failures first."""
        groups: dict[tuple[RankState, str], list[int]] = {}
        for rank in range(len(self.states)):
            state = RankState(self.states[rank])
            if state >= RankState.EXITED:
                groups.setdefault((state, self._what(rank, state)), []).append(rank)
        rows = []
        for (state, what), ranks in groups.items():
            times = [self.ends[rank].elapsed_s for rank in ranks if rank in self.ends] or [0.0]
            nodes = fold_names(list(dict.fromkeys(self.nodes[rank] for rank in ranks)))
            rows.append(Row(fold_ranks(ranks), what, nodes, min(times), max(times), state, frozenset(ranks)))
        return sorted(rows, key=lambda row: row.state is RankState.EXITED)

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
        rank, status, signal = int(event["rank"]), int(event["status"]), int(event["signal"])
        self._set(rank, RankState.SIGNALLED if signal else RankState.FAILED if status else RankState.EXITED)
        self.ends[rank] = End(status, signal, float(event.get("elapsed_s") or 0.0), bool(event.get("by_yod")))
        if event.get("node"):
            self.nodes[rank] = clean(str(event["node"]))

    def _lost(self, event: Message) -> None:
        for rank in event.get("ranks") or []:
            if int(rank) >= self.size or self.states[int(rank)] < RankState.EXITED:
                self._set(int(rank), RankState.LOST)
        self.output.note(clean(str(event.get("reason") or "a node was lost")))

    def _signalled(self, event: Message) -> None:
        ranks = event.get("ranks")
        whom = "all ranks" if ranks is None else f"ranks {fold_ranks(sorted(int(rank) for rank in ranks))}"
        self.output.note(f"{signal_name(int(event['signal']))} sent to {whom}")

    def _note(self, event: Message) -> None:
        text = str(event.get("message") or event.get("text") or "")
        node = str(event.get("node") or "")
        self.output.note(clean(f"{node}: {text}" if node and not text.startswith(node) else text))

    def _aborted(self, event: Message) -> None:
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
        self.traces.add(int(event["rank"]), str(event["node"]), event)
        self.traced.add(int(event["rank"]))

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
