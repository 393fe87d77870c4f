"""One launch of workers for a job: requested, then running, then over."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Any, Collection, Dict, List, Set

    from agents.wire.launch_events import RanksStopped

#: The most bytes of what yod said that are looked at.
_SAID = 4096


class StoppedTask:
    """The process of a task that is stopped (SIGSTOP) on ``node``; ``number`` is -1 for a call, ``since`` is UTC."""

    __slots__ = ("node", "number", "pid", "since")

    def __init__(self, node: str, number: int, pid: int, since: float) -> None:
        self.node, self.number, self.pid, self.since = node, number, pid, since


class Grant:
    """A launch: requested, then running, then over."""

    __slots__ = (
        "_said", "allocated", "excludes", "failed", "giving", "grows", "launcher", "never", "nodes", "number",
        "process", "silent", "size", "started", "stopped", "stopped_ranks", "stopped_tasks", "stopping", "vanished",
        "waits", "words",
    )  # fmt: skip

    def __init__(
        self, number: int, size: int, process: subprocess.Popen[bytes], said: IO[bytes], *, waits: bool,
        grows: bool, excludes: Collection[str],
    ) -> None:  # fmt: skip
        self.number, self.size, self.process, self.waits = number, size, process, waits
        self.grows = grows  # the job had others when it was requested: other requests come first
        self.giving = False  # it is given back, so its workers exit when they have no task
        self.excludes = excludes  # the nodes on which no launch can start that were left out
        self._said = said  # what yod printed that were not events
        self.allocated = self.started = self.stopping = self.never = False
        self.launcher = self.stopped = 0  # how many of its workers were told to exit
        self.nodes: List[Dict[str, Any]] = []
        self.words: List[str] = []  # why it was not granted, or failed; with the lines that were no events at the end
        self.vanished: List[str] = []  # nodes that it has lost
        self.failed: List[str] = []  # nodes that have stated a lasting reason why it cannot start there
        self.silent: Set[str] = set()  # nodes for which it waits
        self.stopped_ranks: Dict[str, RanksStopped] = {}  # by node
        self.stopped_tasks: Dict[int, StoppedTask] = {}  # by the worker's rank

    @property
    def processors(self) -> int:
        """How many it has: a rank may have several."""
        return sum(len(node["processors"]) for node in self.nodes)

    def read_words(self) -> None:
        """Add the last lines that yod printed for people, when it has exited."""
        with self._said as said:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID))
            lines = said.read().decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in lines if line.strip()]
        self.words = [*self.words, *((line[5:] if line.startswith("yod: ") else line)[:500] for line in told)][-5:]
