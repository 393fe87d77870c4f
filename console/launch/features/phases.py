"""``-D`` and ``-d TYPE``: prints the steps of a launch with their times, and messages in between.

A step has a number, B1 to B13 (table in docs/yod.md); a line without a number is printed only for its type.
"""

from __future__ import annotations

import os
import time

from agents.wire.frames import CONTROL, FILE, STDERR, STDOUT
from console.launch.features.feature import Feature
from console.launch.options.request import forwarded
from console.launch.options.signal_names import signal_name
from console.launch.states import TRANSITIONS, Event, State
from redmesh.idset import fold_names, fold_ranks
from redmesh.sanitise import clean
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.wire.errors import AgentError
    from console.launch.options.output import OutputOptions

#: The events of -d failure, and which of their facts is printed.
_BAD_NEWS = {
    Event.FAILED: 1,
    Event.LOST: 1,
    Event.ROOT_ENDED: 0,
    Event.REFUSED: 0,
    Event.OVERDUE: 0,
    Event.UNCONFIRMED: 0,
}


class Steps:
    """Prints the steps of ``topics``: types of -d, or ``all`` for every numbered step."""

    def __init__(self, line: Callable[[str], None], topics: frozenset[str], begun: float) -> None:
        self._line, self._topics, self._begun = line, topics, begun
        self.phase = "phase1"  # until GO

    def wants(self, *topics: str) -> bool:
        """True if a line of one of these topics would be printed; for lines that are expensive to compute."""
        return not self._topics.isdisjoint((*topics, "all"))

    def step(self, number: str, topic: str, text: str) -> None:
        """Print a step of the launch, if its type, its phase or all steps are wanted."""
        if not self._topics.isdisjoint((topic, self.phase, "all")):
            self._tell(f"{number:<4}{topic}", text)

    def note(self, topic: str, text: str) -> None:
        """Print a line that belongs only to the type ``topic``, if that is wanted."""
        if topic in self._topics:
            self._tell(f"    {topic}", text)

    def _tell(self, what: str, text: str) -> None:
        self._line(f"yod: {time.monotonic() - self._begun:10.6f} {what}: {text}")


class Timing:
    """``-timing``: the seconds between a launch's states."""

    #: (phase, its first state)
    PHASES = (
        ("allocation", "allocating"),
        ("load", "loading"),
        ("start", "confirming"),
        ("run", "running"),
        ("clean-up", "clearing"),
        ("freeing", "freeing"),
        ("last output", "draining"),
    )

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._entered = [("allocating", begun)]

    def entered(self, state: str, at: float) -> None:
        """Record that the launch entered ``state`` at ``at`` (monotonic)."""
        self._entered.append((state, at))

    def row(self) -> str:
        """``allocation 0.002, load 0.031 …``: the phases in order; a repeated phase (a retry) is summed."""
        now = time.monotonic()
        ends = [at for _, at in self._entered[1:]] + [now]
        spent: dict[str, float] = {}
        for (state, at), end in zip(self._entered, ends, strict=True):
            spent[state] = spent.get(state, 0.0) + end - at
        parts = [f"{name} {spent[state]:.6f}" for name, state in self.PHASES if state in spent]
        return ", ".join([*parts, f"all {now - self._begun:.6f}"])


