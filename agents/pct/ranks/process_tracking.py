"""Which processes belong to a launch child, kept on disk for the PCT that finds its keeper, PCT and launch child dead.

As long as one of the three lives, the kernel gives it the orphans (it is their subreaper). When all three are killed
together, the next PCT reads the record that each launch child keeps in STATE/launch-children. It names the launch
child, and the control group of its ranks where there is one (agents/linux/cgroup.py). Elsewhere it has the sessions of
the ranks, written before their first instruction, and every process and session that was seen since.

Only a process that provably is the launch's is killed. Pids are used again, so a number alone proves nothing:

- a process that was recorded with its start time;
- a process in a recorded session whose autogroup (/proc/PID/autogroup, a number that the kernel gives to each session
  and never again in a boot) is the recorded one; without autogroups, a process that started while the session was known
  to be the launch's;
- every process of a session that a process of the launch is in: its leader is the rank or descends from it;
- every descendant of one of them.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import signal
from agents.link.sockets import own_directory
from agents.linux import cgroup, processes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    from agents.link.journal import Journal
    from agents.linux.processes import Families

    Process = Tuple[int, int]  # pid and start time

DIRECTORY = "launch-children"  # in STATE
#: Seconds after GO until the processes of a launch are first recorded; each pause is twice the one before, up to the
#: second value.
FIRST_LOOK_S, LOOK_S = 0.25, 10.0
#: How often a launch child rewrites its record. A record of another boot that is 24 times as old is obsolete.
KEEP_S = 3600.0
_MOST = 4096  # processes in a record
_HEAD = "redmesh-launch-child"
_TICKS = os.sysconf("SC_CLK_TCK")


def system_life() -> str:
    """The identity of the present boot and pid namespace; pids are valid only inside it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = file.read().strip()
        return f"{boot_id} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def now() -> int:
    """The present time in the unit of processes' start times."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def _autogroup(pid: int) -> int:
    """The autogroup number of the session of ``pid``; 0 if the kernel provides none."""
    try:
        with open(f"/proc/{pid}/autogroup", "rb", buffering=0) as file:
            return int(file.read(64).split()[0].rpartition(b"-")[2])
    except (OSError, ValueError, IndexError):
        return 0


class Session:
    """A session of a launch: ``number`` was known to be the launch's from ``since`` to ``seen`` (clock ticks)."""

    __slots__ = ("autogroup", "number", "seen", "since")

    def __init__(self, number: int, since: int, seen: int, autogroup: int) -> None:
        self.number, self.since, self.seen, self.autogroup = number, since, seen, autogroup

    @classmethod
    def of(cls, leader: int) -> "Session":
        """The session that ``leader`` has just created, identified by its autogroup alone."""
        return cls(leader, 0, 0, _autogroup(leader))

    def has(self, pid: int, started: int) -> bool:
        """True if a process in a session with this number is in this session, as far as it was recorded."""
        if self.autogroup:
            return _autogroup(pid) == self.autogroup
        return self.since <= started < self.seen


class Contents:
    """The contents of a record. ``launcher`` is 0 between two launches."""

    __slots__ = ("group", "launcher", "life", "processes", "sessions")

    def __init__(self, life: str) -> None:
        self.life, self.launcher, self.group = life, 0, ""
        self.sessions: Dict[int, Session] = {}
        self.processes: Set[Process] = set()

    def text(self) -> str:
        """As it is written."""
        lines = [f"{_HEAD} {self.life}", f"launcher {self.launcher}"]
        if self.group:
            lines.append(f"group {self.group}")
        lines += [f"session {s.number} {s.since} {s.seen} {s.autogroup}" for s in self.sessions.values()]
        lines += [f"process {pid} {started}" for pid, started in self.processes]
        return "\n".join([*lines, "end\n"])

    @classmethod
    def read(cls, path: str) -> Optional[Contents]:
        """Parse the record at ``path``; None if it does not exist, or if its writer was killed before the first
        line."""
        try:
            with open(path, encoding="utf-8") as file:
                text, end, _former = file.read().partition("\nend\n")
            lines = text.split("\n")
            head, _, life = lines[0].partition(" ")
            if head != _HEAD or not end:
                return None
            found = cls(life)
            for line in lines[1:]:
                word, _, rest = line.partition(" ")
                if word == "launcher":
                    found.launcher = int(rest)
                elif word == "group":
                    found.group = rest
                elif word == "session":
                    session = Session(*(int(number) for number in rest.split()))
                    found.sessions[session.number] = session
                elif word == "process":
                    pid, started = rest.split()
                    found.processes.add((int(pid), int(started)))
            return found
        except (OSError, ValueError, TypeError):
            return None


