"""The stacks of this node's running ranks: tools run in parallel, and the loop continues meanwhile.

A rank is stopped for the few milliseconds in which its stack is read, independently of the others. Names come from
libdw in a helper process (eu-stack or gdb without it), source lines of the program's own code from one eu-addr2line for
all ranks of the node (or binutils' addr2line, one for each file), and Python's calls from py-spy.
"""

from __future__ import annotations

import json
import os
import signal

from agents.link.loop import READ
from agents.linux import processes
from agents.pct.debug import crash, parsers, stack_tree
from agents.pct.debug.libdw import Unwinder, may_help
from agents.pct.debug.sources import Sources, machine
from redmesh import idset
from redmesh.byte_text import from_bytes, to_system

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from agents.link.loop import Loop, Timer
    from agents.pct.debug.parsers import Frame, Thread
    from agents.pct.debug.stack_tree import Call, Tree

    Told = Callable[[Tree, List[List[Any]]], None]

#: Seconds for one tool on one rank; fewer for a rank that sleeps in the kernel, where no tool can stop it.
RANK_S, ASLEEP_S = 5.0, 1.0
_MOST = 1 << 20  # bytes of a tool's output
#: Programs that only start the rank's real program: shells, and the strace of ``yod -strace``.
_AROUND = frozenset(("sh", "bash", "dash", "zsh", "ksh", "busybox", "strace"))
_INSTALL = "install elfutils (eu-stack) or gdb there"
_NO_LINES = "no source lines of C, C++ and Fortran: install elfutils (eu-addr2line) or binutils (addr2line)"
_NO_DEBUG = "has no debug information: compile it with -g to see its source lines"
_NO_PY_SPY = "Python's own calls need py-spy, which is neither there nor beside yod (pip install py-spy)"


class Tool:
    """A run of a tool. Calls ``then(text, why)``: its output, and the reason if it is incomplete (empty: it exited
    normally)."""

    def __init__(self, loop: Loop, command: List[str], limit_s: float, then: Callable[[str, str], None]) -> None:
        self._loop, self._then = loop, then
        self._name = os.path.basename(command[0])
        self._data = bytearray()
        reader, writer = os.pipe()
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        try:
            # The launch child reaps it with its other children.
            self._pid = os.posix_spawn(command[0], command, crash.ENVIRONMENT, file_actions=actions)
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._fd = reader
        self._timer: Optional[Timer] = loop.after(limit_s, self._late)
        loop.watch(reader, READ, self._on_data)

    def _on_data(self, _events: int) -> None:
        data = os.read(self._fd, 65536)
        if data and len(self._data) < _MOST:
            self._data += data
        elif not data:
            self._end("")

    def _late(self) -> None:
        self._timer = None
        self.cancel()
        self._then(self._text(), f"{self._name} was not done in time")

    def _end(self, why: str) -> None:
        self._let_go()
        self._then(self._text(), why)

    def _text(self) -> str:
        return from_bytes(bytes(self._data))

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.unwatch(self._fd)
        os.close(self._fd)

    def cancel(self) -> None:
        """Stop waiting for it."""
        self._let_go()
        if processes.parent(self._pid) == os.getpid():
            processes.send_signal(self._pid, signal.SIGKILL)


class Rank:
    """A rank whose stack is being read: ``pid`` is the process of the program, below a shell if one started it."""

    __slots__ = (
        "begin",
        "is_python",
        "maps",
        "number",
        "pid",
        "python",
        "python_main",
        "threads",
        "tried",
        "unwound",
        "why",
    )

    def __init__(self, number: int, pid: int) -> None:
        self.number, self.pid = number, pid
        self.maps = ""
        self.is_python = False
        self.threads: List[Thread] = []
        self.python: Dict[int, List[Call]] = {}
        self.python_main: List[Call] = []
        self.begin: Dict[str, int] = {}
        self.tried = 0
        self.unwound = False  # True after libdw has tried
        self.why = ""


