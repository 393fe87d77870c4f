"""The processes of a launch on this node: begun, fed, drained, and swept until nothing of them is left."""

from __future__ import annotations

import os

from agents.link.lean import signal
from agents.link.loop import READ, Loop, Timer
from agents.linux import processes
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load, Program, node_environment, stdin_goes
from agents.pct.ranks.ranks import Rank, Ranks
from agents.pct.stdio.stdin import Inputs, PipeSink, stdin_file
from agents.pct.stdio.stdout import Relay, Streams

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from agents.pct.debug.crash_queue import Faults
    from agents.pct.launch.options import RunOptions
    from agents.pct.stdio.pty import Terminal
    from agents.wire.control import Message

#: How long a grandchild may hold the pipes of a rank that has ended.
GRACE_S = 0.5
#: What outlives SIGKILL so long (a process of another user, one stuck in the kernel) is reported as unclean.
SWEEP_S = 5.0
_BATCH = 16  # ranks forked before the loop is served again
_WILD = 20  # rounds of killing after which whatever still multiplies is stopped first


class Listener:
    """What the launch child wants to hear from its node's processes."""

    def rank_held(self, rank: Rank) -> None:
        """``rank`` stands before its first instruction."""
        raise NotImplementedError

    def begin_failed(self, error: LoadFailed) -> None:
        """Something here cannot begin."""
        raise NotImplementedError

    def rank_ended(self, rank: Rank, seconds: float) -> None:
        """``rank`` has been reaped."""
        raise NotImplementedError

    def rank_closed(self, number: int) -> None:
        """What rank ``number`` wrote has been sent, and its pipes are closed."""
        raise NotImplementedError

    def noted(self, message: str) -> None:
        """Something that people should know."""
        raise NotImplementedError

    def tell(self, message: Message) -> None:
        """Something that the launcher should know."""
        raise NotImplementedError

    def drained(self) -> None:
        """Every rank has ended, and its output too or its grace."""
        raise NotImplementedError

    def processes_gone(self) -> None:
        """No process is left, or only what cannot be killed (``unclean``)."""
        raise NotImplementedError

    def swept(self) -> None:
        """And everything they wrote has been sent."""
        raise NotImplementedError