def launchers_on_record(state: str) -> List[int]:
    """The launchers whose launch children live in this pid namespace, from their records in ``state``."""
    directory, life, found = os.path.join(state, DIRECTORY), system_life(), []
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    for name in names:
        rest, _, started = name.rpartition("-")
        pid = rest.rpartition("-")[2]
        contents = Contents.read(os.path.join(directory, name))
        if contents is None or contents.life != life or not contents.launcher:
            continue
        if pid.isdigit() and started.isdigit() and processes.alive(int(pid), int(started)):
            found.append(contents.launcher)
    return found


class Record:
    """A launch child's own record, kept open, and the control group of its ranks; the PCT removes both after its
    exit.

    ``as_root`` runs a function as root (system mode). Raises OSError if the record cannot be written.
    """

    def __init__(self, state: str, node: str, life: str, group_parent: str, as_root: Callable[[Any], Any]) -> None:
        pid = os.getpid()
        self._name = f"{node}-{pid}-{processes.start_time(pid)}"
        path = os.path.join(state, DIRECTORY, self._name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd: int = as_root(lambda: os.open(path, flags, 0o600))
        self._contents, self._as_root = Contents(life), as_root
        #: The session of our PCT, of its launch children and of their helpers. No rank can enter it.
        self._agents = os.getsid(0)  # of the first launch, before this process may begin a session for ranks
        self.group_fd = -1
        if group_parent:
            self._make_group(f"{group_parent}/{group_name(self._name)}")

    def _make_group(self, directory: str) -> None:
        self._contents.group = directory
        self._write()  # first, because a group without a record would stay for ever
        try:
            self._as_root(lambda: os.mkdir(directory, 0o755))
            self.group_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self.leave_group()

    def begin(self, launcher: int) -> None:
        """A launch begins, without processes yet. Raises OSError."""
        self._contents.launcher = launcher
        self._write()

    def leave_group(self) -> None:
        """Ranks cannot be started in the group, which is empty: record their sessions instead."""
        if self.group_fd >= 0:
            os.close(self.group_fd)
            self.group_fd = -1
        if self._contents.group:
            directory, self._contents.group = self._contents.group, ""
            self._as_root(lambda: cgroup.remove(directory))

    def held(self, leaders: List[int], since: int) -> None:
        """Every rank is held, in the sessions of ``leaders``; the first was forked after ``since``. Raises OSError."""
        seen, autogroup = now(), 0
        for pid in leaders:
            autogroup = _autogroup(pid) if autogroup or pid == leaders[0] else 0  # all have one, or none has
            self._contents.sessions[pid] = Session(pid, since, seen, autogroup)
        self._write()

    def living(self, table: Families) -> List[int]:
        """All living processes that are provably the launch's, by the record."""
        contents = self._contents
        return [pid for pid, _started in belonging(contents.sessions, contents.processes, self._agents, table)]

    def look(self, pids: List[int]) -> None:
        """Record ``pids``, all present processes of the launch. Raises OSError."""
        contents, seen = self._contents, now()
        found: Set[Process] = set()
        for pid in pids[:_MOST]:
            family = processes.family(pid)
            # A helper may be older than the session that we lead for ranks (fork.Spawner.share_session).
            if family is None or family[1] == self._agents:
                continue
            _parent, number, started = family
            found.add((pid, started))
            session = contents.sessions.get(number)
            if session is None:
                contents.sessions[number] = Session(number, started, seen, _autogroup(pid))
            else:
                session.since, session.seen = min(session.since, started), seen
        autogroups = all(session.autogroup for session in contents.sessions.values())
        if found != contents.processes or not autogroups:
            contents.processes = found
            self._write()

    def keep(self) -> None:
        """Rewrite the record every KEEP_S: hosts that share STATE take an old record for one of an earlier boot."""
        try:
            self._write()
        except OSError:
            pass  # its contents are unchanged

    def end(self) -> None:
        """The launch has ended, and no process is left."""
        self._contents.launcher = 0
        self._contents.sessions, self._contents.processes = {}, set()
        try:
            self._write()
        except OSError:
            pass  # everything recorded there is dead

    def _write(self) -> None:
        data = self._contents.text().encode()
        os.pwrite(self._fd, data, 0)  # a single call, which SIGKILL cannot interrupt
        os.ftruncate(self._fd, len(data))  # until then a reader stops at the first end mark


def group_name(record: str) -> str:
    """The name of the control group that belongs to a record."""
    return f"redmesh-launch-{record}"


class ProcessTracking:
    """The PCT's side: the records of its node's launch children, and the processes left by dead ones."""

    def __init__(self, state: str, node: str, log: Journal) -> None:
        self._directory, self._node, self._log = os.path.join(state, DIRECTORY), node, log
        self.life = system_life()
        self.group_parent = cgroup.parent_directory()
        own_directory(self._directory)

    def _records(self) -> List[Tuple[str, Process]]:
        found = []
        for name in os.listdir(self._directory):
            node, _, rest = name.rpartition("-")
            node, _, pid = node.rpartition("-")
            if node == self._node and pid.isdigit() and rest.isdigit():
                found.append((name, (int(pid), int(rest))))
        return found

    def launchers(self) -> Dict[int, int]:
        """The launchers with a record, each with the pid of its living launch child, or 0."""
        found: Dict[int, int] = {}
        for name, (pid, started) in self._records():
            contents = Contents.read(os.path.join(self._directory, name))
            if contents is not None and contents.launcher and contents.life == self.life:
                found[contents.launcher] = pid if processes.alive(pid, started) else found.get(contents.launcher, 0)
        return found

    def end_dead(self, launcher: int = 0) -> int:
        """Kill what dead launch children (of one launcher) left, and remove the records of those with nothing left.

        Returns the number of processes.
        """
        killed = 0
        for name, (pid, started) in self._records():
            path = os.path.join(self._directory, name)
            contents = Contents.read(path)
            if contents is not None and launcher and contents.launcher != launcher:
                continue
            if contents is not None and contents.life != self.life:
                self._forget_another_life(path, contents)
            elif not processes.alive(pid, started):
                left = self._kill(name, contents) if contents is not None else 0
                killed += max(0, left)
                if not left:
                    os.unlink(path)
        return killed

    def _forget_another_life(self, path: str, contents: Contents) -> None:
        # No process of an earlier boot lives. But STATE may be on a file system that another host or container uses.
        mine, theirs = self.life.split(), contents.life.split()
        old = time.time() - os.stat(path).st_mtime > 24 * KEEP_S
        if len(mine) == 2 and len(theirs) == 2 and mine[0] != theirs[0] and old:
            os.unlink(path)

    def _kill(self, name: str, contents: Contents) -> int:
        # The number of processes; 0: none is left; -1: must not be touched.
        group = contents.group
        if group and os.path.basename(group) == group_name(name) and os.path.isdir(group):
            left = cgroup.members(group)
            if processes.ancestors(os.getpid()) & set(left):
                self._log.write("not cleared", group=group, reason="this PCT was started by a rank of that launch")
                return -1
            if left:
                cgroup.kill(group)
                return len(left)
            return 0 if cgroup.remove(group) else 1  # the kernel has not finished with the last of them
        victims = belonging(contents.sessions, contents.processes, os.getsid(0))
        for pid, started in victims:
            try:
                processes.send_signal(pid, signal.SIGKILL, started)
            except PermissionError:
                self._log.write("unclean", pids=[pid])
        return len(victims)


def belonging(
    sessions: Dict[int, Session], recorded: Set[Process], agents: int, table: Optional[Families] = None
) -> List[Process]:
    """All living processes that are provably of the launch with these sessions and processes.

    ``agents``: the session that PCT and launch children share. That one of its processes is the launch's proves nothing
    about the others. ``table`` is what processes.families() returned a moment ago.
    """
    if not sessions and not recorded:
        return []
    table = processes.families() if table is None else table
    ours: Set[int] = set()
    for pid, (_parent, number, started) in table.items():
        session = sessions.get(number) if number != agents else None
        if (pid, started) in recorded or (session is not None and session.has(pid, started)):
            ours.add(pid)
    before = -1
    while len(ours) != before:
        before = len(ours)
        of_ours = {table[pid][1] for pid in ours} - {agents}
        ours.update(pid for pid, (parent, number, _) in table.items() if parent in ours or number in of_ours)
    ours -= processes.ancestors(os.getpid())
    return [(pid, table[pid][2]) for pid in ours]
