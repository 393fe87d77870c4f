"""How launch children died. Their PCT saw it, and is asked by every peer that loses the connection to one.

A PCT that answers shows that its node works. So the cause of death (an internal error, the OOM killer, a user's ``kill
-9``) counts against the launch, never against the node: docs/decisions/0027.
"""

from __future__ import annotations

import os
import re
import time

from agents.link.lean import signal
from agents.link.link import Link
from agents.link.sockets import connect_now
from agents.pct.errors import FAULT, advice
from agents.pct.launch.paths import fault_file, launchers_here
from agents.wire.control import control, decode
from agents.wire.errors import AgentError
from agents.wire.messages import check_hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from agents.link.loop import Loop
    from agents.wire.control import Message

#: Seconds for a PCT to report how a launch child died; a silent PCT is itself at fault.
ANSWER_S = 2.0
_KILLED = "the node is not blamed: somebody meant the launch, or the kernel wanted memory (dmesg)"
_CUT = "a file that it read was cut short meanwhile, or its disk fails (dmesg); the node is not blamed"
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_LONGEST = 300  # characters of the last error text
_KEPT = 64  # deaths
_UNPLACED_S = 3.0  # for this long, a death of an unknown launch may answer a question


class Deaths:
    """A PCT's memory of dead launch children; ``told(launcher)`` is the report to others."""

    def __init__(self, run: str, node: str) -> None:
        self._run, self._node = run, node
        self._known: Dict[int, Message] = {}
        self._exiting: List[int] = []  # launchers whose launch children have written their fault file
        self._unplaced: Optional[Message] = None
        self._unplaced_at = 0.0

    def died(self, statuses: List[int], launchers: List[int]) -> None:
        """Launch children have died, with ``statuses`` (reaped by us or by others); ``launchers`` have lost theirs."""
        worst = min(statuses, key=os.WIFEXITED, default=-1)  # a signal is more informative than an exit status
        for launcher in launchers_here(self._run, self._node, "fault"):
            self._note(launcher, self._in_words(FAULT << 8, self._take_fault(launcher)))
            self._exiting.append(launcher)
        faults = [launcher for launcher in launchers if launcher in self._exiting]
        for launcher in set(launchers).difference(faults):
            self._note(launcher, self._in_words(worst, ""))
        self._exiting = [launcher for launcher in self._exiting if launcher not in faults]
        exited = max(0, min(len(self._exiting), statuses.count(FAULT << 8) - len(faults)))
        del self._exiting[:exited]
        # Another launch whose child has just died must not get the cause of a death whose launch is known.
        if len(statuses) > len(set(launchers)) + exited:
            self._unplaced, self._unplaced_at = self._in_words(worst, ""), time.monotonic()

    def _note(self, launcher: int, death: Message) -> None:
        self._known[launcher] = death
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def _take_fault(self, launcher: int) -> str:
        path = fault_file(self._run, self._node, launcher)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                words = file.read(_LONGEST)
            os.unlink(path)
            return words
        except OSError:
            return ""

    def told(self, launcher: int) -> Optional[Message]:
        """How it died, and what to do; None if nothing is known about its death."""
        death = self._known.get(launcher)
        if death is None and time.monotonic() - self._unplaced_at < _UNPLACED_S:
            death = self._unplaced  # it died before it was registered: its launch is unknown
        return death

    def _in_words(self, status: int, words: str) -> Message:
        hint = f"a fault of Redmesh, not of the node: report it with that node's log (pct-{self._node}.jsonl)"
        if status < 0:
            return {"message": "its launch child died", "hint": ""}
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number in (signal.SIGKILL, signal.SIGTERM):
                return {"message": f"its launch child was killed ({_name(number)})", "hint": _KILLED}
            told = f"its launch child died of {_name(number)}"
            return {"message": told, "hint": _CUT if number == signal.SIGBUS else hint}
        if os.WEXITSTATUS(status) == FAULT:
            found = _ERRNO.search(words)
            hint = (advice(int(found[1])) if found else "") or hint
            return {"message": "its launch child met a fault of its own" + (words and f": {words}"), "hint": hint}
        return {"message": f"its launch child ended with status {os.WEXITSTATUS(status)}", "hint": hint}


def _name(number: int) -> str:
    names = [name for name in dir(signal) if name[:3] == "SIG" and "_" not in name and getattr(signal, name) == number]
    return names[0] if names else f"signal {number}"


def write_fault(run: str, node: str, launcher: int, error: BaseException, where: List[str]) -> None:
    """For a launch child: write its error for its PCT, which reads it after the exit. Raises OSError."""
    first = (str(error).splitlines() or [""])[0]
    words = f"{type(error).__name__}: {first[: _LONGEST - 100]} ({where[-1] if where else 'nowhere'})"
    fd = os.open(fault_file(run, node, launcher), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", buffering=0) as file:
        file.write(words.encode("utf-8", "replace"))


def ask(loop: Loop, address: str, greeting: Message, launcher: int, then: Callable[[Optional[Message]], None]) -> None:
    """Ask the PCT at ``address`` how its launch child died; ``then(message and hint, or None)`` follows.

    None: it does not answer, or knows of no death. ``greeting``: the hello that it accepts.
    """
    _ask(loop, address, greeting, launcher, lambda death: then(death or None))


def ask_if_up(loop: Loop, address: str, greeting: Message, launcher: int, then: Callable[[bool], None]) -> None:
    """Ask the PCT at ``address``, whose launch child is silent; ``then(whether the PCT answers)`` follows."""
    _ask(loop, address, greeting, launcher, lambda death: then(death is not None))


def _ask(loop: Loop, address: str, greeting: Message, launcher: int, then: Callable[[Optional[Message]], None]) -> None:
    """``then`` gets an empty message from a PCT that knows of no death, and None from one that does not answer."""
    try:
        sock = connect_now(address)
    except (OSError, AgentError):
        loop.after(0, lambda: then(None))
        return
    Question(loop, sock, greeting, launcher, then)


class Question:
    """A question in progress; ``then`` is called once."""

    def __init__(
        self, loop: Loop, sock: Any, greeting: Message, launcher: int, then: Callable[[Optional[Message]], None]
    ) -> None:
        self._then: Optional[Callable[[Optional[Message]], None]] = then
        self._greeted = False
        self._timer = loop.after(ANSWER_S, lambda: self._end(None))
        self._link = Link(loop, sock, self._on_frame, lambda _link, _reason: self._end(None))
        self._link.send_raw(control(greeting) + control({"op": "death", "id": 1, "launcher": launcher}))

    def _on_frame(self, _link: Link, _kind: int, payload: bytes) -> None:
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
        elif isinstance(message.get("message"), str):
            self._end({"message": message["message"][: 2 * _LONGEST], "hint": str(message.get("hint", ""))[:_LONGEST]})
        else:
            self._end({})

    def _end(self, death: Optional[Message]) -> None:
        then, self._then = self._then, None
        self._timer.cancel()
        self._link.close()
        if then is not None:
            then(death)