class Snapshot:
    """Takes the stacks of ``ranks`` ([rank, pid]). ``which``: all, native or python. ``told`` gets tree and missing
    ranks."""

    def __init__(
        self, loop: Loop, node: str, ranks: List[List[int]], which: str, tools: Dict[str, str], told: Told,
        fetch: Optional[Callable[[str, Callable[[str, str], None]], None]] = None,
    ) -> None:  # fmt: skip
        self._loop, self._node, self._which, self._told = loop, node, which, told
        self._native = [name for name in ("eu-stack", "gdb") if crash.find(name)]
        self._py_spy = usable(str(tools.get("py-spy", ""))) or crash.find("py-spy")
        self._waiting = [Rank(number, pid) for number, pid in ranks]
        self._taken: List[Rank] = []
        self._missing: Dict[str, int] = {}
        self._tools: List[Any] = []  # Tool or Unwinder
        self._to_unwind: List[Rank] = []
        # Fetch a missing tool from the launcher if it has one for our architecture.
        self._fetch = fetch if tools.get("py-spy") and tools.get("machine", machine()) == machine() else None
        self.sources = Sources()
        self._for_py_spy: List[Rank] = []
        self._busy = 0
        self._over = self._told_it = False
        self._everybody = idset.of(number for number, _ in ranks)
        self._at_once = min(16, max(2, len(os.sched_getaffinity(0))))
        loop.after(0, lambda: self._guarded(self._next))

    def _guarded(self, work: Callable[[], None]) -> None:
        # An inspection must never end the launch, whatever a tool prints.
        try:
            work()
        except Exception as error:
            self.cancel()
            self._say({}, [[idset.text(self._everybody), self._node, f"internal error: {error!r}"]])

    def _say(self, tree: Tree, missing: List[List[Any]]) -> None:
        if not self._told_it:
            self._told_it = True
            self._told(tree, missing)

    # Ranks in turn, several at a time

    def _next(self) -> None:
        while self._waiting and self._busy < self._at_once and not self._over:
            rank = self._waiting.pop(0)
            self._busy += 1
            if rank.unwound:
                self._look_native(rank)
            else:
                self._look(rank)
        if self._busy or self._waiting or self._for_py_spy or self._over:
            return
        if self._to_unwind:
            self._unwind()
        else:
            self._over = True
            self._find_lines()

    def _done(self, rank: Rank, why: str = "") -> None:
        self._busy -= 1
        self._settle(rank, why)
        self._go_on()

    def _settle(self, rank: Rank, why: str) -> None:
        if why:
            self._missing[why] = self._missing.get(why, 0) | 1 << rank.number
        if rank.threads or rank.python or rank.python_main:
            self._taken.append(rank)

    def _go_on(self) -> None:
        self._loop.after(0, lambda: self._guarded(self._next))

    def _look(self, rank: Rank) -> None:
        rank.pid = program_of(rank.pid)
        why = unreadable(rank.pid)
        if why:
            self._done(rank, why)
            return
        rank.maps = crash.read(f"/proc/{rank.pid}/maps")
        rank.is_python = crash.is_python(rank.pid, rank.maps)
        if self._which == "python" and not rank.is_python:
            self._done(rank, "no Python program")
        elif self._which != "native" and rank.is_python:
            self._look_python(rank)
        else:
            self._look_native(rank)

    def _run(self, command: List[str], rank: Rank, then: Callable[[str, str], None]) -> None:
        limit_s = ASLEEP_S if processes.state(rank.pid) == "D" else RANK_S

        def ended(text: str, why: str) -> None:
            self._tools.remove(tool)
            if not self._over:
                self._guarded(lambda: then(text, why))

        try:
            tool = Tool(self._loop, command, limit_s, ended)
        except OSError as error:
            then("", f"{command[0]}: {error.strerror}")
            return
        self._tools.append(tool)

    # Python

    def _look_python(self, rank: Rank) -> None:
        if not self._py_spy and self._fetch is not None:
            self._for_py_spy.append(rank)
            self._busy -= 1
            if len(self._for_py_spy) == 1:
                self._fetch("py-spy", lambda path, why: self._guarded(lambda: self._fetched(path, why)))
            self._go_on()
            return
        if not self._py_spy:
            rank.why = rank.why or _NO_PY_SPY
            self._ask_itself(rank)
            return
        # py-spy would wait for ever for a stopped process.
        still = ["--nonblocking"] if processes.state(rank.pid) in ("T", "t") else []
        command = [self._py_spy, "dump", "--json", *still, "--pid", str(rank.pid)]
        self._run(command, rank, lambda text, why: self._take_python(rank, text, why))

    def _fetched(self, path: str, why: str) -> None:
        self._py_spy, self._fetch = path, None
        ranks, self._for_py_spy = self._for_py_spy, []
        for rank in ranks:
            rank.why = f"Python's own calls: {why}" if why else ""
        self._waiting += ranks
        self._go_on()

    def _take_python(self, rank: Rank, text: str, why: str) -> None:
        try:
            for thread in json.loads(text[text.find("[") :]):
                found = parsers.python(thread["frames"], self.sources)
                tid = thread.get("os_thread_id")
                if tid == rank.pid or (tid is None and thread.get("thread_name") == "MainThread"):
                    rank.python_main = found
                else:
                    rank.python[tid or -int(thread["thread_id"])] = found
        except (ValueError, KeyError, TypeError):
            rank.why = f"Python's own calls: {why or _last(text) or 'py-spy found none'}"
            self._ask_itself(rank)
            return
        self._after_python(rank)

    def _ask_itself(self, rank: Rank) -> None:
        from agents.pct.debug.faulthandler import Asking

        def told(threads: Any) -> None:
            self._tools.remove(asking)
            rank.python_main, rank.python = threads
            if rank.python_main:
                rank.why = ""
            self._guarded(lambda: self._after_python(rank))

        try:
            asking = Asking(self._loop, rank.pid, told)
        except OSError:
            self._after_python(rank)
            return
        self._tools.append(asking)

    def _after_python(self, rank: Rank) -> None:
        if self._which == "python":
            self._done(rank, rank.why)
        else:
            self._look_native(rank)

    # C frames

    def _unwind(self) -> None:
        """Read all waiting ranks with libdw, in as many helpers as there are cores."""
        ranks, self._to_unwind = self._to_unwind, []
        helpers = min(self._at_once, len(ranks))
        for first in range(helpers):
            self._begin_unwinder({rank.pid: rank for rank in ranks[first::helpers]})

    def _begin_unwinder(self, ranks: Dict[int, Rank]) -> None:
        def told(pid: int, threads: List[Thread]) -> None:
            rank = ranks[pid]
            rank.unwound, rank.threads = True, threads
            if threads:
                self._settle(rank, rank.why if rank.is_python else "")
            else:
                self._waiting.append(rank)  # the tools may succeed, or explain the failure

        def over(left: List[int], late: bool) -> None:
            self._tools.remove(unwinder)
            self._busy -= 1
            for at, pid in enumerate(left):
                if late and at:
                    self._to_unwind.append(ranks[pid])  # it was not tried
                else:
                    ranks[pid].unwound = True
                    self._waiting.append(ranks[pid])
            self._go_on()

        self._busy += 1
        try:
            unwinder = Unwinder(
                self._loop, list(ranks), RANK_S, lambda pid, threads: self._guarded(lambda: told(pid, threads)),
                lambda left, late: self._guarded(lambda: over(left, late)),
            )  # fmt: skip
        except OSError:
            self._busy -= 1
            for rank in ranks.values():
                rank.unwound = True
            self._waiting += ranks.values()
            self._go_on()
            return
        self._tools.append(unwinder)

    def _look_native(self, rank: Rank) -> None:
        if not rank.unwound and processes.state(rank.pid) != "D" and may_help():
            self._to_unwind.append(rank)
            self._busy -= 1
            self._go_on()
            return
        if rank.tried >= len(self._native):
            why = rank.why or (f"no stack tool on {self._node}: {_INSTALL}" if not self._native else "no calls found")
            self._done(rank, f"{why}; {_standing(rank.pid)}")
            return
        name = self._native[rank.tried]
        rank.tried += 1
        options = ["-m", "-p"] if name == "eu-stack" else [*crash.GDB, "-ex", _GDB_ALL, "-p"]
        command = [crash.find(name), *options, str(rank.pid)]
        self._run(command, rank, lambda text, why: self._take_native(rank, name, text, why))

    def _take_native(self, rank: Rank, name: str, text: str, why: str) -> None:
        rank.threads = (parsers.parse_eu_stack if name == "eu-stack" else parsers.parse_gdb)(text)
        if rank.threads:
            self._done(rank, rank.why if rank.is_python else "")
            return
        rank.why = unreadable(rank.pid) or why or f"{name}: {_last(text) or 'no calls found'}"
        self._look_native(rank)

    # Source lines

    def _find_lines(self) -> None:
        """Find the source lines of the program's own calls: one eu-addr2line for all ranks with the same program."""
        wanted: Dict[Tuple[str, int], Tuple[int, int]] = {}
        for rank in self._taken:
            own = [
                (frame.module, frame.address - (1 if at else 0))  # the return address is behind the call
                for thread in rank.threads
                for at, frame in enumerate(thread.frames)
                if frame.module and not frame.where and not parsers.system(frame.module)
            ]
            unnamed = {frame.module for thread in rank.threads for frame in thread.frames if not frame.function}
            rank.begin = parsers.beginnings(rank.maps, {module for module, _ in own} | unnamed - {""})
            for module, address in own:
                if module in rank.begin:
                    wanted.setdefault((module, address - rank.begin[module]), (rank.pid, address))
        program = crash.find("eu-addr2line") or crash.find("addr2line")
        if wanted and not program:
            self.sources.lack(_NO_LINES, self._node)
        if not wanted or not program:
            self._tell({})
        elif program.endswith("eu-addr2line"):
            self._ask_lines(program, wanted, {})
        else:
            self._ask_binutils(program, list(wanted), {})

    def _ask_lines(
        self, program: str, wanted: Dict[Tuple[str, int], Tuple[int, int]], known: Dict[Tuple[str, int], List[Frame]]
    ) -> None:
        if not wanted:
            self._tell(known)
            return
        pid = next(iter(wanted.values()))[0]
        now = {place: address for place, (of, address) in wanted.items() if of == pid}
        later = {place: where for place, where in wanted.items() if place not in now}

        def ended(text: str, _why: str) -> None:
            found = parsers.parse_addr2line(text)
            known.update({place: found[address] for place, address in now.items() if address in found})
            if not self._told_it:
                self._guarded(lambda: self._ask_lines(program, later, known))

        command = [program, "-A", "-a", "-f", "-C", "-i", "-p", str(pid), *(hex(address) for address in now.values())]
        try:
            Tool(self._loop, command, RANK_S, ended)
        except OSError:
            self._tell(known)

    def _ask_binutils(
        self, program: str, wanted: List[Tuple[str, int]], known: Dict[Tuple[str, int], List[Frame]]
    ) -> None:
        """Ask binutils' addr2line, which reads a file, not a process: addresses must be relative to the file."""
        if not wanted:
            self._tell(known)
            return
        module = wanted[0][0]
        fixed = _beginning_in_file(module)
        now = {distance + fixed: (module, distance) for of, distance in wanted if of == module}
        later = [place for place in wanted if place[0] != module]

        def ended(text: str, _why: str) -> None:
            found = parsers.parse_addr2line(text)
            known.update({now[address]: frames for address, frames in found.items() if address in now})
            if not self._told_it:
                self._guarded(lambda: self._ask_binutils(program, later, known))

        command = [program, "-a", "-f", "-C", "-i", "-e", to_system(module), *(hex(address) for address in now)]
        try:
            Tool(self._loop, command, RANK_S, ended)
        except OSError:
            self._tell(known)

    def _tell(self, known: Dict[Tuple[str, int], List[Frame]]) -> None:
        told = {module for (module, _), frames in known.items() if any(frame.where for frame in frames)}
        for module in {module for module, _ in known} - told:
            if not any(rank.is_python and module.endswith(".so") for rank in self._taken):
                self.sources.lack(f"{os.path.basename(module)} {_NO_DEBUG}", self._node)
        tree: Tree = {}
        for rank in self._taken:
            for stack in _calls_of(rank, known, self.sources):
                stack_tree.add(tree, stack, 1 << rank.number)
        missing = [[idset.text(ranks), self._node, why] for why, ranks in self._missing.items()]
        self._say(tree, missing)

    def cancel(self) -> None:
        """Stop; nothing more is reported."""
        self._over = True
        for tool in self._tools:
            tool.cancel()
        self._tools = []


