"""Questions of a keeper to the batch system. A child process asks, because a batch system's commands may take seconds.

The child keeps the keeper's name, so it is no stray (agents/keeper/orphans.py); the keeper reaps it.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import signal
from agents.link.loop import READ
from agents.linux import ending, processes
from agents.linux.batch_signals import Reach
from agents.managers import registry
from redmesh.managers import ManagerError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, NoReturn, Optional

    from agents.link.journal import Journal
    from agents.link.loop import Loop

#: Seconds from one question to the next one.
AGAIN_S = 1.0
#: Seconds for an answer: a manager may ask two commands, and each of them may take as long as managers.ask lets it.
ANSWER_S = 25.0
#: Seconds until the manager is asked again which processes its signals reach, and the longest such time: it doubles.
REACH_S, MOST_REACH_S = 60.0, 3600.0
_GOES_ON, _FAILED = "goes on", "?"


class InChild:
    """Calls ``question`` in a child process, and ``then`` with the text that it returned, or ``?`` and a reason."""

    def __init__(self, loop: Loop, question: Callable[[], str], then: Callable[[str], None]) -> None:
        self._loop, self._then, self._text = loop, then, b""
        try:
            self._reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            reason = f"{_FAILED}{error.strerror}"
            loop.after(0.0, lambda: then(reason))
            return
        try:
            self._pid = os.fork()
        except OSError as error:
            self._pid, self._text = 0, f"{_FAILED}{error.strerror}".encode()
        if self._pid == 0 and not self._text:
            _be_child(loop, question, writer)
        os.close(writer)
        self._timer = loop.after(ANSWER_S, self._on_late)
        loop.watch(self._reader, READ, self._on_text)

    def _on_text(self, _events: int) -> None:
        data = os.read(self._reader, 4096)
        self._text += data
        if not data:
            self._end(self._text.decode("utf-8", "replace") or f"{_FAILED}the process that asked was killed")

    def _on_late(self) -> None:
        if self._pid:
            processes.send_signal(self._pid, signal.SIGKILL)
        self._end(f"{_FAILED}no answer within {ANSWER_S:g} s")

    def _end(self, text: str) -> None:
        self._timer.cancel()
        self._loop.unwatch(self._reader)
        os.close(self._reader)
        self._then(text)


def _be_child(loop: Loop, question: Callable[[], str], writer: int) -> NoReturn:
    try:
        loop.abandon()
        for name in os.listdir("/proc/self/fd"):  # among them the lock of the mesh, and the inputs of its clients
            if int(name) > 2 and int(name) != writer:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # that of this listing
        try:
            text = question()
        except ManagerError as error:
            text = f"{_FAILED}{error.message}"
        except Exception as error:  # a third party's manager
            text = f"{_FAILED}{error!r:.200}"
        os.write(writer, text.encode("utf-8", "backslashreplace")[:4000])
    finally:
        os._exit(0)


class Answer:
    """``known``: the manager answered. ``left_s``: seconds from its SIGTERM to its SIGKILL; None: the job goes on.

    ``asked_at``: when it was asked, monotonic.
    """

    __slots__ = ("asked_at", "known", "left_s")

    def __init__(self, asked_at: float, known: bool, left_s: Optional[float]) -> None:
        self.asked_at, self.known, self.left_s = asked_at, known, left_s


class EndQuestion:
    """Asks whether the job ends: one question at a time for all callers, and at most one in AGAIN_S."""

    def __init__(self, loop: Loop, log: Journal, manager: str) -> None:
        self._loop, self._log, self._manager = loop, log, manager
        self._then: List[Callable[[Answer], None]] = []
        self._asking = False
        self._asked_at = -AGAIN_S
        self._says_end: Optional[bool] = None

    @property
    def manager_says_end(self) -> bool:
        """True if the manager can say whether the job ends; False if it names only a constant time until SIGKILL."""
        if self._says_end is None:
            try:
                self._says_end = hasattr(registry.load(self._manager), "ending")
            except ManagerError:
                self._says_end = False
        return self._says_end

    def ask(self, then: Callable[[Answer], None]) -> None:
        """``then`` gets the next answer, perhaps to a question that was asked already (``asked_at``)."""
        self._then.append(then)
        if not self._asking:
            self._asking = True
            self._loop.after(max(0.0, self._asked_at + AGAIN_S - time.monotonic()), self._ask)

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        if self.manager_says_end:
            InChild(self._loop, self._question, self._on_text)
            return
        try:
            text = self._question()
        except ManagerError as error:
            text = f"{_FAILED}{error.message}"
        self._on_text(text)

    def _question(self) -> str:
        try:
            manager = registry.load(self._manager)
        except ManagerError:
            manager = None  # a plug-in that only the script's host has: as one that names no time
        left_s = registry.kill_wait(manager, os.environ)
        return _GOES_ON if left_s is None else repr(float(left_s))

    def _on_text(self, text: str) -> None:
        self._asking = False
        known = not text.startswith(_FAILED)
        left_s = None if not known or text == _GOES_ON else float(text)
        if known:
            self._log.write("signal of the manager", job_ends_in_s=left_s)
        else:
            self._log.write("the manager does not say whether the job ends", reason=text[len(_FAILED) :])
        callers, self._then = self._then, []
        for then in callers:
            then(Answer(self._asked_at, known, left_s))


class ReachQuestion:
    """Asks which processes the manager's signals reach, because it did not answer when the mesh started.

    Until it answers, the mesh assumes that the signals reach only the processes that the manager has started itself.
    """

    def __init__(self, loop: Loop, log: Journal, manager: str, state: str) -> None:
        self._loop, self._log, self._manager, self._state = loop, log, manager, state
        log.write("the manager does not say which processes its signals reach", assumed=Reach.TASK)
        self._again(REACH_S)

    def _again(self, wait_s: float) -> None:
        apart_s = os.getpid() % 100 / 100 * wait_s  # or thousands of nodes would ask at once
        self._loop.after(wait_s + apart_s, lambda: self._ask(min(2 * wait_s, MOST_REACH_S)))

    def _ask(self, next_s: float) -> None:
        InChild(self._loop, self._question, lambda text: self._on_text(text, next_s))

    def _question(self) -> str:
        return registry.signals_reach(registry.load(self._manager), os.environ)

    def _on_text(self, text: str, next_s: float) -> None:
        try:
            if not text.startswith(_FAILED):
                ending.learn_reach(self._state, text)
                self._log.write("the manager says which processes its signals reach", reach=text)
                return
            reason = text[len(_FAILED) :]
        except OSError as error:
            reason = str(error)
        self._log.write("the manager does not say which processes its signals reach", reason=reason, assumed=Reach.TASK)
        self._again(next_s)
