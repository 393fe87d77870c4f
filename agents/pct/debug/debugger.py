"""A debugger on one rank, with a terminal of its own (``mesh debug``): start, input, output, end. The rank continues
afterwards."""

from __future__ import annotations

import os
import pwd
import sys

from agents.link.lean import signal
from agents.link.loop import READ, WRITE
from agents.linux import processes
from agents.pct.debug import crash
from agents.pct.debug.snapshot import program_of, unreadable, usable
from agents.pct.errors import PctError
from agents.pct.files.yodio import source
from agents.pct.stdio.pty import Terminal
from agents.wire.control import control
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from agents.link.loop import Loop
    from agents.pct.launch.tree import Child
    from agents.pct.ranks.ranks import Ranks
    from agents.wire.control import Message

#: Unacknowledged output bytes above which the debugger is blocked.
WINDOW = 64 << 10
_PIECE = 16 << 10
_HELD = 1 << 20  # input bytes that the debugger has not read
#: Seconds from the end of the terminal to SIGTERM, and from SIGTERM to SIGKILL.
_LEAVE_S = 2.0
#: The interval of checks whether the rank was killed; a debugger has two intervals to notice it by itself.
_LOOKS_S = 1.5
_PID = "{pid}"
#: The client of pdb (agents/yodio/yodpdb.py), which may be inside an archive, is passed to its interpreter as a
#: descriptor.
_VISITOR = "/dev/fd/3"
#: No pager: a script that gives commands cannot press a key, and the greeting alone may fill a screen.
_GDB = ["gdb", "-q", "-iex", "set debuginfod enabled off", "-iex", "set pagination off", "-p", _PID]
#: For a stopped rank (--hold): without these, gdb reports its SIGSTOP and stops for it at the first two continues.
_STOPPED_GDB = [
    "-ex", "handle SIGSTOP nostop noprint nopass", "-ex", "handle SIGCONT nostop noprint pass",
    "-ex", r"echo This rank is stopped (yod --hold, or SIGSTOP). continue runs it alone, and it is stopped again when"
    r" gdb leaves;\nR in the console, or yod --release LAUNCHER, lets all held ranks run.\n",
]  # fmt: skip
#: The known debuggers: the command, and the package to install if it is missing.
TOOLS = {
    "gdb": (_GDB, "gdb"),
    "strace": (["strace", "-f", "-tt", "-p", _PID], "strace"),
    "py-spy": (["py-spy", "top", "--pid", _PID], "py-spy (pip install py-spy beside yod)"),
}


class Refused(PctError):
    """The requested session is impossible."""


def command(words: List[str], pid: int, tools: Dict[str, str], node: str, *, stopped: bool = False) -> List[str]:
    """The command line for ``words`` (a debugger's name and options, or any command) on process ``pid``.

    ``stopped``: the process does not run, for example because its launch is held.
    """
    known, install = TOOLS.get(words[0], (words, ""))
    if stopped and words[0] == "gdb":
        words = ["gdb", *_STOPPED_GDB, *words[1:]]
    words = [*known[: known.index(_PID) + 1], *words[1:]] if install and _PID in known else list(words)
    if words[0] == "pdb":
        words = _pdb(pid, words[1:])
    program = words[0]
    if "/" not in program:
        program = (usable(tools.get(program, "")) if program in tools else "") or crash.find(program)
    if not program or not os.access(program, os.X_OK):
        raise Refused(f"{node}: {words[0]} is not there", f"install {install or words[0]} on {node}")
    return [program, *(word.replace(_PID, str(pid)) for word in words[1:])]


def _pdb(pid: int, more: List[str]) -> List[str]:
    # pdb -p needs Python 3.14 at both ends; the rank's own interpreter always fits.
    try:
        interpreter = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        interpreter = ""
    _, _, minor = os.path.basename(interpreter).partition("python3.")
    if f"@redmesh-pdb-{pid}\n" in crash.read("/proc/net/unix"):
        return [sys.executable, "-I", _VISITOR, str(pid)]
    if minor.isdigit() and int(minor) >= 14:
        return [interpreter, "-P", "-m", "pdb", "-p", str(pid), *more]
    what = os.path.basename(interpreter) or "the rank"
    if "python" not in what:
        raise Refused(f"pdb cannot enter {what}: it is no Python", "use gdb")
    raise Refused(
        f"pdb cannot enter {what} while it runs: it has not called redmesh.debug_on_request() (Python 3.14 and later"
        " can be entered without)",
        "py-spy shows where it is, gdb its C calls; for pdb from the beginning, with one rank: yod -pty python3 -m pdb"
        " PROGRAM",
    )