_GDB_ALL = "thread apply all backtrace 64"


def _beginning_in_file(module: str) -> int:
    """The address at which an ELF file has its offset 0; 0 if it is position-independent, or no ELF file."""
    from struct import error, unpack_from

    try:
        with open(to_system(module), "rb") as file:
            head = file.read(8192)
        if head[:6] != b"\x7fELF\x02\x01" or unpack_from("<H", head, 16)[0] != 2:  # 64 bits; ET_EXEC
            return 0
        at, size, count = unpack_from("<Q", head, 32)[0], *unpack_from("<HH", head, 54)
        for each in range(at, at + size * count, size):
            kind, _, offset, address = unpack_from("<IIQQ", head, each)
            if kind == 1:  # PT_LOAD
                return int(address - offset)
    except (OSError, error):
        pass
    return 0


def _calls_of(rank: Rank, known: Dict[Tuple[str, int], List[Frame]], sources: Sources) -> List[List[Call]]:
    lines: Dict[int, List[Frame]] = {}
    for thread in rank.threads:
        for at, frame in enumerate(thread.frames):
            begin = rank.begin.get(frame.module)
            if begin is not None:
                lines[frame.address] = known.get((frame.module, frame.address - begin - (1 if at else 0)), [])
    found, python = [], dict(rank.python)
    for thread in rank.threads:
        below = parsers.native(thread, lines, rank.begin, sources)
        own = rank.python_main if thread.tid == rank.pid else python.pop(thread.tid, [])
        found.append(parsers.mixed(own, below) if own else below)
    if not rank.threads:
        found.append(rank.python_main)
    return found + list(python.values())


