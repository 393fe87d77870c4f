"""A node's connection to the mesh on another machine: its beats, and the actions of its lease (decided by lease.py)."""

from __future__ import annotations

from agents.linux import processes
from agents.pct.heartbeat.datagrams import ContactConfig, DatagramBeats
from agents.pct.heartbeat.lease import Action
from agents.pct.node.launches import Kill

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Optional

    from agents.link.journal import Journal
    from agents.link.link import Caller
    from agents.link.loop import Loop
    from agents.pct.heartbeat.clock import MeshTime
    from agents.pct.node.launches import Hosted
    from agents.wire.control import Message
    from agents.wire.errors import AgentError

#: A living launcher's machine is heard every few seconds, even if the launch sends nothing (agents/link/tls.py).
_HEARD_S = 5.0
_ANSWER_S = 2.0  # for a launch child to report when it heard its launcher
_ROUND_S = 0.05  # between two checks whether the node is clear
_ROUNDS = 100
_AGAIN_S = 1.0  # after a process could not be killed


class Contact:
    """Sends beats for the PCT, and ends launches if the lease requires it. ``renew()`` gives the node another boot
    id."""

    def __init__(
        self,
        loop: Loop,
        config: ContactConfig,
        hosted: Hosted,
        log: Journal,
        who: Callable[[], Message],
        launches: Callable[[], int],
        mesh_time: MeshTime,
        renew: Callable[[], None],
    ) -> None:
        self._loop, self._config, self._hosted, self._log, self._renew = loop, config, hosted, log, renew
        self._asking = self._clearing = self._unclean = False
        self._left = 0
        self._beats = DatagramBeats(loop, config, who, launches, self._act, log, mesh_time)

    @property
    def accepts_launches(self) -> bool:
        """True if launches may start."""
        return self._beats.accepts_launches

    def register_again(self) -> None:
        """Register again."""
        self._beats.register_again()

    def clear(self) -> None:
        """Clear what an earlier boot left here before the node is used."""
        self._beats.begin_anew()

    def close(self) -> None:
        """Stop."""
        self._beats.close()

    def _act(self, action: Action) -> None:
        if action is Action.END_ORPHANS:
            self._end_orphans()
        elif action is Action.CLEAR:
            self._clear()
        elif action is Action.BEGIN_ANEW:
            self._renew()
            self._beats.register_again()

    # Launches without a launcher

    def _end_orphans(self) -> None:
        if self._asking:
            return
        self._asking = True
        self._loop.after(_ANSWER_S, self._asked)
        for launcher in self._hosted.launchers():
            Orphan(self._loop, self._hosted, launcher, max(_HEARD_S, self._config.lease_s), self._log)

    def _asked(self) -> None:
        self._asking = False

    # A node that the mesh has given up

    def _clear(self) -> None:
        if self._clearing:
            return
        self._clearing = True
        self._log.write("clearing", launches=len(self._hosted))
        self._unclean = False
        self._left = 1
        for launcher in self._hosted.launchers():
            self._left += 1
            Kill(self._loop, self._hosted, launcher, self._on_killed, {})
        self._on_killed({"clean": True})

    def _on_killed(self, reply: Message) -> None:
        self._unclean = self._unclean or not reply.get("clean")
        self._left -= 1
        if not self._left:
            processes.kill_all(self._hosted.pids)  # including those that have not reported their launch yet
            self._wait_until_clear(0)

    def _wait_until_clear(self, round_: int) -> None:
        self._hosted.reap()
        self._hosted.clear_dead()
        if (len(self._hosted) or self._hosted.launchers()) and round_ < _ROUNDS:
            self._loop.after(_ROUND_S, lambda: self._wait_until_clear(round_ + 1))
            return
        clean = not (self._unclean or len(self._hosted) or self._hosted.launchers())
        self._hosted.sweep_images_then(lambda: self._swept(clean))

    def _swept(self, clean: bool) -> None:
        self._clearing = False
        self._log.write("cleared" if clean else "cannot clear")
        self._loop.after(0 if clean else _AGAIN_S, lambda: self._beats.cleared(clean))


class Orphan:
    """Asks a launch's launch child when it last heard its launcher, and kills the launch if that is too long ago."""

    def __init__(self, loop: Loop, hosted: Hosted, launcher: int, heard_s: float, log: Journal) -> None:
        self._loop, self._hosted, self._launcher, self._heard_s, self._log = loop, hosted, launcher, heard_s, log
        self._over = False
        self._caller = hosted.connect(launcher, self._on_end)
        if self._caller is not None:
            self._caller.call({"op": "status"}, self._on_status)
            loop.after(_ANSWER_S, lambda: self._end(f"its launch child has not answered within {_ANSWER_S:g} s"))

    def _on_end(self, _caller: Caller, _reason: str) -> None:
        self._over = True  # it has ended by itself, or the PCT clears it

    def _on_status(self, reply: Optional[Message], _error: Optional[AgentError]) -> None:
        if reply is None or self._over:
            return
        silent_s = float(reply.get("silent_s", 0.0))
        if silent_s < self._heard_s:
            self._close()
        else:
            self._end(f"neither an RCA nor its launcher was heard of for {silent_s:.0f} s")

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._close()
        self._log.write("orphan", launcher=self._launcher, reason=reason)
        Kill(self._loop, self._hosted, self._launcher, lambda _reply: None, {})

    def _close(self) -> None:
        self._over = True
        if self._caller is not None:
            self._caller.close()
