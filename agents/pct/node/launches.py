"""The launches a PCT hosts: its own launch children and the ones it adopted, and the strays of dead ones."""

from __future__ import annotations

import os

from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import READ, Loop
from agents.link.sockets import connect_now, peer
from agents.linux import processes
from agents.pct.launch.paths import clear_files, launch_socket, launchers_here
from agents.pct.launch_child.payload import WARM
from agents.pct.ranks.process_tracking import ProcessTracking
from agents.wire.control import Message
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Callable, Dict, List, Optional, Set

    from agents.link.server import Session
    from agents.pct.launch.deaths import Deaths


# What the PCT does for its launches' images: it sweeps after dead ones, and keeps the modules for living ones.


def sweep(ram_disk: str = "/dev/shm") -> int:
    """Remove from the RAM disk what dead launch children of this user left there; without them, one look. 0: done."""
    base = f"{ram_disk}/redmesh-{os.geteuid()}"
    try:
        names = os.listdir(base)
        if any(name.startswith("launch-") for name in names) or ("images" in names and os.listdir(f"{base}/images")):
            from agents.pct.images.store import sweep as sweep_images

            sweep_images(ram_disk)
    except OSError:
        pass  # there is none, which is the rule
    return 0


def keep_ready() -> None:
    """Load what a launch child with cargo needs: the next ones are forked with it, instead of 15 ms of loading each."""
    import hashlib  # noqa: F401

    import agents.pct.launch_child.payload_transfer  # noqa: F401


_STRAY_S = 0.02  # between two looks at strays that do not want to go
_STUBBORN = 250  # looks
_LOOKS = 15  # whether a launch child can be reaped that somebody asks for
_SWEEP_ROUNDS = 250  # and at a helper that sweeps


