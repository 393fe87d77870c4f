"""The second part of the program that a manager runs on each host: reads frames, and waits for the keeper's exit.

It is sent as text after ``console/deploy/ssh/bootstrap.py`` and uses the names defined there: standard library only,
Python 3.9. If one client of the manager feeds all hosts, all of them read the same bytes, and each frame names its
host. The process stays as the parent of the node's keeper until the keeper exits, because managers track the
descendants of the processes that they started.
"""

from __future__ import annotations

import _socket as socket  # importing the module socket would take 6 ms on each host
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.deploy.ssh.bootstrap import (
        Trouble,
        announce,
        base,
        own_directory,
        processes,
        read,
        remove_file,
        stop,
        write,
    )
    from console.deploy.ssh.bootstrap import serve as _serve_requests
else:
    _serve_requests = serve  # noqa: F821 (bootstrap.py precedes this text)

#: Frames for every host, and the frame with the agent's archive: ``!agent SHA-256 LENGTH``.
ALL, AGENT = b"*", b"!agent"
#: The frame after which no request follows: from then on, the end of input ends the node.
LIFELINE = b"!lifeline"
#: Bytes of a line at most: srun cuts longer ones in two after 1,024.
LONGEST = 1000
#: The signals that agents/linux/batch_signals.py passes on to the ranks; SIGTERM, SIGSTOP, SIGTSTP and SIGCONT.
_FORWARDED = (1, 2, 3, 10, 12, 14, 15, 24, 26, 27, 29, 30)
_TERM, _STOP, _TSTP, _CONT = 15, 19, 20, 18
#: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
_ENDS = (1, 2, 3, 15)
#: Reaches that leave out the ranks.
_APART = ("task", "group")


class Frames:
    """The bytes of the frames for one host, as a file. Each frame is ``HOST LENGTH`` and that many bytes."""

    def __init__(self, source: Any, host: str) -> None:
        self._source, self._host, self._buffer = source, host.encode(), b""
        self.lifeline = False

    def _more(self) -> bool:
        words = [] if self.lifeline else self._source.readline().split()
        self.lifeline = self.lifeline or words[:1] == [LIFELINE]
        if len(words) < 2 or self.lifeline:
            return False
        content = self._source.read(int(words[-1]))
        if words[0] == AGENT:
            keep_agent(words[1].decode(), content)
        elif words[0] in (ALL, self._host):
            self._buffer += content
        return True

    def readline(self) -> bytes:
        """A line; empty at the end."""
        while b"\n" not in self._buffer and self._more():
            pass
        line, newline, self._buffer = self._buffer.partition(b"\n")
        return line + newline

    def read(self, size: int) -> bytes:
        """``size`` bytes; fewer at the end."""
        while len(self._buffer) < size and self._more():
            pass
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found


def keep_agent(sha: str, content: bytes) -> None:
    """Store the agent where the request ``start`` looks for it."""
    directory = os.path.join(base(), "agents")
    own_directory(base())
    own_directory(directory)
    path = os.path.join(directory, sha + ".pyz")
    if not os.path.exists(path):
        write(path, content)