class DebugSession:
    """A running debugger. Raises Refused if it cannot be started. Calls ``say(bytes)``, and finally ``over(why)``
    once."""

    def __init__(
        self, loop: Loop, node: str, pid: int, message: Message, say: Callable[[str], None], over: Callable[[str], None]
    ) -> None:
        self._loop, self._say, self._over = loop, say, over
        self._pid = pid = program_of(pid)
        why = unreadable(pid)
        if why:
            raise Refused(f"{node}: rank {message['rank']}: {why}")
        self._was_stopped = processes.state(pid) == "T"
        asked = [str(word) for word in message["command"]]
        words = command(asked, pid, message.get("tools") or {}, node, stopped=self._was_stopped)
        self._started = processes.start_time(pid)
        self._terminal = Terminal(message["rows"], message["columns"])
        self._typed = bytearray()
        self._untaken = 0
        self._open = True
        self._seen_dead = False
        try:
            self._tool = self._spawn(words, str(message.get("term", "")) or "dumb")
        except OSError as error:
            os.close(self._terminal.master)
            raise Refused(f"{node}: {words[0]}: {error.strerror}") from None
        finally:
            os.close(self._terminal.slave)
        os.set_blocking(self._terminal.master, False)
        self._watch()
        self._loop.after(_LOOKS_S, self._look)

    def _spawn(self, words: List[str], term: str) -> int:
        name = os.ttyname(self._terminal.slave)
        # Opened first in a new session, it becomes that session's controlling terminal, so ^C goes to the debugger.
        actions = [(os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0), *((os.POSIX_SPAWN_DUP2, 0, fd) for fd in (1, 2))]
        code = -1
        if _VISITOR in words:
            code = os.memfd_create("pdb")
            os.write(code, source("yodpdb.py"))
            actions.append((os.POSIX_SPAWN_DUP2, code, 3))
        environment = {**crash.ENVIRONMENT, "TERM": term, "REDMESH_PID": str(self._pid)}
        environment["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
        try:
            return os.posix_spawn(words[0], words, environment, file_actions=actions, setsid=True)
        finally:
            if code >= 0:
                os.close(code)

    def _watch(self) -> None:
        mask = (READ if self._untaken < WINDOW else 0) | (WRITE if self._typed else 0)
        self._loop.watch(self._terminal.master, mask, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE and self._typed:
            try:
                del self._typed[: os.write(self._terminal.master, self._typed)]
            except OSError:
                self._typed.clear()
        if events & ~WRITE:
            self._read()
        if self._open:
            self._watch()

    def _read(self) -> None:
        try:
            data = os.read(self._terminal.master, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the other end of the terminal is closed
        if not data:
            self._end("")
            return
        self._untaken += len(data)
        self._say(data.decode("latin-1"))

    def typed(self, data: bytes) -> None:
        """Terminal input."""
        if self._open and len(self._typed) + len(data) <= _HELD:
            self._typed += data
            self._watch()

    def taken(self, count: int) -> None:
        """The other end has displayed ``count`` bytes."""
        self._untaken = max(0, self._untaken - count)
        if self._open:
            self._watch()

    def resize(self, rows: int, columns: int) -> None:
        """The window has a new size."""
        if self._open:
            self._terminal.resize(rows, columns)

    def leave(self) -> None:
        """The other end is gone: hang up the debugger, and kill what does not exit by itself."""
        self._end("left")

    def _end(self, why: str) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.unwatch(self._terminal.master)
        os.close(self._terminal.master)
        self._loop.after(_LEAVE_S, lambda: self._send(signal.SIGTERM))
        self._loop.after(2 * _LEAVE_S, lambda: self._send(signal.SIGKILL))
        self._settle(0)
        self._over(why)

    def _there(self) -> bool:
        return processes.parent(self._tool) == os.getpid() and processes.alive(self._tool)

    def _send(self, number: int) -> None:
        if self._there():
            processes.send_signal(self._tool, number)

    def _look(self) -> None:
        # A killed process stays with its tracer until the tracer releases it: an idle debugger would keep the launch
        # alive.
        if not self._open:
            return
        if processes.state(self._pid) == "Z" and len(processes.threads(self._pid)) < 2:
            if self._seen_dead:
                self._end("the rank's process has been killed")
                return
            self._seen_dead = True
        self._loop.after(_LOOKS_S, self._look)

    def _settle(self, times: int) -> None:
        # After the debugger's exit, the rank is stopped or running as it was before.
        if self._there() and times < 100:
            self._loop.after(0.05, lambda: self._settle(times + 1))
        elif not self._was_stopped and processes.state(self._pid) == "T":
            processes.send_signal(self._pid, signal.SIGCONT, self._started)


# The debuggers of a launch: each runs on its rank's node, and its output is sent up. Imported when one starts.


#: The most debuggers of one launch on one node.
MOST = 16


class Sessions:
    """The debug sessions of one launch child; ``tell`` sends messages to its parent."""

    def __init__(
        self, loop: Loop, node: str, children: List[Child], ranks: Ranks, tell: Callable[[Message], None],
        fetch: Callable[[str, Callable[[str, str], None]], None],
    ) -> None:  # fmt: skip
        self._fetch = fetch  # fetches a tool that the launcher has and this node lacks
        self._loop, self._node, self._children, self._ranks, self._tell = loop, node, children, ranks, tell
        self._here: Dict[int, DebugSession] = {}
        self._below: Dict[int, Child] = {}
        self._coming: Dict[int, bool] = {}  # sessions whose tool is being fetched

    def on_order(self, op: str, message: Message) -> None:
        """``debug`` starts a session; the other operations are for a running one."""
        number = message["session"]
        if op == "debug":
            self._begin(number, message)
            return
        child, here = self._below.get(number), self._here.get(number)
        if child is not None:
            child.send_raw(control(message))
        elif here is None:  # it has just ended, or waits for its tool
            if op == "debug_leave":
                self._coming.pop(number, None)
        elif op == "debug_type":
            try:
                here.typed(message["data"].encode("latin-1"))
            except UnicodeEncodeError:
                raise WireError("input of a terminal is sent byte by byte") from None
        elif op == "debug_size":
            here.resize(message["rows"], message["columns"])
        elif op == "debug_taken":
            here.taken(message["bytes"])
        else:
            here.leave()

    def _begin(self, number: int, message: Message) -> None:
        wanted = message["rank"]
        for child in self._children:
            if wanted in child.ranks and not child.over:
                self._below[number] = child
                child.send_raw(control(message))
                return
        tool = str(message["command"][0]) if message["command"] else ""
        tools = message.get("tools") or {}
        if tool in tools and not usable(str(tools[tool])) and not crash.find(tool):
            self._coming[number] = True
            self._fetch(tool, lambda path, _why: self._arrived(number, dict(message, tools={tool: path})))
            return
        self._begin_here(number, message)

    def _arrived(self, number: int, message: Message) -> None:
        if self._coming.pop(number, False):  # the session may have been closed meanwhile
            self._begin_here(number, message)

    def _begin_here(self, number: int, message: Message) -> None:
        wanted = message["rank"]
        try:
            if not message["command"]:
                raise Refused("no debugger is named")
            if len(self._here) >= MOST:
                raise Refused(f"{self._node}: {MOST} debuggers are here already")
            rank = self._ranks.by_number.get(wanted)
            if rank is None or rank.status is not None:
                raise Refused(f"{self._node}: rank {wanted} has ended" if rank else f"rank {wanted} is nowhere")
            self._here[number] = DebugSession(
                self._loop, self._node, rank.pid, message,
                lambda data: self._tell({"op": "debug_said", "session": number, "data": data}),
                lambda why: self._ended(number, why),
            )  # fmt: skip
        except PctError as error:
            self._tell({"op": "debug_over", "session": number, "message": error.message, "hint": error.hint})
        except (OSError, ValueError) as error:  # no terminals left, or a zero byte in a word
            self._tell({"op": "debug_over", "session": number, "message": f"{self._node}: no debugger: {error}"})

    def _ended(self, number: int, why: str) -> None:
        self._here.pop(number, None)
        self._tell({"op": "debug_over", "session": number, "message": why})

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree is lost, with its debuggers."""
        for number in [number for number, below in self._below.items() if below is child]:
            del self._below[number]
            self._tell({"op": "debug_over", "session": number, "message": f"{child.name}: {reason}"})

    def cancel(self) -> None:
        """Everything is being killed."""
        self._coming.clear()
        for session in list(self._here.values()):
            session.leave()