class Phases(Feature):
    """Prints the steps of a launch, and the time of each phase."""

    def __init__(self, options: OutputOptions) -> None:
        self._options = options
        self._input = 0
        self._output = {STDOUT: 0, STDERR: 0}

    def begin(self) -> None:
        context = self.context
        self._steps = Steps(lambda text: context.front.line(text), self._options.topics, context.begun)
        self._timing = Timing(context.begun)
        where, steps = context.request.where, self._steps
        asked = counted(where.size, "rank") if where.size is not None else "as many ranks as the list has room for"
        steps.step("B1", "alloc", f"asking a CPA for processors: {asked}, {where.cpus_per_task} for each")
        steps.note("bebopd", f"to the CPA: allocate size={where.size} wait_s={where.wait_s:g}")
        inside = "not inside a batch job" if where.partition is None else f"inside partition {where.partition}"
        steps.note("pbs", f"{inside}: REDMESH_PARTITION says so")

    def on_event(self, event: Event, facts: tuple[Any, ...]) -> None:
        if not self._steps.wants("debug", "failure"):
            return
        if event in _BAD_NEWS and (self.context.launch.state, event) in TRANSITIONS:
            number = "B2" if event is Event.REFUSED else "B7" if self._steps.phase == "phase1" else "B11"
            self._steps.step(number, "failure", f"{event.value}: {clean(str(facts[_BAD_NEWS[event]]))}")

    def on_state(self, before: State, event: Event, at: float) -> None:
        state = self.context.launch.state
        self._timing.entered(state.value, at)
        self._steps.note("debug", f"{before.value} + {event.value} -> {state.value}")
        if state is State.ENDED:
            self._steps.step("B13", "alloc", "unregistered; nothing of the launch is left")
            if self._options.timing:
                self.context.front.line(f"yod: seconds: {self._timing.row()}")

    # B2: processors

    def on_reply(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if reply is not None and error is None:
            nodes = reply["nodes"]
            count = counted(sum(len(node["processors"]) for node in nodes), "processor")
            names = clean(fold_names(list(dict.fromkeys(str(node["name"]) for node in nodes))))
            launcher, most = reply["launcher"], f"{reply['pending_s']:g} s"
            self._steps.note("bebopd", f"from the CPA: launcher {launcher}, partition {reply['partition']}")
            self._steps.step("B2", "alloc", f"launcher {launcher} has {count} on {names}, pending for at most {most}")
        elif error is not None:
            self._steps.note("bebopd", f"from the CPA: {error.code}: {error.message}")

    # B3 to B8: the load

    def before_load(self) -> None:
        request, steps, plan = self.context.request, self._steps, self.context.plan
        assert plan is not None
        group = f"group of {counted(len(plan.nodes), 'PCT')}, fan-out {request.transfer.fanout}"
        steps.step("B3", "load", f"{group}; root {clean(plan.nodes[0].name)}")
        how = {"auto": "in place where the same file is there", "never": "in place"}
        way = how.get(request.transfer.bcast, "by their RAM disk")
        steps.step("B4", "load", f"the program goes to the nodes {way}")
        program = request.program
        steps.step(
            "B5",
            "load",
            f"{clean(os.fsdecode(program.path))}, {counted(len(program.argv) - 1, 'argument')},"
            f" {counted(len(program.environ), 'variable')}, uid {os.getuid()}, gid {os.getgid()},"
            f" umask {program.umask:03o}",
        )
        if steps.wants("environ"):
            kept = {name for name, _ in forwarded(program.environ)}
            withheld = sorted(os.fsdecode(name) for name in program.environ if name not in kept)
            names = clean(", ".join(withheld)) or "none"
            steps.step("B5", "environ", f"{counted(len(kept), 'variable')} handed on; withheld: {names}")
        self._tell_segments()

    def _tell_segments(self) -> None:
        segments = self.context.request.program.segments
        if segments is None:
            size = counted(self.context.launch.ranks.size, "rank", "ranks in all")
            self._steps.step("B6", "hetero", f"one program for {size}")
            return
        first = 0
        for one in segments:
            ranks = fold_ranks(list(range(first, first + one.size)))
            self._steps.step("B6", "hetero", f"line {one.line}: rank {ranks}: {clean(os.fsdecode(one.path))}")
            first += one.size

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        plan, ranks, steps = self.context.plan, self.context.launch.ranks, self._steps
        assert plan is not None
        begun = counted(ranks.size, "process has begun", "processes have begun")
        steps.step("B7", "load", f"{begun} on {counted(len(plan.nodes), 'node')}, held")
        steps.step("B8", "load", f"map of {counted(ranks.size, 'rank')} is here: rank 0 is process {ranks.pids[0][0]}")
        if steps.wants("loadmore"):
            for rank, (pid, at) in enumerate(ranks.pids):
                steps.note("loadmore", f"rank {rank} is process {pid} on {clean(ranks.node_name(at))}")
        return True

    def before_request(self, op: str) -> None:
        steps = self._steps
        if op == "started":
            steps.note("bebopd", "to the CPA: started")
            return
        steps.step("B12", "pbs", f"a line in {clean(self.context.state_dir)}/usage.log")
        steps.note("bebopd", f"to the CPA: finish, status {self.context.launch.exit_status}")
        steps.step("B13", "alloc", "all-done to the group; giving the processors back")

    # B9 to B11: running

    def before_go(self) -> None:
        steps = self._steps
        steps.note("bebopd", "from the CPA: started is written down")
        steps.phase = "phase2"
        steps.step("B9", "io", f"GO; yod serves standard I/O, input: {self.context.request.stdio.input}")
        steps.step("B10", "phase2", "SIGUSR1 and SIGUSR2 are handed on, ^C is SIGTERM, then SIGKILL")

    def on_input(self, size: int) -> None:
        if size:
            self._input += size
            self._steps.note("iomore", f"{counted(size, 'byte')} of standard input to the ranks")
        else:
            self._steps.note("io", f"standard input has ended after {counted(self._input, 'byte')}")

    def before_signal(self, number: int, ranks: list[int] | None) -> None:
        who = "every rank" if ranks is None else f"rank {fold_ranks(ranks)}"
        self._steps.step("B10", "phase2", f"{signal_name(number)} to {who}")

    def on_sent(self, message: dict[str, Any]) -> None:
        if message["op"] != "credit":
            self._steps.note("comm", f"to the root: {message['op']}")

    def on_frame(self, kind: int, payload: bytes) -> None:
        if kind in self._output:
            self._output[kind] += len(payload) - 4
            if self._steps.wants("iomore"):
                rank, stream = int.from_bytes(payload[:4], "big"), "stdout" if kind == STDOUT else "stderr"
                self._steps.note("iomore", f"{counted(len(payload) - 4, 'byte')} of {stream} from rank {rank}")
        elif kind == FILE:
            if self._steps.wants("io", "iomore"):
                self._tell_request(payload)
        elif kind != CONTROL:
            self._steps.note("comm", f"from the root: a frame of kind {kind}, {counted(len(payload), 'byte')}")

    def _tell_request(self, payload: bytes) -> None:
        """Print a rank's file request: opens and closes with io, reads and writes too with iomore."""
        from console.launch.transfer.io_requests import described

        told, dear = described(payload)
        place = int.from_bytes(payload[:4], "big")
        plan = self.context.plan
        node = clean(plan.nodes[place].name) if plan is not None and place < len(plan.nodes) else "?"
        if told:
            self._steps.note("iomore" if dear else "io", f"{told}, from {node}")

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        steps = self._steps
        steps.note("comm", f"from the root: {op}")
        if op == "ready":
            ranks, nodes = counted(len(message["ranks"]), "rank"), {entry[2] for entry in message["ranks"]}
            steps.note("loadmore", f"held: {ranks} on {counted(len(nodes), 'node')}")
        elif op in ("want", "no_room", "progress"):
            told = ", ".join(f"{key} {clean(str(value))}" for key, value in message.items() if key != "op")
            if op == "no_room":
                steps.step("B4", "loadmore", f"{op}: {told}")
            else:
                steps.note("loadmore", f"{op}: {told}")
        elif op == "exits":
            steps.step("B11", "phase2", f"rank {fold_ranks(sorted(e[0] for e in message['ranks']))} ended")
        elif op == "finished":
            out, err = self._output[STDOUT], self._output[STDERR]
            steps.note("io", f"all output is here: {counted(out, 'byte')} of stdout, {err} of stderr")

    def on_tick(self) -> None:
        if not self._steps.wants("progress"):
            return
        launch, outstanding = self.context.launch, self.context.outstanding()
        ready = sum(1 for pid, _ in launch.ranks.pids if pid)
        counts = f"{ready} of {launch.ranks.size} have begun, {len(launch.ranks.ends)} have ended"
        waits = f"; {outstanding}" if outstanding else ""
        self._steps.note("progress", f"{launch.state.value}: {counts}{waits}")