def program_of(pid: int) -> int:
    """The program that a rank runs now: for a shell script, the only child of the shell, and so on."""
    for _ in range(8):
        try:
            name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            return pid
        below = processes.children(pid) if name in _AROUND else []
        if len(below) != 1:
            return pid
        pid = below[0]
    return pid


def unreadable(pid: int) -> str:
    """The reason why no tool can stop ``pid``; empty if one can."""
    state = processes.state(pid)
    if state in ("", "Z", "X"):
        return "its process has ended"
    tracer = int(crash.field(pid, "TracerPid") or 0)
    if (tracer and _session(tracer) != os.getsid(0)) or tracer == os.getpid():  # our own tools are in our session
        name = crash.read(f"/proc/{tracer}/comm").strip()
        return f"it is traced by {name} {tracer}" if tracer != os.getpid() else "it is watched for faults (yod -bt)"
    return ""


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _standing(pid: int) -> str:
    """What /proc alone shows about the main thread."""
    for thread in crash.without_tools(pid):
        if thread.tid == pid:
            return "it stands in " + ", ".join(str(frame) for frame in thread.frames)
    return "its process has ended"


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""


def usable(path: str) -> str:
    """The path of a tool of the launcher, if nobody else could have replaced it; otherwise empty."""
    if not os.path.isabs(path) or not os.access(path, os.X_OK):
        return ""
    found = os.stat(path)
    return path if found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022 else ""
