"""The processes of a launch on this node: started, supplied with input, drained of output, and killed until none is
left."""

from __future__ import annotations

import os

from agents.link.lean import signal
from agents.link.loop import READ, Timer
from agents.linux import processes
from agents.pct.errors import LoadFailed, advice
from agents.pct.launch.liveness import Readiness
from agents.pct.launch.load import node_environment, stdin_goes
from agents.pct.ranks.process_tracking import FIRST_LOOK_S, LOOK_S, now
from agents.pct.ranks.ranks import Rank, Ranks
from agents.pct.stdio.stdin import Inputs, PipeSink, stdin_file
from agents.pct.stdio.stdout import Relay, Streams

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Protocol, Tuple

    from agents.pct.launch.context import LaunchContext
    from agents.pct.launch.line_and_gpu_variables import OwnVariables
    from agents.pct.launch.options import RunOptions
    from agents.pct.ranks.process_tracking import Record
    from agents.pct.ranks.ranks import FaultWatch, MpiRanks
    from agents.pct.ranks.stopped import StoppedRanks
    from agents.pct.stdio.pty import Terminal

    class LaunchEvents(Protocol):
        """The events of this node's ranks for a launch, besides failures."""

        def rank_held(self, rank: Rank) -> None:
            """``rank`` is stopped before its first instruction."""

        def rank_ended(self, rank: Rank, seconds: float) -> None:
            """``rank`` has been reaped."""

        def rank_closed(self, number: int) -> None:
            """The output of rank ``number`` has been sent, and its pipes are closed."""

        def noted(self, message: str) -> None:
            """A message for people."""

        def stopped(self, message: str, stopped: Dict[str, Any]) -> None:
            """Other ranks than before are stopped."""

        def unrecorded(self, error: OSError) -> None:
            """The processes of the ranks cannot be recorded."""

        def drained(self) -> None:
            """Every rank has exited, and its output has ended or used up its grace period."""

        def processes_gone(self) -> None:
            """No process is left, or only some that cannot be killed (``unclean``)."""

        def swept(self) -> None:
            """Additionally, all output has been sent."""


#: For how long a grandchild may hold the pipes of a rank that has exited.
GRACE_S = 0.5
#: Processes that survive SIGKILL for this long (of another user, or stuck in the kernel) are reported as unclean.
SWEEP_S = 5.0
_BATCH = 16  # ranks forked before the loop serves other events
_WILD = 20  # after this many rounds of killing, processes that still multiply are stopped first