class Local:
    """This node's part of a launch. Made when the load is there; ``begin`` forks."""

    def __init__(
        self, loop: Loop, load: Load, program: Program, rank_map: str, relay: Relay, inputs: Inputs, listener: Listener,
        manner: Optional[RunOptions] = None,
    ) -> None:  # fmt: skip
        self._loop, self._load, self._relay, self._inputs = loop, load, relay, inputs
        self._tell = listener
        # Whoever is alone is mixed with nobody, and what is typed into a terminal comes back letter by letter.
        alone = load.size == 1 or (manner is not None and manner.pty is not None)
        self._streams = Streams(loop, relay, self._on_closed, whole_lines=not (alone or load.unbuffered))
        env = node_environment(load, os.fsencode(rank_map))
        self.ranks = Ranks(
            load, program, env, listener.rank_held, listener.begin_failed, self._on_ended, self._on_exec_failed
        )
        loop.watch(self.ranks.error_fd, READ, lambda _events: self.ranks.on_records())
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._to_begin = list(enumerate(load.ranks))
        self._own_stdin: Dict[int, int] = {}
        self._shared_stdin = self._null
        self._graces: Dict[int, Timer] = {}
        self._drained = self._sweeping = self._gone = self._swept = False
        self._rounds = 0
        self._sweep_timer: Optional[Timer] = None
        self.killed = 0
        self.unclean: List[int] = []
        self.manner = manner
        self._faults: Optional[Faults] = None
        self.terminal: Optional[Terminal] = None
        if manner is not None:
            self._take_manner(manner)

    def _take_manner(self, manner: RunOptions) -> None:
        if manner.at_once:
            from agents.pct.debug.crash_queue import Faults

            self._faults = Faults(
                self._loop, self._load.name, manner.at_once, self.ranks.number_of, self._tell.tell, self._tell.noted
            )
        if manner.pty is not None:
            from agents.pct.stdio.pty import Terminal

            self.terminal = Terminal(manner.rows, manner.columns)
        self.ranks.in_manner(manner, self._faults, self._loop.after)

    def begin(self, is_root: bool, shared_stdin: int = -1, group: int = -1) -> None:
        """Fork the ranks under hold, a batch at a time; ``shared_stdin`` is theirs, closed here when all have it.

        ``group``: a descriptor of the control group that they start in.
        """
        if group >= 0:
            self.ranks.in_group(group)
        readers = stdin_goes(self._load, is_root)
        if shared_stdin >= 0:
            self._shared_stdin = shared_stdin
        elif readers is None:
            self._shared_stdin = self._input_pipe()
        else:
            self._own_stdin = {rank: self._input_pipe(rank) for rank in readers}
        if self.manner is not None and self.manner.cpus:
            self._tell.noted(self.manner.bindings())
        self._begin_some()

    def _input_pipe(self, rank: int = -1) -> int:
        if self.terminal is not None and self.manner is not None and rank == self.manner.pty:
            from agents.pct.stdio.pty import TerminalSink

            self._inputs.add(TerminalSink(self._loop, os.dup(self.terminal.master), self._inputs.settle))
            return os.dup(self.terminal.slave)
        reader, writer = os.pipe()
        self._inputs.add(PipeSink(self._loop, writer, self._inputs.settle))
        return reader

    def _begin_some(self) -> None:
        if self._sweeping:
            return
        batch, self._to_begin = self._to_begin[:_BATCH], self._to_begin[_BATCH:]
        ends: List[int] = []
        births = []
        try:
            for local, number in batch:
                births.append((number, local, *self._ends(number, ends)))
            self.ranks.begin(births)
        except LoadFailed as error:
            self._tell.begin_failed(error)
        except OSError as error:
            self._tell.begin_failed(LoadFailed(f"{self._load.name}: {error.strerror}", "node"))  # no descriptors left
        finally:
            for fd in ends:
                os.close(fd)
        if self._to_begin:
            self._loop.after(0, self._begin_some)
        elif self._shared_stdin != self._null:
            os.close(self._shared_stdin)
            self._shared_stdin = self._null

    def _ends(self, number: int, ends: List[int]) -> Tuple[int, int, int]:
        # What becomes 0, 1 and 2 of a rank; what is its alone is added to ``ends``, to be closed here after the fork.
        if self.terminal is not None and self.manner is not None and number == self.manner.pty:
            # What it writes comes out of the terminal alone; its stderr is a pipe that has ended.
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
            stdin = stdin_file(self._load, number)
        if stdin >= 0:
            ends.append(stdin)
        return self._shared_stdin if stdin < 0 else stdin, out_writer, err_writer

    def release(self) -> None:
        """GO."""
        if self._faults is not None and any(rank.at_gate for rank in self.ranks.living):
            self._tell.noted("no stacks of ranks here: they get privilege at their exec, or may not be traced")
        self.ranks.release()
        self._check_drained()

    def reap(self) -> None:
        """A child has changed: take note of it."""
        _, left = self.ranks.reap()
        if self._sweeping and not left:
            self._on_gone()

    def _on_ended(self, rank: Rank, seconds: float) -> None:
        self._tell.rank_ended(rank, seconds)
        if rank.number in self._streams.open_ranks:
            self._graces[rank.number] = self._loop.after(GRACE_S, lambda: self._on_grace_over(rank.number))
        self._check_drained()

    def _on_exec_failed(self, rank: Rank, message: str) -> None:
        self._tell.noted(message)

    def _on_grace_over(self, number: int) -> None:
        self._graces.pop(number, None)
        if self.ranks.living or self._drained:
            self._streams.give_up(number)
        self._check_drained()

    def _on_closed(self, number: int) -> None:
        grace = self._graces.pop(number, None)
        if grace is not None:
            grace.cancel()
        self._tell.rank_closed(number)
        self._check_drained()
        self._check_swept()

    def _check_drained(self) -> None:
        if self._drained or self._to_begin or self.ranks.living:
            return
        if not self._graces:
            self._drained = True
            self._tell.drained()

    def sweep(self) -> None:
        """Kill everything of the launch on this node until nothing is left."""
        if not self._sweeping:
            self._sweeping = True
            self._to_begin = []
            if self._faults is not None:
                self._faults.cancel()
            self._sweep_round()

    def _sweep_round(self) -> None:
        self._sweep_timer = None
        _, left = self.ranks.reap()
        if not left:
            self._on_gone()
            return
        self._rounds += 1
        victims = processes.descendants(os.getpid())
        if self._rounds > _WILD:
            for pid in victims:
                self._stop(pid)
            victims = processes.descendants(os.getpid())
        self.killed = max(self.killed, len(victims))
        refused = processes.kill_all(victims)
        delay = min(0.05, 0.002 * self._rounds)
        if self._rounds * 0.05 > SWEEP_S + 1 or (refused and self._rounds > _WILD and set(refused) == set(victims)):
            self.unclean = [pid for pid in victims if processes.alive(pid)]
            self._on_gone()
            return
        self._sweep_timer = self._loop.after(delay, self._sweep_round)

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
        self._tell.processes_gone()
        for number in self._streams.open_ranks:
            self._streams.give_up(number)
        self._check_swept()

    def _check_swept(self) -> None:
        if self._gone and not self._swept and not self._streams.open_ranks:
            self._swept = True
            self._relay.barrier(self._tell.swept)

    def close(self) -> None:
        """Let go of every descriptor, when nothing is left here."""
        self._streams.close()
        self.ranks.close()
        os.close(self._null)

    def pids(self) -> List[int]:
        """Every process of a rank that has not ended."""
        return [pid for rank in self.ranks.living for pid in (rank.pid, *processes.descendants(rank.pid))]

    def pairs(self) -> List[List[int]]:
        """Rank and pid of every rank that has not been reaped."""
        return [[rank.number, rank.pid] for rank in self.ranks.living]
