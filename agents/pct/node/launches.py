"""The launches that a PCT hosts: its own launch children, adopted ones, and strays of dead ones."""

from __future__ import annotations

import os

from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import READ, Loop
from agents.link.sockets import connect_now, peer
from agents.linux import processes
from agents.pct.images.ram_disk import places, user_directory
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


# Image clean-up after dead launch children, and imported modules for living ones.


def sweep() -> int:
    """Remove what dead launch children of this user left in the RAM disk, or in a place instead of it. Returns a
    helper's pid; 0: already done."""
    for place in places():
        base = user_directory(place, os.geteuid())
        try:
            names = os.listdir(base)
            if any(name.startswith("launch-") for name in names) or (
                "images" in names and os.listdir(f"{base}/images")
            ):
                from agents.pct.images.store import sweep as sweep_images

                sweep_images(place)
        except OSError:
            pass  # it does not exist, as usual
    return 0


def discard_place() -> None:
    """Remove this user's directories in the RAM disk and in the places instead of it, unless a launch has files there.
    Called when a PCT ends."""
    for place in places():
        if os.path.isdir(user_directory(place, os.geteuid())):
            from agents.pct.images.store import discard

            discard(place)


def keep_ready() -> None:
    """Import what a launch child with a payload needs, so that the next ones save 15 ms each."""
    import hashlib  # noqa: F401

    import agents.pct.launch_child.payload_transfer  # noqa: F401


_STRAY_S = 0.02  # between two kills of strays that have not ended yet
_STUBBORN = 250  # kills
_LOOKS = 15  # checks whether a launch child that a peer asks about can be reaped
_SWEEP_ROUNDS = 250  # checks of a helper that sweeps