class LocalRanks:
    """This node's part of a launch. Created when the load is there; ``begin`` forks."""

    def __init__(
        self, launch: LaunchContext, rank_map: str, relay: Relay, inputs: Inputs, events: LaunchEvents,
        options: Optional[RunOptions] = None, own: Optional[OwnVariables] = None, mpi: Optional[MpiRanks] = None,
    ) -> None:  # fmt: skip
        load, loop = launch.load, launch.loop
        self._launch, self._loop, self._load, self._relay, self._inputs = launch, loop, load, relay, inputs
        self._events = events
        # The output of a single rank needs no line buffering, and terminal input is echoed character by character.
        alone = load.size == 1 or (options is not None and options.pty is not None)
        self._streams = Streams(loop, relay, self._on_closed, whole_lines=not (alone or load.unbuffered))
        self.ranks = Ranks(load, launch.program, node_environment(load, os.fsencode(rank_map)), self, own, mpi)
        loop.watch(self.ranks.error_fd, READ, lambda _events: self.ranks.on_records())
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._to_begin = list(enumerate(load.ranks))
        self._unheld = len(load.ranks)
        self._readiness: Optional[Readiness] = None
        self._own_stdin: Dict[int, int] = {}
        self._shared_stdin = self._null
        self._graces: Dict[int, Timer] = {}
        self._drained = self._sweeping = self._gone = self._swept = False
        self._rounds = 0
        self._sweep_timer: Optional[Timer] = None
        self.killed = 0
        self.unclean: List[int] = []
        self.options = options
        self._faults: Optional[FaultWatch] = None
        self._stopped: Optional[StoppedRanks] = None
        self.terminal: Optional[Terminal] = None
        if options is not None and options.pty is not None:
            from agents.pct.stdio.pty import Terminal

            self.terminal = Terminal(options.rows, options.columns)
        self._record: Optional[Record] = None
        self._first_fork = 0

    def watch_faults(self, faults: FaultWatch) -> None:
        """``faults`` handles ranks that die of a signal; call this before ``begin``."""
        self._faults = faults

    def expect(self) -> None:
        """Everything that the ranks need is here: from now on, a node whose ranks do not reach their exec is at
        fault."""
        patience_s = self.options.patience_s if self.options is not None else 0.0
        # a program that starts slowly has the deadline of its load
        waiting = lambda: bool(self._unheld) and not (self._sweeping or self.ranks.slow_to_begin)  # noqa: E731
        self._readiness = Readiness(self._loop, self._load.name, waiting, self._launch.fail, patience_s)

    def record(self, record: Optional[Record]) -> None:
        """Set the record for the ranks' processes; call this before ``begin``."""
        self._record, self._first_fork = record, now()

    def begin(self, is_root: bool, shared_stdin: int = -1) -> None:
        """Fork the ranks under hold, a batch at a time; ``shared_stdin`` is closed here when all have it."""
        if self.options is not None:
            self.ranks.with_options(self.options, self._faults, self._loop.after)
            if self.options.parent:
                from agents.pct.ranks.managed import ManagedRanks

                self.ranks.managed_by(ManagedRanks(
                    self._loop, self.options.parent, self._load, self._launch.program, self.ranks,
                    self.options.prepare_from_outside, self._launch.fail, self._events.noted,
                ))  # fmt: skip
        if self._record is not None and self._record.group_fd >= 0:
            self.ranks.in_group(self._record.group_fd)
        try:
            self._open_inputs(is_root, shared_stdin)
        except OSError as error:
            self._cannot_start(error)
            return
        if self.options is not None and self.options.cpus:
            self._events.noted(self.options.bindings())
        self._begin_some()

    def _open_inputs(self, is_root: bool, shared_stdin: int) -> None:
        readers = stdin_goes(self._load, is_root)
        if shared_stdin >= 0:
            self._shared_stdin = shared_stdin
        elif readers is None:
            self._shared_stdin = self._input_pipe()
        else:
            for rank in readers:
                self._own_stdin[rank] = self._input_pipe(rank)

    def _cannot_start(self, error: OSError) -> None:
        why = f"{self._load.name}: cannot start its ranks: {error.strerror}"
        self._launch.fail(LoadFailed(why, "launch", hint=advice(error.errno or 0)))

    def _input_pipe(self, rank: int = -1) -> int:
        if self.terminal is not None and self.options is not None and rank == self.options.pty:
            from agents.pct.stdio.pty import END

            self._inputs.add(PipeSink(self._loop, os.dup(self.terminal.master), self._inputs.settle, END))
            return os.dup(self.terminal.slave)
        reader, writer = os.pipe()
        self._inputs.add(PipeSink(self._loop, writer, self._inputs.settle))
        return reader

    def _begin_some(self) -> None:
        if self._sweeping:
            return
        batch, self._to_begin = self._to_begin[:_BATCH], self._to_begin[_BATCH:]
        ends: List[int] = []
        plans = []
        try:
            for local, number in batch:
                plans.append((number, local, *self._ends(number, ends)))
            self.ranks.begin(plans)
        except LoadFailed as error:
            self._launch.fail(error)
        except OSError as error:
            self._cannot_start(error)
        finally:
            for fd in ends:
                os.close(fd)
        if self._to_begin:
            self._loop.after(0, self._begin_some)
        elif self._shared_stdin != self._null:
            os.close(self._shared_stdin)
            self._shared_stdin = self._null

    def _ends(self, number: int, ends: List[int]) -> Tuple[int, int, int]:
        # The descriptors 0, 1 and 2 of a rank; those of this rank alone are added to ``ends``, to be closed here after
        # the fork.
        if self.terminal is not None and self.options is not None and number == self.options.pty:
            # Everything it writes comes from the terminal; its stderr is an empty pipe.
            out, out_writer = os.dup(self.terminal.master), self.terminal.slave
            err, err_writer = os.pipe()
            os.close(err_writer)
            err_writer = out_writer
            ends.append(out_writer)
        else:
            out, out_writer = os.pipe()
            ends.append(out_writer)
            err, err_writer = os.pipe()
            ends.append(err_writer)
        self._streams.add(number, out, err)
        stdin = self._own_stdin.pop(number, -1)
        if "stdin" in self._load.nodes[0]:
            at = self._load.ranks.index(number)
            stdin = stdin_file(self._load.name, self._load.nodes[0]["stdin"], at, number)
        if stdin >= 0:
            ends.append(stdin)
        return self._shared_stdin if stdin < 0 else stdin, out_writer, err_writer

    def release(self) -> None:
        """GO."""
        if self._faults is not None and any(rank.at_gate for rank in self.ranks.living):
            self._events.noted("no stacks of ranks here: they get privilege at their exec, or may not be traced")
        if self._record is not None and not self.ranks.grouped:
            self._take_down(self._record)
        self.ranks.release()
        if self.ranks.elsewhere:
            self._look_for_stops()
        self._check_drained()

    def _look_for_stops(self) -> None:
        if not (self._drained or self._sweeping):
            stopped = self._stopped_ranks()
            stopped.look(self.ranks.living)
            self._loop.after(stopped.LOOK_S, self._look_for_stops)

    def _take_down(self, record: Record) -> None:
        """Record the sessions of the ranks, because there is no control group."""
        try:
            record.leave_group()
            record.held(self.ranks.sessions, self._first_fork)
        except OSError as error:
            self._events.unrecorded(error)
            return
        self._loop.after(FIRST_LOOK_S, lambda: self._look(record, FIRST_LOOK_S))

    def _look(self, record: Record, after_s: float) -> None:
        if self._drained or self._sweeping:
            return
        try:
            record.look(self.ranks.tracked())
        except OSError as error:
            self._events.unrecorded(error)
        next_s = min(2 * after_s, LOOK_S)  # programs mostly start their children in the first moments
        self._loop.after(next_s, lambda: self._look(record, next_s))

    def reap(self) -> None:
        """A child has changed: handle it."""
        _, left = self.ranks.reap()
        if self._sweeping and not left and not self.ranks.elsewhere:
            self._on_gone()

    # Events of ranks

    def held(self, rank: Rank) -> None:
        """``rank`` is stopped before its first instruction."""
        self._unheld -= 1
        if self._readiness is not None:
            self._readiness.moved()
        self._events.rank_held(rank)

    def failed(self, error: LoadFailed) -> None:
        """A rank cannot start."""
        self._launch.fail(error)

    def stopped(self, rank: Rank, *, stopped: bool) -> None:
        """``rank`` was stopped after GO, or continues."""
        self._stopped_ranks().changed(rank, stopped=stopped)

    def _stopped_ranks(self) -> StoppedRanks:
        if self._stopped is None:
            from agents.pct.ranks.stopped import StoppedRanks

            self._stopped = StoppedRanks(self._loop, self._events.stopped)
        return self._stopped

    def exec_failed(self, _rank: Rank, message: str) -> None:
        """The exec of a gated rank failed after GO."""
        self._events.noted(message)

    def ended(self, rank: Rank, seconds: float) -> None:
        """``rank`` has been reaped."""
        if self._stopped is not None:
            self._stopped.changed(rank, stopped=False)
        self._events.rank_ended(rank, seconds)
        if rank.number in self._streams.open_ranks:
            self._graces[rank.number] = self._loop.after(GRACE_S, lambda: self._on_grace_over(rank.number))
        self._check_drained()

    def _on_grace_over(self, number: int) -> None:
        self._graces.pop(number, None)
        if self.ranks.living or self._drained:
            self._streams.give_up(number)
        self._check_drained()

    def _on_closed(self, number: int) -> None:
        grace = self._graces.pop(number, None)
        if grace is not None:
            grace.cancel()
        self._events.rank_closed(number)
        self._check_drained()
        self._check_swept()

    def _check_drained(self) -> None:
        if self._drained or self._to_begin or self.ranks.living:
            return
        if not self._graces:
            self._drained = True
            self._events.drained()

    def sweep(self) -> None:
        """Kill all processes of the launch on this node until none is left."""
        if not self._sweeping:
            self._sweeping = True
            self._to_begin = []
            self.ranks.give_up()
            if self._faults is not None:
                self._faults.cancel()
            self._sweep_round()

    def _sweep_round(self) -> None:
        self._sweep_timer = None
        _, left = self.ranks.reap()
        victims = self._victims()
        if not left and not (self.ranks.elsewhere and victims):
            self._on_gone()
            return
        self._rounds += 1
        if self._rounds > _WILD:
            for pid in victims:
                self._stop(pid)
            victims = self._victims()
        self.killed = max(self.killed, len(victims))
        refused = processes.kill_all(victims)
        delay = min(0.05, 0.002 * self._rounds)
        if self._rounds * 0.05 > SWEEP_S + 1 or (refused and self._rounds > _WILD and set(refused) == set(victims)):
            self.unclean = [pid for pid in victims if processes.alive(pid)]
            self._on_gone()
            return
        self._sweep_timer = self._loop.after(delay, self._sweep_round)

    def _victims(self) -> List[int]:
        if not self.ranks.elsewhere or self._record is None:
            return self.ranks.processes()
        table = processes.families()  # orphans of theirs do not become our children
        found = self.ranks.processes(table)
        return found + [pid for pid in self._record.living(table) if pid not in found and processes.alive(pid)]

    def _stop(self, pid: int) -> None:
        try:
            processes.send_signal(pid, signal.SIGSTOP)
        except PermissionError:
            pass

    def _on_gone(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for timer in self._graces.values():
            timer.cancel()
        self._graces.clear()
        self._events.processes_gone()
        for number in self._streams.open_ranks:
            self._streams.give_up(number)
        self._check_swept()

    def _check_swept(self) -> None:
        if self._gone and not self._swept and not self._streams.open_ranks:
            self._swept = True
            self._relay.barrier(self._events.swept)

    def close(self) -> None:
        """Close all descriptors, when no process is left."""
        self._streams.close()
        self.ranks.close()
        os.close(self._null)

    def pids(self) -> List[int]:
        """All processes of ranks that have not exited."""
        return [pid for rank in self.ranks.living for pid in (rank.pid, *processes.descendants(rank.pid))]

    def pairs(self) -> List[List[int]]:
        """Rank and pid of all unreaped ranks."""
        return [[rank.number, rank.pid] for rank in self.ranks.living]
