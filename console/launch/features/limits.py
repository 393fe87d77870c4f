"""The engine of launches that asked for more than a plain one: files, limits, steps told (conduct.py says what).

A plain launch loads none of this.
"""

from __future__ import annotations

import os
import time

from agents.wire.frames import CONTROL, STDERR, STDIN, STDOUT, frame
from console.errors import ConsoleError
from console.launch.engine import Engine
from console.launch.events.completion_report import completion_lines
from console.launch.events.phases import Steps, Timing
from console.launch.options.signals import signal_name
from console.launch.states import TRANSITIONS, Event, State
from redmesh.idset import fold_names, fold_ranks
from redmesh.sanitise import clean
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.link import Link
    from agents.link.loop import Loop
    from agents.wire.errors import AgentError
    from console.launch.options.output import OutputOptions
    from console.launch.options.request import Request

    Make = Callable[[Loop, Request, Callable[[int], None], Callable[[str, int], None]], Any]


#: What -d failure tells of, and which of the event's facts says it to people.
_BAD_NEWS = {
    Event.FAILED: 1,
    Event.LOST: 1,
    Event.ROOT_ENDED: 0,
    Event.REFUSED: 0,
    Event.OVERDUE: 0,
    Event.UNCONFIRMED: 0,
}


def front_maker(make: Make, conduct: OutputOptions) -> Make:
    """How the front of such a launch is made: ``make``'s, with files or a gatherer before it."""

    def made(
        loop: Loop, request: Request, on_passed: Callable[[int], None], on_broken: Callable[[str, int], None]
    ) -> Any:
        inner = make(loop, request, on_passed, on_broken)
        if conduct.gather:
            from console.launch.stdio.gather import GatherFront

            inner = GatherFront(inner, loop, on_passed, on_broken)
        if conduct.output is not None or conduct.error is not None:
            from console.launch.stdio.files import FilesFront

            inner = FilesFront(inner, loop, request, conduct, on_passed, on_broken)
        return inner

    return made


