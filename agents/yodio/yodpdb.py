"""pdb in a Python program that runs: the way in, which the program opens, and who comes by it.

    import yodpdb
    yodpdb.debug_on_request()     # from now on: mesh debug LAUNCHER RANK pdb
    yodpdb.debug_here()           # wait at this line until somebody comes that way

The way in is a socket without a file; the kernel itself signals the program when somebody connects, so a process that
has not opened it cannot be harmed. Standard library only, Python 3.9; one file, which ranks run as it is.
"""

from __future__ import annotations

import fcntl
import os
import pdb
import select
import signal
import socket
import struct
import sys
import time
from _thread import get_ident, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, List, Optional

__all__ = ["debug_here", "debug_on_request"]

_F_SETSIG = 10  # fcntl(2); not in every Python's fcntl
#: Signals that the program may not need; the first unused one is taken. The kernel sends one when somebody connects,
#: and stops with the socket. The node sends the other to ask for stacks, so it should be one that is harmless when
#: ignored.
_SIGNALS = (signal.SIGIO, signal.SIGUSR2, signal.SIGUSR1)
_ASKING = (signal.SIGURG, signal.SIGUSR2, signal.SIGUSR1)
#: Anybody on the host can connect. So many connections are accepted before the program goes on, and so many seconds
#: later the next ones; meanwhile the queue is full, so that nobody connects and no signal comes.
_AT_ONCE = 64
_PAUSE_S = 0.1


def _name(pid: int) -> str:
    return "\0redmesh-pdb-%d" % pid


def _peer(sock: socket.socket) -> "tuple[int, int]":
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


class _Visitor:
    """The remote end as files for pdb; after a disconnect it reads as the end of the input."""

    encoding = "utf-8"

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._read = sock, bytearray()

    def readline(self) -> str:
        """A line with its newline, or the rest at the end."""
        while b"\n" not in self._read:
            try:
                data = self._sock.recv(4096)
            except OSError:
                data = b""
            if not data:
                return ""
            self._read += data
        line, _, rest = self._read.partition(b"\n")
        self._read = bytearray(rest)
        return line.decode("utf-8", "replace") + "\n"

    def write(self, text: str) -> int:
        """Write; errors are ignored."""
        try:
            self._sock.sendall(text.encode("utf-8", "replace"))
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Disconnect."""
        self._sock.close()


class _Session(pdb.Pdb):
    """A debug session: ends when the user continues without a breakpoint, quits, or disconnects. The program
    continues."""

    def __init__(self, visitor: _Visitor) -> None:
        super().__init__(stdin=visitor, stdout=visitor, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self.use_rawinput = False
        self._visitor = visitor
        self.talking, self.open = False, True

    def enter(self, frame: "Optional[FrameType]") -> None:
        """Interact at ``frame`` now, because the call it waits in may last."""
        sys.settrace(None)  # ^C: it works, and what follows is not debugged
        self.reset()
        self.interaction(frame, None)
        if self.open:
            here = frame
            while here is not None:
                here.f_trace = self.trace_dispatch
                self.botframe = here
                here = here.f_back
            sys.settrace(self.trace_dispatch)

    def interaction(self, *arguments: "Any", **options: "Any") -> None:
        self.talking = True
        try:
            super().interaction(*arguments, **options)
        finally:
            self.talking = False

    def do_continue(self, arg: str) -> "Any":
        """Continue; with breakpoints to the next one."""
        told = super().do_continue(arg)
        if not self.breaks:
            self._leave()
        return told

    def do_quit(self, arg: str) -> "Any":
        """End the session; the program continues."""
        self.clear_all_breaks()
        self.set_continue()
        self._leave()
        return 1

    def do_clear(self, arg: str) -> "Any":
        """As in pdb; without a number it clears all without asking, because the answer would be read from the
        program's input."""
        if arg:
            return super().do_clear(arg)
        self.clear_all_breaks()
        self.message("all breakpoints are cleared")

    def do_run(self, arg: str) -> "Any":
        """Not supported: a launch starts only once."""
        self.error("a rank cannot be begun again")

    def do_interact(self, arg: str) -> "Any":
        """Not supported: it would read the program's own input."""
        self.error("there is no interpreter here; a line that begins with ! is run")

    def _leave(self) -> None:
        self.open = False
        self._visitor.close()

    do_c = do_cont = do_continue
    do_q = do_exit = do_EOF = do_quit
    do_cl = do_clear
    do_restart = do_run


