"""Runs a command for one attempt. The command and everything that it has started end with the attempt.

``start`` starts a guard (``python -P -m redmesh attempt``), and the guard starts the command. A signal at the death of
the parent (prctl) is not enough alone: the kernel binds it to the thread that forked, and it does not reach
grandchildren. So the guard has one thread, inherits orphaned descendants as subreaper, and holds one end of a socket.
The kernel closes the other end when the process that called ``start`` dies, however it dies; the guard then kills all
of its descendants. The command itself also dies with the guard.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence

_AGAIN_S = 0.01  # between two kills of processes that have not ended yet
_KILL_S = 4.0  # for descendants to end that were killed
_END_S = 5.0  # for a guard to kill what an interrupted attempt has started
_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Attempt:
    """A command that runs for this process, with everything that it starts.

    When it has ended, nothing that it has started runs any more, except processes that changed their user.
    """

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        """Start ``words``; ``options`` are those of Popen: the standard streams, ``cwd``, ``env``. Raises OSError."""
        from redmesh.start_command import start_command  # the agents' archive, which has this module, lacks it

        self._program = words[0]
        self._line, theirs = socket.socketpair()
        try:
            with theirs:
                fd = theirs.fileno()
                self.guard = subprocess.Popen(
                    [*start_command("attempt"), str(fd), *words], pass_fds=[fd], **options
                )  # fmt: skip
        except BaseException as error:
            self._line.close()
            if isinstance(error, OSError) and error.errno == errno.E2BIG:
                raise OSError(error.errno, error.strerror, self._program) from None  # it names our Python
            raise

    def wait(self, timeout: Optional[float] = None) -> int:
        """Wait for its end; returns its exit status, or -N if signal N has ended it.

        Raises OSError if it could not be started, and TimeoutExpired.
        """
        status = self.guard.wait(timeout)
        with self._line:
            told = self._line.recv(64) if self._line.fileno() >= 0 else b""
        if told:
            raise OSError(int(told), os.strerror(int(told)), self._program)
        return status

    def kill(self) -> None:
        """Kill the command and everything that it has started."""
        self._line.shutdown(socket.SHUT_RDWR)


def run(words: Sequence[str], cwd: str, stdout: Optional[int] = None) -> int:
    """Run a command in ``cwd``, without input; returns as :meth:`Attempt.wait`. Raises OSError."""
    attempt = Attempt(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout)
    try:
        return attempt.wait()
    except BaseException:
        if attempt.guard.poll() is None:
            attempt.kill()
            try:
                attempt.guard.wait(_END_S)
            except subprocess.TimeoutExpired:
                pass  # a process waits for a device; the guard kills it as soon as that is possible
        raise


def main(words: List[str]) -> int:
    """Be the guard of one command, ``words[1:]``; ``words[0]`` is the descriptor of the socket. Returns the command's
    exit status, or dies by the signal that has ended the command."""
    from agents.linux import prctl  # not loaded by the process that starts the guard
    from agents.linux.ready import ready

    line = socket.socket(fileno=int(words[0]))
    line.set_inheritable(False)
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    ended: List[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for one in _ENDS:
        if signal.getsignal(one) != signal.SIG_IGN:  # ignored (nohup): so it is for the command
            signal.signal(one, lambda number, _frame: ended.append(number))
    prctl.become_subreaper()
    leads = os.getpgrp() == os.getpid()  # the caller asked for a session of its own
    try:
        command = subprocess.Popen(words[1:], preexec_fn=_bound_to(os.getpid(), own_group=leads))
    except OSError as error:
        line.sendall(str(error.errno).encode())
        return 127
    if not leads:
        # The command stays in the caller's group, so it may read from the terminal, and stops with the caller. An
        # interrupt at the terminal reaches both; the caller then ends the attempt.
        os.setpgid(0, 0)
    told: Optional[int] = None
    while told is None and not ended:
        woken = ready(line.fileno(), reader)
        if line.fileno() in woken:
            ended.append(signal.SIGKILL)
        if reader in woken:
            os.read(reader, 4096)
        told = _reap(command.pid)
    _kill_descendants()
    if told is not None and not os.WIFSIGNALED(told):
        return os.WEXITSTATUS(told)
    prctl.forbid_core()  # the command has dumped its own
    number = ended[0] if told is None else os.WTERMSIG(told)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _bound_to(guard: int, *, own_group: bool) -> Callable[[], None]:
    """What the command does before it is executed: it is bound to die with the guard."""
    from agents.linux import prctl

    def bind() -> None:
        if own_group:
            os.setpgid(0, 0)
        prctl.die_with_parent()
        if os.getppid() != guard:
            os._exit(1)

    return bind


def _reap(command: int) -> Optional[int]:
    """Reap all children that have exited; returns the wait status of ``command`` if it was one of them."""
    found: Optional[int] = None
    while True:
        try:
            pid, told = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        if pid == command:
            found = told


def _kill_descendants() -> None:
    """Kill all descendants of this process that it may kill, and wait for their end, for a few seconds at the most:
    what forks and exits without pause may never be in a list of processes."""
    from agents.linux import processes

    until = time.monotonic() + _KILL_S
    while time.monotonic() < until:
        _reap(0)
        if not _has_children():  # a list of descendants may lack those that fork and exit while it is read
            return
        found = processes.descendants(os.getpid())
        refused = processes.kill_all(found)
        if refused and not any(processes.alive(pid) for pid in set(found) - set(refused)):
            return
        time.sleep(_AGAIN_S)  # waits until the killed processes have exited


def _has_children() -> bool:
    """True if this process, which is a subreaper, has a child: it has one as long as it has any descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