class ConductedEngine(Engine):
    """An engine that keeps to a conduct, and tells its steps."""

    def __init__(self, loop: Loop, request: Request, **others: Any) -> None:
        conduct = request.conduct
        assert conduct is not None
        self._conduct: OutputOptions = conduct
        super().__init__(loop, request, **others)
        self._steps = Steps(self.front.line, conduct.topics, self._begun)
        self._timing = Timing(self._begun)
        self._first_ended = False
        self._bytes = {STDIN: 0, STDOUT: 0, STDERR: 0}
        self._tell_request()

    # what happens

    def handle(self, event: Event, *facts: Any) -> None:
        """Give the machine an event and do what it says."""
        before, at = self.launch.state, time.monotonic()  # its actions belong to the new state: GO is part of the run
        if self._steps.wants("debug", "failure"):
            self._tell_event(event, facts)
        super().handle(event, *facts)
        state = self.launch.state
        if state is not before:
            self._timing.entered(state.value, at)
            self._entered(before, state, event)
        if event in (Event.EXITS, Event.LOST) and state is State.RUNNING and not self._first_ended:
            self._on_first_exit()

    def _entered(self, before: State, state: State, event: Event) -> None:
        self._steps.note("debug", f"{before.value} + {event.value} -> {state.value}")
        if state is State.ENDED:
            self._steps.step("B13", "alloc", "unregistered; nothing of the launch is left")
            if self._conduct.timing:
                self.front.line(f"yod: seconds: {self._timing.row()}")

    def _on_first_exit(self) -> None:
        launch = self.launch
        if not launch.ranks.ends or launch.ranks.all_ended:
            return
        self._first_ended = True
        wait_s = self._conduct.wait_s
        if wait_s is not None:
            why = f"{wait_s:g} s after the first rank ended others still run (-wait): ending them"
            self.loop.after(wait_s, lambda: self.handle(Event.LIMIT, why, None))

    # B1, B2: processors

    def _tell_request(self) -> None:
        request, steps = self.request, self._steps
        asked = counted(request.size, "rank") if request.size is not None else "as many ranks as the list has room for"
        steps.step("B1", "alloc", f"asking a CPA for processors: {asked}, {request.cpus_per_task} for each")
        steps.note("bebopd", f"to the CPA: allocate size={request.size} wait_s={request.wait_s:g}")
        where = "not inside a batch job" if request.partition is None else f"inside partition {request.partition}"
        steps.note("pbs", f"{where}: REDMESH_PARTITION says so")

    def allocated(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        """The CPA's answer to the request for processors."""
        if reply is not None and error is None:
            nodes = reply["nodes"]
            count = sum(len(node["processors"]) for node in nodes)
            names = clean(fold_names(list(dict.fromkeys(str(node["name"]) for node in nodes))))
            self._steps.note("bebopd", f"from the CPA: launcher {reply['launcher']}, partition {reply['partition']}")
            self._steps.step(
                "B2",
                "alloc",
                f"launcher {reply['launcher']} has {counted(count, 'processor')} on {names}, pending for at most"
                f" {reply['pending_s']:g} s",
            )
        elif error is not None:
            self._steps.note("bebopd", f"from the CPA: {error.code}: {error.message}")
        super().allocated(reply, error)

    # B3 to B8: the load

    def _load(self) -> None:
        plan, request, steps = self._plan, self.request, self._steps
        assert plan is not None
        root = plan.nodes[0].name
        steps.step(
            "B3", "load", f"group of {counted(len(plan.nodes), 'PCT')}, fan-out {request.fanout}; root {clean(root)}"
        )
        how = {"auto": "in place where the same file is there", "never": "in place"}
        steps.step("B4", "load", f"the program goes to the nodes {how.get(request.bcast, 'by their RAM disk')}")
        steps.step(
            "B5",
            "load",
            f"{clean(os.fsdecode(request.path))}, {counted(len(request.argv) - 1, 'argument')},"
            f" {counted(len(request.environ), 'variable')}, uid {os.getuid()}, gid {os.getgid()},"
            f" umask {request.umask:03o}",
        )
        if steps.wants("environ"):
            self._tell_environment()
        self._tell_segments()
        super()._load()

    def _tell_environment(self) -> None:
        from console.launch.options.request import forwarded

        kept = {name for name, _ in forwarded(self.request.environ)}
        withheld = sorted(os.fsdecode(name) for name in self.request.environ if name not in kept)
        names = clean(", ".join(withheld)) or "none"
        self._steps.step("B5", "environ", f"{counted(len(kept), 'variable')} handed on; withheld: {names}")

    def _tell_segments(self) -> None:
        segments = self.request.segments
        if segments is None:
            self._steps.step(
                "B6", "hetero", f"one program for {counted(self.launch.ranks.size, 'rank', 'ranks in all')}"
            )
            return
        first = 0
        for one in segments:
            ranks = fold_ranks(list(range(first, first + one.size)))
            self._steps.step("B6", "hetero", f"line {one.line}: rank {ranks}: {clean(os.fsdecode(one.path))}")
            first += one.size

    def _confirm(self) -> None:
        plan, ranks = self._plan, self.launch.ranks
        assert plan is not None
        begun = counted(ranks.size, "process has begun", "processes have begun")
        self._steps.step("B7", "load", f"{begun} on {counted(len(plan.nodes), 'node')}, held")
        self._steps.step(
            "B8", "load", f"map of {counted(ranks.size, 'rank')} is here: rank 0 is process {ranks.pids[0][0]}"
        )
        if self._steps.wants("loadmore"):
            for rank, (pid, at) in enumerate(ranks.pids):
                self._steps.note("loadmore", f"rank {rank} is process {pid} on {clean(ranks.node_name(at))}")
        try:
            self._open_files()
        except ConsoleError as error:
            message = error.message
            self.loop.after(0, lambda: self.handle(Event.OUTPUT_BROKEN, message, 125))
            return
        self._steps.note("bebopd", "to the CPA: started")
        super()._confirm()

    def _open_files(self) -> None:
        conduct = self._conduct
        if (conduct.output is not None or conduct.error is not None) and self._plan is not None:
            self.front.open(self._plan, self.launch.launcher)  # type: ignore[attr-defined]

    # B9, B10: running

    def _go(self) -> None:
        self._steps.note("bebopd", "from the CPA: started is written down")
        self._steps.phase = "phase2"
        self._steps.step("B9", "io", f"GO; yod serves standard I/O, input: {self.request.input}")
        self._steps.step("B10", "phase2", "SIGUSR1 and SIGUSR2 are handed on, ^C is SIGTERM, then SIGKILL")
        self._start_limits()
        super()._go()
        if self._on_running is not None and self._conduct.stdin_fd >= 0:
            self._feed()

    def _start_limits(self) -> None:
        limit_s, warn = self._conduct.limit_s, self._conduct.warn
        if limit_s is None:
            return
        if warn is not None:
            number, before_s = warn
            self.loop.after(max(0.0, limit_s - before_s), lambda: self.handle(Event.SIGNAL, number, None))
        told = f"the time limit of {limit_s:g} s is reached: ending the job"
        self.loop.after(limit_s, lambda: self.handle(Event.LIMIT, told, 124))

    def _feed(self) -> None:
        from console.launch.stdio.stdin import Feeder

        fd = max(0, self._conduct.stdin_fd)
        self._feeder = Feeder(self.loop, fd, self._send_input, self._input_ended)

    def _send_input(self, data: bytes) -> None:
        self._bytes[STDIN] += len(data)
        self._steps.note("iomore", f"{counted(len(data), 'byte')} of standard input to the ranks")
        self._raw_down(frame(STDIN, data))

    def _input_ended(self, why: str) -> None:
        self._steps.note("io", f"standard input has ended after {counted(self._bytes[STDIN], 'byte')}")
        super()._input_ended(why)

    def _signal(self, number: int, ranks: list[int] | None) -> None:
        who = "every rank" if ranks is None else f"rank {fold_ranks(ranks)}"
        self._steps.step("B10", "phase2", f"{signal_name(number)} to {who}")
        super()._signal(number, ranks)

    # what comes and goes

    def _down(self, message: dict[str, Any]) -> None:
        if self._steps.wants("comm") and message["op"] != "credit":
            self._steps.note("comm", f"to the root: {message['op']}")
        super()._down(message)

    def _on_frame(self, link: Link, kind: int, payload: bytes) -> None:
        if kind in (STDOUT, STDERR):
            self._bytes[kind] += len(payload) - 4
            if self._steps.wants("iomore"):
                rank, stream = int.from_bytes(payload[:4], "big"), "stdout" if kind == STDOUT else "stderr"
                self._steps.note("iomore", f"{counted(len(payload) - 4, 'byte')} of {stream} from rank {rank}")
        elif kind != CONTROL:
            self._steps.note("comm", f"from the root: a frame of kind {kind}, {counted(len(payload), 'byte')}")
        super()._on_frame(link, kind, payload)

    def _on_message(self, op: str, message: dict[str, Any]) -> None:
        self._steps.note("comm", f"from the root: {op}")
        if op == "ready":
            nodes = {entry[2] for entry in message["ranks"]}
            self._steps.note(
                "loadmore", f"held: {counted(len(message['ranks']), 'rank')} on {counted(len(nodes), 'node')}"
            )
        elif op in ("want", "no_room", "progress"):
            told = ", ".join(f"{key} {clean(str(value))}" for key, value in message.items() if key != "op")
            if op != "no_room":
                self._steps.note("loadmore", f"{op}: {told}")
            else:
                self._steps.step("B4", "loadmore", f"{op}: {told}")
        elif op == "exits":
            self._steps.step("B11", "phase2", f"rank {fold_ranks(sorted(e[0] for e in message['ranks']))} ended")
        elif op == "finished":
            out, err = self._bytes[STDOUT], self._bytes[STDERR]
            self._steps.note("io", f"all output is here: {counted(out, 'byte')} of stdout, {err} of stderr")
        super()._on_message(op, message)

    def _tell_event(self, event: Event, facts: tuple[Any, ...]) -> None:
        if event in _BAD_NEWS and (self.launch.state, event) in TRANSITIONS:
            number = "B2" if event is Event.REFUSED else "B7" if self._steps.phase == "phase1" else "B11"
            self._steps.step(number, "failure", f"{event.value}: {clean(str(facts[_BAD_NEWS[event]]))}")

    def _tick(self) -> None:
        if self._steps.wants("progress"):
            launch = self.launch
            ready = sum(1 for pid, _ in launch.ranks.pids if pid)
            self._steps.note(
                "progress",
                f"{launch.state.value}: {ready} of {launch.ranks.size} have begun, {len(launch.ranks.ends)} have ended"
                + (f"; {outstanding}" if (outstanding := self.outstanding()) else ""),
            )
        super()._tick()

    # B11 to B13: the end

    def _free(self, processor_error: bool, reason: str, then: Any = None) -> None:
        self._steps.step("B12", "pbs", f"a line in {clean(self.state_dir)}/usage.log")
        self._steps.note("bebopd", f"to the CPA: finish, status {self.launch.exit_status}")
        self._steps.step("B13", "alloc", "all-done to the group; giving the processors back")
        super()._free(processor_error, reason, then)

    def _print_completion(self) -> None:
        completion = self._conduct.completion_fd
        if completion < 0:
            super()._print_completion()
            return
        text = "".join(f"{clean(line)}\n" for line in completion_lines(self.launch.ranks)).encode("utf-8", "replace")
        try:
            view = memoryview(text)
            while view:
                view = view[os.write(completion, view) :]
        except OSError as error:
            self._say(f"{self._conduct.completion} cannot be written: {error.strerror}", "")
            if not self.launch.exit_status:
                self.launch.verdict = 125