class Hosted:
    """Tracks launch children by their pids; their sockets in RUN name their launchers."""

    def __init__(self, loop: Loop, mesh: str, node: str, run: str, log: Journal, tracking: ProcessTracking) -> None:
        self._loop, self._mesh, self._node, self._run, self._log = loop, mesh, node, run, log
        self._tracking = tracking
        self._own: Set[int] = set()
        self._helpers: Set[int] = set()
        self._image_proxies: Set[int] = set()  # helpers that transfer images
        self._adopted: Dict[int, int] = {}  # pid -> launcher
        self._sweeping = False
        self._deaths: Optional[Deaths] = None  # imported when the first launch child dies
        # called after a killed launch child was cleaned up
        self.on_cleared: Callable[[int], None] = lambda _launcher: None
        #: Begins to remove what dead launch children left in the RAM disk; returns the helper's pid, or 0 if done.
        self.sweep_images: Callable[[], int] = sweep

    def __len__(self) -> int:
        return len(self._own) + len(self._adopted)

    @property
    def deaths(self) -> Deaths:
        """How launch children died."""
        if self._deaths is None:
            from agents.pct.launch.deaths import Deaths

            self._deaths = Deaths(self._run, self._node)
        return self._deaths

    def tell_death(self, session: Session, message: Message, looks: int = _LOOKS) -> None:
        """Reply to a peer that lost the link to a launch child; the link closes a moment before the process can be
        reaped."""
        self.reap()
        death = self.deaths.told(message["launcher"])
        if death is None and looks:
            self._loop.after(_STRAY_S, lambda: self.tell_death(session, message, looks - 1))
        else:
            session.reply(message, death or {})

    def pass_on(self, session: Session, message: Message) -> None:
        """Pass a notice on to a launch child, and its reply back. The notice may be lost with either: it is repeated
        then."""

        def answered(reply: Optional[Message], _error: Optional[AgentError]) -> None:
            session.reply(message, {"told": bool(reply and reply.get("told"))})
            if caller is not None:
                self._loop.after(0, caller.close)

        caller = self.connect(message["launcher"], lambda _caller, _reason: None)
        if caller is None:
            answered(None, None)
        else:
            caller.call({key: message[key] for key in message if key != "id"}, answered)

    @property
    def pids(self) -> List[int]:
        """The pids of all living launch children."""
        return [*self._own, *self._adopted]

    def add(self, pid: int) -> None:
        """Add a launch child that has just been forked."""
        self._own.add(pid)

    @property
    def helpers(self) -> int:
        """The number of helpers."""
        return len(self._helpers)

    def add_helper(self, pid: int) -> int:
        """Add a child that serves no launch; returns ``pid``."""
        self._helpers.add(pid)
        return pid

    def add_image_proxy(self, pid: int) -> None:
        """A child that serves images to other machines (agents/pct/remote/image_proxy.py)."""
        self._image_proxies.add(self.add_helper(pid))

    def end_image_proxies(self) -> None:
        """End the image proxies now, even a stopped one."""
        processes.kill_all(self._image_proxies)

    def connect(self, launcher: int, on_end: Callable[[Caller, str], None]) -> Optional[Caller]:
        """Connect to the launch child of ``launcher``; None if there is none."""
        sock = self._reach(launcher)
        return None if sock is None else Caller(self._loop, sock, "pct", on_end)

    def _reach(self, launcher: int) -> Optional[socket.socket]:
        try:
            sock = connect_now(launch_socket(self._run, self._node, launcher))
        except (OSError, AgentError):
            return None
        if processes.alive(peer(sock).pid):
            return sock
        sock.close()  # it is dead; a rank before its exec still holds the socket
        return None

    def _is_dead(self, launcher: int) -> bool:
        """True if the launch child of ``launcher`` is certainly dead. Being unable to find it is no evidence."""
        try:
            sock = connect_now(launch_socket(self._run, self._node, launcher))
        except ConnectionRefusedError:
            return True  # no process listens on the socket
        except FileNotFoundError:
            # RUN may have been removed: check its record, or else the marks of its processes.
            tracked = self._tracking.launchers()
            return not (tracked[launcher] if launcher in tracked else self._has_launch_child(launcher))
        except (OSError, AgentError):
            return False
        pid = peer(sock).pid
        sock.close()
        return not processes.alive(pid)  # a rank before its exec still holds the socket

    def _has_launch_child(self, launcher: int) -> bool:
        # Processes with the launch's mark: one that descends from a living launch child shows that it lives.
        for pid in processes.marked(f"{self._mesh}/{self._node}/{launcher}"):
            while pid > 1:
                if processes.is_agent(pid, b"redmesh-launch") and processes.alive(pid):
                    return True
                pid = processes.parent(pid)
        return False

    def launchers(self) -> List[int]:
        """Launchers with files in RUN, or with a record of their processes."""
        return sorted({*launchers_here(self._run, self._node), *self._tracking.launchers()})

    def adopt(self) -> None:
        """Adopt what an earlier PCT of this node left: living launch children, and the strays of dead ones."""
        for launcher in self.launchers():
            if not self._adopt_one(launcher) and self._is_dead(launcher):
                self.clear(launcher)
        self._tracking.end_dead()  # of launch children that had no launch when they were killed

    def adopt_late(self) -> None:
        """Adopt launch children that created their sockets again after RUN was removed."""
        for launcher in self.launchers():
            self._adopt_one(launcher)

    def _adopt_one(self, launcher: int) -> bool:
        sock = self._reach(launcher)
        # RUN may have been removed with the launch child's socket; its record also has the pid.
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
        if launcher in self.launchers():  # it did not remove its files, so it was killed
            self._log.write("launch child died", launcher=launcher, pid=pid)
            self.clear(launcher)
            self.deaths.died([], [launcher])
            self.sweep_images()
        else:
            self._tracking.end_dead()

    def reap(self) -> None:
        """Reap all children that have exited."""
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
            dead, adopted = self.clear_dead(), set(self._adopted.values())
            self.deaths.died(died, [launcher for launcher in dead if launcher not in adopted])
            # Others reap the launch children that we adopted: their deaths explain none of these statuses.
            self.deaths.died([], [launcher for launcher in dead if launcher in adopted])
            self.sweep_images()
        if ended:
            self._tracking.end_dead()
        if died or stray:
            self.sweep()

    def sweep_images_then(self, then: Callable[[], None]) -> None:
        """Sweep, then call ``then`` when it is done, or when a user's directory has used up its time."""
        self._await_helper(self.sweep_images(), _SWEEP_ROUNDS, then)

    def _await_helper(self, pid: int, rounds: int, then: Callable[[], None]) -> None:
        self.reap()
        if pid in self._helpers and rounds:
            self._loop.after(_STRAY_S, lambda: self._await_helper(pid, rounds - 1, then))
        else:
            then()

    def clear_dead(self) -> List[int]:
        """Clear every launch whose launch child is dead; returns the launchers."""
        dead = []
        for launcher in self.launchers():
            if self._is_dead(launcher):
                self.clear(launcher)
                dead.append(launcher)
        return dead

    def clear(self, launcher: int) -> int:
        """Kill the strays of a dead launch child and remove its files. Returns the number of strays."""
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
        # They may have forked meanwhile. A launch child that now serves the same launcher is another one, and lives.
        sock = self._reach(launcher)
        if sock is not None:
            sock.close()
        elif self._kill_strays(launcher) and round_ < _STUBBORN:
            self._loop.after(_STRAY_S, lambda: self._clear_again(launcher, round_ + 1))

    def kill_marked(self, launcher: int) -> int:
        """SIGKILL all processes with the launch's mark, and their descendants. Returns their number."""
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
        """Kill our children that are not launch children: we inherited them from a dead launch child, as subreaper."""
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
    """A kill_launch in progress: calls ``on_done(reply)`` when nothing is left on this node, or after all attempts."""

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
        if reply is not None and reply.get("deferred"):
            self._timer.cancel()  # the launch child ends with the batch system's job, and _on_end follows
        elif reply is not None and not self._ended:
            self._finish({"clean": bool(reply.get("clean")), "killed": reply.get("killed", 0)})

    def _on_end(self, _caller: Caller, _reason: str) -> None:
        if not self._ended:
            self._timer.cancel()
            self._clear()  # it ended while we waited: by itself, or killed

    def _on_silence(self) -> None:
        if not self._ended:
            processes.kill_all([self._pid])

    def _clear(self) -> None:
        # Without a launch child, the processes' marks show what is left.
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


# A node that changes sides: its launches and images are removed, and its PCT begins a new boot.


class Wipe:
    """Kills every launch here, sweeps the RAM disk, then calls ``renew`` and ``on_done(reply)``."""

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
        if self._clean:  # otherwise the node stays out of service, because processes of the old side may still run
            self._renew()
        self._on_done({"clean": self._clean})
