"""Runs a user's command for one attempt. The command and everything that it has started end with the attempt.

``run`` starts a guard (``python -P -m redmesh attempt``), and the guard starts the command. A signal at the death of
the parent (prctl) is not enough alone: the kernel binds it to the thread that forked, and it does not reach
grandchildren. So the guard has one thread, inherits orphaned descendants as subreaper, and holds one end of a socket.
The kernel closes the other end when the process that called ``run`` dies, however it dies; the guard then kills all of
its descendants. The command itself also dies with the guard.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time

from redmesh.start_command import start_command

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Optional, Sequence

_AGAIN_S = 0.01  # between two kills of processes that have not ended yet
_END_S = 5.0  # for a guard to kill what an interrupted attempt has started
_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def run(words: Sequence[str], cwd: str, stdout: Optional[int] = None) -> int:
    """Run a command in ``cwd`` and return its exit status, 128 and the number for a signal.

    When this returns or raises, no process that the command has started runs any more, except those that changed their
    user. Raises OSError if the command cannot be started.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            guard = subprocess.Popen([*start_command("attempt"), *words], cwd=cwd, stdin=theirs.fileno(), stdout=stdout)
        try:
            status = guard.wait()
        except BaseException:
            ours.shutdown(socket.SHUT_RDWR)
            try:
                guard.wait(_END_S)
            except subprocess.TimeoutExpired:
                pass  # a process waits for a device; the guard kills it as soon as that is possible
            raise
        told = ours.recv(64)
    if told:
        raise OSError(int(told), os.strerror(int(told)), words[0])
    return status if status >= 0 else 128 - status


def main(words: List[str]) -> int:
    """Be the guard of one command; returns its exit status."""
    from agents.linux import prctl  # not loaded by the process that calls ``run``

    line = socket.socket(fileno=os.dup(0))
    fd = line.fileno()
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    ended: List[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in _ENDS:
        signal.signal(number, lambda number, _frame: ended.append(number))
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # an interrupt at the terminal reaches the process that waits, which then ends the attempt
    prctl.become_subreaper()
    guard = os.getpid()

    def bind() -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it may write to the terminal, though in the background
        prctl.die_with_parent()
        if os.getppid() != guard:
            os._exit(1)

    try:
        command = subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=bind)
    except OSError as error:
        line.sendall(str(error.errno).encode())
        return 127
    status: Optional[int] = None
    while status is None and not ended:
        ready, _, _ = select.select([fd, reader], [], [])
        if fd in ready:
            ended.append(0)
        if reader in ready:
            os.read(reader, 4096)
        status = _reap(command.pid)
    _kill_descendants()
    return 128 + (ended[0] or signal.SIGKILL) if status is None else status


def _reap(command: int) -> Optional[int]:
    """Reap all children that have exited; returns the exit status of ``command`` if it was one of them."""
    found: Optional[int] = None
    while True:
        try:
            pid, told = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        if pid == command:
            found = 128 + os.WTERMSIG(told) if os.WIFSIGNALED(told) else os.WEXITSTATUS(told)


def _kill_descendants() -> None:
    """Kill all descendants of this process that it may kill, and wait for their end."""
    from agents.linux import processes

    while True:
        _reap(0)
        found = [pid for pid in processes.descendants(os.getpid()) if processes.alive(pid)]
        if not set(found) - set(processes.kill_all(found)):
            return
        time.sleep(_AGAIN_S)  # waits until the killed processes have exited


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