class _Way:
    """The socket to which debuggers connect."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.session: Optional[_Session] = None
        self.waiting_at: Optional[FrameType] = None
        self._welcoming = self._knocked = self._pausing = False
        self._signal, self._main = 0, get_ident()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.sock.bind(_name(self.pid))
        self.sock.listen(4)
        self.sock.setblocking(False)

    def let_signal(self) -> None:
        """Have connections noticed at once. Raises RuntimeError if every signal is in use."""
        self._signal = number = _unused(_SIGNALS)
        signal.signal(number, lambda _number, frame: self.welcome(frame))
        signal.siginterrupt(number, False)
        fcntl.fcntl(self.sock, fcntl.F_SETOWN, self.pid)
        fcntl.fcntl(self.sock, _F_SETSIG, number)
        fcntl.fcntl(self.sock, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def welcome(self, frame: "Optional[FrameType]") -> None:
        """Accept the waiting connections, and serve the first permitted one.

        Signals of further connections interrupt this: handled in separate calls, a thousand of them would exceed the
        interpreter's recursion limit and end the program.
        """
        self._knocked = True
        if self._welcoming or self._pausing:
            return
        come: List[socket.socket] = []
        left = _AT_ONCE
        while self._knocked and left:  # a signal may come between the last check and the flag
            self._welcoming = True
            try:
                while self._knocked and left:
                    self._knocked = False
                    left = self._accept(come, left)
            finally:
                self._welcoming = False
        if not left:
            self._pausing = True
            start_new_thread(self._knock_later, ())
        if come:
            self._let_in(come[0], frame)  # the last statement, because later calls would be traced

    def _knock_later(self) -> None:
        time.sleep(_PAUSE_S)
        self._pausing = False
        signal.pthread_kill(self._main, self._signal)

    def _accept(self, come: "List[socket.socket]", most: int) -> int:
        """Accept up to ``most`` connections; returns how many more may be accepted now."""
        while most and os.getpid() == self.pid:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                break
            most -= 1
            if not come and _peer(sock)[1] in (os.geteuid(), 0):
                come.append(sock)
            else:
                sock.close()
        return most

    def _let_in(self, sock: socket.socket, frame: "Optional[FrameType]") -> None:
        sock.setblocking(True)
        if self.session is not None and self.session.open:
            sock.close()
            if not self.session.talking:  # ^C
                self.session.enter(frame)
            return
        at, self.waiting_at = self.waiting_at or frame, None
        self.session = _Session(_Visitor(sock))
        self.session.enter(at)


def _unused(signals: "tuple[signal.Signals, ...]") -> int:
    with open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
    taken = int(rows["SigCgt"], 16) | int(rows["SigBlk"], 16)
    for number in signals:
        if not taken >> (number - 1) & 1:
            return number
    raise RuntimeError("no signal is left for debug_on_request")


_ways: "List[_Way]" = []
_stacks: "List[int]" = []  # the file for stacks


def _tell_stacks() -> None:
    """Have faulthandler write the stacks of all threads for mesh stacks (agents/pct/debug/faulthandler.py)."""
    import faulthandler

    number = _unused(_ASKING)
    _stacks.append(os.memfd_create("redmesh-stacks-%d" % number))
    faulthandler.register(number, file=_stacks[0], all_threads=True)


def _forget() -> None:
    for way in _ways:  # the parent's
        way.sock.close()
    _ways.clear()


os.register_at_fork(after_in_child=_forget)


def debug_on_request() -> None:
    """Admit ``mesh debug LAUNCHER RANK pdb`` from now on. Only in the main thread; raises RuntimeError if no signal
    is free."""
    if not _ways:
        way = _Way()
        try:
            way.let_signal()
        except BaseException:
            way.sock.close()
            raise
        _ways.append(way)
        if not _stacks:
            _tell_stacks()


def debug_here() -> None:
    """Wait here for ``mesh debug LAUNCHER RANK pdb``; the session begins at the next line."""
    frame = sys._getframe(1)
    debug_on_request()
    way = _ways[0]
    way.waiting_at = frame
    where = os.environ.get("YOD_LAUNCHER_ID", "LAUNCHER"), os.environ.get("YOD_RANK", "RANK")
    place = "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
    sys.stderr.write("%s waits for: mesh debug %s %s pdb\n" % ((place,) + where))
    sys.stderr.flush()
    while way.waiting_at is not None:
        select.select([way.sock], [], [], 1.0)  # the signal arrives meanwhile, and with it way.welcome
        way.welcome(frame)


# The debugger's side

_WAITS_S = 2.0


def _connected(pid: int) -> "Optional[socket.socket]":
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(_name(pid))
    except OSError:
        sock.close()
        return None
    if _peer(sock)[0] != pid:
        sys.exit(f"pdb: somebody else listens for process {pid}")
    return sock


def _visit(pid: int, sock: socket.socket) -> None:
    def interrupt(_number: int, _frame: "Any") -> None:
        other = _connected(pid)
        if other is not None:
            other.close()

    signal.signal(signal.SIGINT, interrupt)
    waited = True
    while True:
        ready, _, _ = select.select([0, sock.fileno()], [], [], _WAITS_S if waited else None)
        if not ready:
            waited = False
            print("(the main thread is in a C call: pdb stops it when that returns)", flush=True)
        if sock.fileno() in ready:
            waited = False
            data = sock.recv(65536)
            if not data:
                return
            os.write(1, data)
        if 0 in ready:
            data = os.read(0, 4096)
            if not data:
                return
            sock.sendall(data)


def main(pid: int) -> int:
    """Connect to process ``pid``."""
    sock = _connected(pid)
    if sock is None:
        print(f"pdb: process {pid} lets nobody in")
        return 1
    try:
        _visit(pid, sock)
    except OSError:
        pass  # it has exited
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