def hold_start() -> int:
    """Lock ``start.lock`` until this process exits, so that no keeper of another job takes this node, which starts, for
    a dead one and removes its files (agents/keeper/leftovers.py). Returns the descriptor; -1 without a lock."""
    import fcntl

    for _ in range(100):  # another keeper may remove what an earlier start of the job left here
        try:
            own_directory(base())
            fd = os.open(start_lock(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        except (OSError, Trouble):
            return -1  # the request ``start`` says why
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)  # shared with other clients of the manager on this host
        except OSError:
            return fd  # this file system has no locks, so no keeper removes anything on it
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
    return -1


def start_lock() -> str:
    """The file by whose lock others see that this process runs."""
    return os.path.join(base(), "start.lock")


def find_agent(path: str) -> None:
    """Store the agent from the user's directory ``path``, if this host sees it: then nobody has to send it.

    The file begins with the agent's SHA-256 (console/deploy/agent/build.py), which the request ``start`` checks.
    """
    try:
        with open(path, "rb") as file:
            keep_agent(file.read(64).decode("ascii"), file.read())
    except (OSError, ValueError):
        pass  # the answer ``facts`` says that this host has no agent


def free_port(address: str) -> int:
    """An unused TCP port at that address."""
    probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    probe.bind((address, 0))
    port: int = probe.getsockname()[1]
    probe.close()
    return port


def way_to(login: str) -> tuple[str, str]:
    """Return this host's address on the route to the first name in ``login`` that has one, and that name's address."""
    for name in login.split(","):
        try:
            # Bytes, because text would be encoded by a codec whose import takes longer than everything here.
            for family, _, _, _, place in socket.getaddrinfo(name.encode(), 9, type=socket.SOCK_DGRAM):
                probe = socket.socket(family, socket.SOCK_DGRAM)
                try:
                    probe.connect(place)  # nothing is sent: the kernel chooses our address
                    return str(probe.getsockname()[0]), str(place[0])
                finally:
                    probe.close()
        except OSError:
            continue
    return "", ""


def end_with_input(fd: int, state: str) -> None:
    """End the node when the input ends: see ``lifelines`` in steps.py."""
    import _thread
    import signal

    def watch() -> None:
        # The main thread, which waits for the keeper, would not wake up for a signal that this thread gets.
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        try:
            while os.read(fd, 4096):
                pass
        except OSError:
            pass
        announce(state)
        os.kill(os.getpid(), 15)

    _thread.start_new_thread(watch, ())


def stay(node: str, lifeline: bool, reach: str) -> None:
    """Wait until the keeper that this process started exits; then clean up the node.

    ``reach``: the processes that the manager signals (agents/linux/batch_signals.py). Unless these are all, pass on
    signals to the launch children, which know how to pass them on once; SIGTERM also to the keeper, which asks whether
    the job ends. If it is empty, the mesh is not the job's own, and the node ends by the signal.
    """
    import signal

    given = os.dup(0)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    state = place_of(node)

    def forward(number: int, _frame: object) -> None:
        # Where hosts share a directory, the job's keeper may have removed the node's (agents/linux/ending.py).
        ends = not reach or os.path.exists(os.path.join(state, "ending")) or not os.path.isdir(state)
        if reach in _APART and not ends:
            to_launches(state, number)
        if (number == _TERM and (reach in _APART or ends)) or (not reach and number in _ENDS):
            for pid, kind in processes(state).items():
                if kind == "keeper":
                    os.kill(pid, _TERM)

    def stop_or_continue(number: int, _frame: object) -> None:
        if reach in _APART:  # the kernel stops a rank by SIGSTOP only, because its session has no terminal
            to_ranks(state, _STOP if number == _TSTP else number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    for number in (_TSTP, _CONT):
        signal.signal(number, stop_or_continue)
    if lifeline:
        end_with_input(given, state)
    else:
        os.close(given)
    ours = False
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
        ours = True
    if ours:  # otherwise another process started the keeper that runs there
        remove_file(start_lock())
        stop(node, False, {})
        remove_empty_directories(os.environ["XDG_STATE_HOME"])


def remove_empty_directories(path: str) -> None:
    """Remove the directory of this host, and those above it that were made for its job, if nothing else is there."""
    for _ in range(5):  # HOST, nodes, the job, all jobs, the user
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass  # the keeper has removed it
        except OSError:
            return
        path = os.path.dirname(path)


def place_of(node: str) -> str:
    """The node's directory."""
    return os.path.join(base(), "nodes", node)


def launches_of(state: str) -> set[int]:
    """The launch children of this node, and what they have just forked."""
    return {pid for pid, kind in processes(state).items() if kind.startswith("launch")}


def to_launches(state: str, number: int) -> None:
    """Send a signal of the manager to the launch children."""
    launches = launches_of(state)
    for pid in launches:
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(fields) > 2 and int(fields[1]) not in launches:
            try:
                os.kill(pid, number)
            except OSError:
                pass


def to_ranks(state: str, number: int) -> None:
    """Stop or continue all ranks: the children of this node's launch children."""
    launches = launches_of(state)
    for entry in os.listdir("/proc"):
        fields = read(f"/proc/{entry}/stat").rpartition(")")[2].split() if entry.isdigit() else ()
        if len(fields) > 2 and int(fields[1]) in launches and int(entry) not in launches:
            try:
                os.killpg(int(fields[2]), number)
            except OSError:
                pass


def serve(word: str, source: Any) -> None:
    """Answer requests until the end of input, then wait for the keeper."""
    host = os.environ.get(os.environ.get("REDMESH_HOST_VARIABLE", ""), "") or os.environ.get("REDMESH_HOST", "")
    node = os.environ["REDMESH_MESH"] + "-" + host
    archive = os.environ.get("REDMESH_AGENT", "")
    ours, theirs = way_to(os.environ["REDMESH_LOGIN"])
    if ours:
        os.environ["SSH_CONNECTION"] = f"{theirs} 0 {ours} {free_port(ours)}"
    os.environ["XDG_STATE_HOME"] = os.path.join(os.environ["REDMESH_JOB_STATE"], "nodes", host)
    reach = os.environ.get("REDMESH_SIGNALS_REACH", "")
    for name in ("AGENT", "HOST_VARIABLE", "HOST", "MESH", "LOGIN", "JOB_STATE", "SIGNALS_REACH"):
        os.environ.pop("REDMESH_" + name, None)
    hold_start()
    find_agent(archive)
    frames = Frames(source, host)
    _serve_requests(word + "@" + host, frames, LONGEST)
    stay(node, frames.lifeline, reach)
    sys.exit(0)
