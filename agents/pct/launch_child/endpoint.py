"""The files of a launch on a node: its socket, rank map and log, by which PCTs, clean-ups and ranks find it."""

from __future__ import annotations

import os

from agents.link.journal import Journal
from agents.link.server import Server
from agents.link.sockets import LOOK_S
from agents.pct.errors import OF_ROOM, OF_THE_PLACE, LoadFailed, advice, whose_run
from agents.pct.launch.load import Load
from agents.pct.launch.paths import clear_files, launch_socket, rank_map, tombstone
from agents.pct.ranks.process_tracking import Record
from agents.wire.errors import AgentError
from agents.wire.messages import PCT

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence

    from agents.link.loop import Loop
    from agents.link.server import Session
    from agents.linux.controllers import MemoryGroup
    from agents.wire.control import Message


class NodeContext:
    """The node, as its PCT knows it."""

    __slots__ = ("_record", "_tracked", "gpus", "log", "memory", "mesh", "node", "run", "system")

    def __init__(
        self, mesh: str, node: str, run: str, log: Journal, memory: MemoryGroup, gpus: Sequence[int] = (),
        system: Any = None,
    ) -> None:  # fmt: skip
        self.memory = memory
        self.mesh, self.node, self.run, self.log, self.gpus = mesh, node, run, log, gpus
        self.system = (
            # how root runs launches of other users (agents/pct/multiuser/system_mode.py); None: all launches are ours
            system
        )
        self._record: Optional[Record] = None
        self._tracked = ("", "", "")

    def track(self, state: str, life: str, group_parent: str) -> None:
        """Set where launch children record their processes (agents/pct/ranks/process_tracking.py)."""
        self._tracked = state, life, group_parent

    def record(self, launcher: int, as_root: Any) -> Optional[Record]:
        """Begin this launch child's record for ``launcher``; None if it cannot be written."""
        state, life, group_parent = self._tracked
        if not state:
            return None
        try:
            if self._record is None:
                self._record = Record(state, self.node, life, group_parent, as_root or (lambda work: work()))
            self._record.begin(launcher)
        except OSError as error:  # continue: this matters only if three processes are killed together
            self.log.write("no record", launcher=launcher, error=error.strerror, path=error.filename)
            return None
        return self._record


class LaunchEndpoint:
    """Held by one launch. Raises LoadFailed if another process has it."""

    def __init__(
        self, loop: Loop, host: NodeContext, load: Load, serve: Callable[[Session, str, Message], None]
    ) -> None:
        if load.name != host.node:
            raise LoadFailed(f"a load for {load.name} came to {host.node}", "launch")
        self._run, self._node, self._launcher = host.run, load.name, load.launcher
        self.map_path = rank_map(host.run, load.name, load.launcher)
        self._map = -1  # the open rank map, readable even if its file was removed
        self.as_root: Any = None  # runs functions in RUN that need root
        try:
            self._server = Server(loop, launch_socket(host.run, load.name, load.launcher), "child", PCT, serve)
        except AgentError:
            raise LoadFailed(f"{load.name} has launcher {load.launcher} already", "launch") from None
        except OSError as error:
            why = f"{load.name}: no socket in {host.run}: {error.strerror}"
            number = error.errno or 0
            raise LoadFailed(
                why, whose_run(number), hint=advice(number), lasting=number in OF_THE_PLACE, of_room=number in OF_ROOM
            ) from None
        self._loop = loop
        self._next_look = loop.after(LOOK_S, self._look)

    def _look(self) -> None:
        # RUN may have been removed: PCTs find a launch child only by its socket.
        self._next_look = self._loop.after(LOOK_S, self._look)
        try:
            if self.as_root is None:
                self._make_again()
            else:
                self.as_root(self._make_again)
        except (OSError, AgentError):
            pass  # the directory does not exist yet

    def _make_again(self) -> None:
        self._server.listen_again(make=False)
        if self._map >= 0 and self.as_root is None and not os.path.exists(self.map_path):
            self._write(os.pread(self._map, os.fstat(self._map).st_size, 0))

    def check_alive(self) -> None:
        """Raise LoadFailed if the launch was killed before its load came."""
        # Check after creating the socket, because a kill writes its tombstone first and then looks for sockets.
        if os.path.exists(tombstone(self._run, self._node, self._launcher)):
            raise LoadFailed(f"{self._node}: launcher {self._launcher} has been killed", "launch")

    def write_map(self, text: str) -> None:
        """Write the rank map, before the first instruction of any rank. Raises OSError."""
        self._write(text.encode("utf-8"))

    def _write(self, text: bytes) -> None:
        fd = os.open(self.map_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self._map >= 0:
            os.close(self._map)
        self._map = fd
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]

    def clear(self) -> None:
        """Remove the launch's files in RUN, for good."""
        self._next_look.cancel()  # it may be due already, and would make them again
        if self.as_root is None:
            clear_files(self._run, self._node, self._launcher)
        else:
            self.as_root(lambda: clear_files(self._run, self._node, self._launcher))

    def close(self) -> None:
        """Close the socket and the rank map."""
        self._server.close()
        if self._map >= 0:
            os.close(self._map)
            self._map = -1