class Hosted:
    """Knows launch children by their pids; which launcher each serves, their sockets in RUN tell."""

    def __init__(self, loop: Loop, mesh: str, node: str, run: str, log: Journal, tracking: ProcessTracking) -> None:
        self._loop, self._mesh, self._node, self._run, self._log = loop, mesh, node, run, log
        self._tracking = tracking
        self._own: Set[int] = set()
        self._helpers: Set[int] = set()
        self._image_proxies: Set[int] = set()  # of them those that carry images
        self._adopted: Dict[int, int] = {}  # pid -> launcher
        self._sweeping = False
        self._deaths: Optional[Deaths] = None  # loaded when the first launch child dies
        self.on_cleared: Callable[[int], None] = lambda _launcher: None  # behind a launch child that was killed
        #: Begins to remove what dead launch children left in the RAM disk; the helper that does it, or 0: it is done.
        self.sweep_images: Callable[[], int] = sweep

    def __len__(self) -> int:
        return len(self._own) + len(self._adopted)

    @property
    def deaths(self) -> Deaths:
        """What became of launch children that died."""
        if self._deaths is None:
            from agents.pct.launch.deaths import Deaths

            self._deaths = Deaths(self._run, self._node)
        return self._deaths

    def tell_death(self, session: Session, message: Message, looks: int = _LOOKS) -> None:
        """Answer who lost the link to a launch child; it ends a moment before the process can be reaped."""
        self.reap()
        death = self.deaths.told(message["launcher"])
        if death is None and looks:
            self._loop.after(_STRAY_S, lambda: self.tell_death(session, message, looks - 1))
        else:
            session.reply(message, death or {})

    @property
    def pids(self) -> List[int]:
        """Every living launch child."""
        return [*self._own, *self._adopted]

    def add(self, pid: int) -> None:
        """A launch child that has just been forked."""
        self._own.add(pid)

    @property
    def helpers(self) -> int:
        """How many of them there are."""
        return len(self._helpers)

    def add_helper(self, pid: int) -> int:
        """A child that does something beside the launches; ``pid``."""
        self._helpers.add(pid)
        return pid

    def add_image_proxy(self, pid: int) -> None:
        """A child that serves images to other machines (agents/pct/remote/image_proxy.py)."""
        self._image_proxies.add(self.add_helper(pid))

    def end_image_proxies(self) -> None:
        """Nobody fetches any more: they end now, also one that is stopped."""
        processes.kill_all(self._image_proxies)

    def connect(self, launcher: int, on_end: Callable[[Caller, str], None]) -> Optional[Caller]:
        """A line to the launch child of ``launcher``; None when there is none."""
        sock = self._reach(launcher)
        return None if sock is None else Caller(self._loop, sock, "pct", on_end)

    def _reach(self, launcher: int) -> Optional[socket.socket]:
        try:
            sock = connect_now(launch_socket(self._run, self._node, launcher))
        except (OSError, AgentError):
            return None
        if processes.alive(peer(sock).pid):
            return sock
        sock.close()  # dead; a rank on its way to its exec holds the socket for a moment more
        return None

    def _is_dead(self, launcher: int) -> bool:
        """Whether the launch child of ``launcher`` is positively gone; nothing is cleared because it was not found."""
        try:
            sock = connect_now(launch_socket(self._run, self._node, launcher))
        except ConnectionRefusedError:
            return True  # a socket of which no process listens any more
        except FileNotFoundError:
            # RUN may have been removed below it: its record, and else the mark of its processes, tell
            tracked = self._tracking.launchers()
            return not (tracked[launcher] if launcher in tracked else self._has_launch_child(launcher))
        except (OSError, AgentError):
            return False
        pid = peer(sock).pid
        sock.close()
        return not processes.alive(pid)  # a rank on its way to its exec holds the socket for a moment more

    def _has_launch_child(self, launcher: int) -> bool:
        # by its processes, which carry the launch's mark: one of them descends from a launch child that is alive
        for pid in processes.marked(f"{self._mesh}/{self._node}/{launcher}"):
            while pid > 1:
                if processes.is_agent(pid, b"redmesh-launch") and processes.alive(pid):
                    return True
                pid = processes.parent(pid)
        return False

    def launchers(self) -> List[int]:
        """Launchers with something of theirs in RUN, or with a record of their processes."""
        return sorted({*launchers_here(self._run, self._node), *self._tracking.launchers()})

    def adopt(self) -> None:
        """Take over what a former PCT of this node left: living launch children, and the strays of dead ones."""
        for launcher in self.launchers():
            if not self._adopt_one(launcher) and self._is_dead(launcher):
                self.clear(launcher)
        self._tracking.end_dead()  # of launch children that had no launch when they were killed

    def adopt_late(self) -> None:
        """Take over launch children that made their sockets again after RUN was removed."""
        for launcher in self.launchers():
            self._adopt_one(launcher)

    def _adopt_one(self, launcher: int) -> bool:
        sock = self._reach(launcher)
        # RUN may have been removed, and the launch child's socket with it: its record names it too
        pid = peer(sock).pid if sock is not None else self._tracking.launchers().get(launcher, 0)
        if sock is not None:
            sock.close()
        if not pid:
            return False
        if pid not in self._own and pid not in self._adopted:
            self._adopted[pid] = launcher
            self._log.write("adopted", launcher=launcher, pid=pid)
            self._watch(pid)
        return True

    def _watch(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except (OSError, AttributeError):
            self._poll(pid)
            return

        def on_end(_events: int) -> None:
            self._loop.unwatch(handle)
            os.close(handle)
            self._on_adopted_end(pid)

        self._loop.watch(handle, READ, on_end)

    def _poll(self, pid: int) -> None:
        if processes.alive(pid):
            self._loop.after(1.0, lambda: self._poll(pid))
        else:
            self._on_adopted_end(pid)

    def _on_adopted_end(self, pid: int) -> None:
        launcher = self._adopted.pop(pid, 0)
        if launcher in self.launchers():  # it did not tidy up: it died
            self._log.write("launch child died", launcher=launcher, pid=pid)
            self.clear(launcher)
            self.deaths.died([], [launcher])
            self.sweep_images()
        else:
            self._tracking.end_dead()

    def reap(self) -> None:
        """Take every child that has ended."""
        died: List[int] = []
        stray = ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._helpers:
                self._helpers.discard(pid)
                self._image_proxies.discard(pid)
            elif pid in self._own:
                self._own.discard(pid)
                ended = True
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == WARM:
                    self._loop.after(0, keep_ready)
                elif status:
                    died.append(status)
                    self._log.write("launch child died", pid=pid, status=status)
            else:
                stray = True
        if died:
            self.deaths.died(died, self.clear_dead())
            self.sweep_images()
        if ended:
            self._tracking.end_dead()
        if died or stray:
            self.sweep()

    def sweep_images_then(self, then: Callable[[], None]) -> None:
        """The same, and call ``then`` when nothing is left, or a user's directory has had its time."""
        self._await_helper(self.sweep_images(), _SWEEP_ROUNDS, then)

    def _await_helper(self, pid: int, rounds: int, then: Callable[[], None]) -> None:
        self.reap()
        if pid in self._helpers and rounds:
            self._loop.after(_STRAY_S, lambda: self._await_helper(pid, rounds - 1, then))
        else:
            then()

    def clear_dead(self) -> List[int]:
        """Clear every launch whose launch child is dead: which ones."""
        dead = []
        for launcher in self.launchers():
            if self._is_dead(launcher):
                self.clear(launcher)
                dead.append(launcher)
        return dead

    def clear(self, launcher: int) -> int:
        """Kill the strays of a dead launch child and remove its files. How many there were."""
        killed = self._kill_strays(launcher)
        clear_files(self._run, self._node, launcher)
        if killed:
            self._log.write("strays killed", launcher=launcher, killed=killed)
            self._loop.after(_STRAY_S, lambda: self._clear_again(launcher, 1))
        self.on_cleared(launcher)
        return killed

    def _kill_strays(self, launcher: int) -> int:
        return self.kill_marked(launcher) + self._tracking.end_dead(launcher)

    def _clear_again(self, launcher: int, round_: int) -> None:
        # they may have forked while they were looked for; a launch child of that launcher is another one, and lives
        sock = self._reach(launcher)
        if sock is not None:
            sock.close()
        elif self._kill_strays(launcher) and round_ < _STUBBORN:
            self._loop.after(_STRAY_S, lambda: self._clear_again(launcher, round_ + 1))

    def kill_marked(self, launcher: int) -> int:
        """SIGKILL for every process that carries the launch's mark, and all below it. How many there were."""
        victims: Set[int] = set()
        for pid in processes.marked(f"{self._mesh}/{self._node}/{launcher}"):
            if processes.alive(pid):
                victims.add(pid)
                victims.update(processes.descendants(pid))
        if victims:
            victims -= processes.ancestors(os.getpid())  # a keeper that a rank started carries the mark of its launch
        processes.kill_all(victims)
        return len(victims)

    def sweep(self, round_: int = 0) -> None:
        """Kill our children that are not launch children: a dead launch child left them to us, as subreaper."""
        if self._sweeping and round_ == 0:
            return
        known = self._own | self._helpers
        strays = [pid for pid in processes.children(os.getpid()) if pid not in known]
        self._sweeping = bool(strays) and round_ < _STUBBORN
        if not strays:
            return
        victims = [pid for stray in strays for pid in (stray, *processes.descendants(stray))]
        processes.kill_all(victims)
        if self._sweeping:
            self._loop.after(_STRAY_S, lambda: self.sweep(round_ + 1))


class Kill:
    """One kill_launch on its way: ``on_done(reply)`` when nothing is left on this node, or after all tries."""

    def __init__(
        self, loop: Loop, hosted: Hosted, launcher: int, on_done: Callable[[Message], None], notice: Message
    ) -> None:
        self._loop, self._hosted, self._launcher, self._on_done = loop, hosted, launcher, on_done
        self._rounds = 0
        self._killed = 0
        self._ended = False
        caller = hosted.connect(launcher, self._on_end)
        if caller is None:
            self._clear()
            return
        sock = caller.link.sock
        assert sock is not None
        self._pid = peer(sock).pid
        self._timer = loop.after(6.0, self._on_silence)
        caller.call({"op": "kill_launch", "launcher": launcher, **notice}, self._on_reply)

    def _on_reply(self, reply: Optional[Message], _error: Optional[AgentError]) -> None:
        if reply is not None and not self._ended:
            self._finish({"clean": bool(reply.get("clean")), "killed": reply.get("killed", 0)})

    def _on_end(self, _caller: Caller, _reason: str) -> None:
        if not self._ended:
            self._timer.cancel()
            self._clear()  # it ended while we waited: by itself, or killed

    def _on_silence(self) -> None:
        if not self._ended:
            processes.kill_all([self._pid])

    def _clear(self) -> None:
        # Without a launch child that could say so, the processes' marks say what is left.
        if self._ended:
            return
        found = self._hosted.clear(self._launcher)
        self._killed += found
        self._rounds += 1
        if found and self._rounds < 100:
            self._loop.after(0.02, self._clear)
        else:
            self._finish({"clean": not found, "killed": self._killed})

    def _finish(self, reply: Message) -> None:
        self._ended = True
        self._on_done(reply)


# A node that changes sides: nothing of its launches or their images stays, and its PCT begins a new life.


class Wipe:
    """Kills every launch here, sweeps the RAM disk, then calls ``renew``; ``on_done(reply)`` follows."""

    def __init__(
        self, loop: Loop, hosted: Hosted, renew: Callable[[], None], on_done: Callable[[Message], None]
    ) -> None:
        self._hosted, self._renew, self._on_done = hosted, renew, on_done
        self._clean = True
        launchers = hosted.launchers()
        self._outstanding = 1 + len(launchers)
        for launcher in launchers:
            Kill(loop, hosted, launcher, self._on_killed, {})
        self._one_less()

    def _on_killed(self, reply: Message) -> None:
        self._clean = self._clean and bool(reply.get("clean"))
        self._one_less()

    def _one_less(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        self._hosted.sweep_images_then(self._swept)

    def _swept(self) -> None:
        if self._clean:  # else the node stays out of service: something of the old side may still run
            self._renew()
        self._on_done({"clean": self._clean})
