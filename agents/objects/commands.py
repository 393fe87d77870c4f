"""Commands to an owner on a login processor, to which nobody can connect: left beside the copy that it feeds.

A command is a file in the directory ``UUID.job.standby.commands``. The owner's feed gets it with the reply to its next
commits, and brings the answer, a file beside it, to the process that waits for it.
"""

from __future__ import annotations

import json
import os
import shutil
import time

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

#: What may be asked of an owner in this way.
COMMANDS = ("cancel", "hold", "release", "retry")
#: What is asked of its feed: to keep the copy on another node, because this node is drained.
ELSEWHERE = "elsewhere"
#: Seconds for the owner to answer: its feed asks every FED_S / 5.
ANSWER_S = 30.0
_LOOK_S = 0.05
_DIRECTORY, _WAITING, _ANSWER = ".commands", "waits-", "answer-"


def leave(copy: str, command: str, members: Dict[str, Any]) -> str:
    """Leave a command for the owner that feeds ``copy``; returns its number."""
    number = os.urandom(8).hex()
    os.makedirs(copy + _DIRECTORY, 0o700, exist_ok=True)
    _write(copy, _WAITING + number, {"number": number, "command": command, "members": members})
    return number


def take(copy: str) -> List[Dict[str, Any]]:
    """The commands that wait for the owner, once each."""
    try:
        names = sorted(os.listdir(copy + _DIRECTORY))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if name.startswith(_WAITING):
            told = _read(copy, name)
            _unlink(copy, name)
            if told is not None:
                found.append(told)
    return found


def answer(copy: str, number: str, told: Dict[str, Any]) -> None:
    """Record the owner's answer, for the process that waits for it."""
    if number.isalnum() and os.path.isdir(copy + _DIRECTORY):
        _write(copy, _ANSWER + number, told)


def await_answer(copy: str, number: str) -> Optional[Dict[str, Any]]:
    """The owner's answer; None if there is none within ANSWER_S: then the command is taken back."""
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until:
        told = _read(copy, _ANSWER + number)
        if told is not None:
            _unlink(copy, _ANSWER + number)
            return told
        time.sleep(_LOOK_S)  # this process does nothing else
    _unlink(copy, _WAITING + number)
    return None


def forget(copy: str) -> None:
    """Delete what was left beside a copy that is not fed any more."""
    shutil.rmtree(copy + _DIRECTORY, ignore_errors=True)


def _write(copy: str, name: str, told: Dict[str, Any]) -> None:
    path = os.path.join(copy + _DIRECTORY, name)
    aside = os.path.join(copy + _DIRECTORY, "new-" + name)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(told, file)
    os.rename(aside, path)


def _read(copy: str, name: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(copy + _DIRECTORY, name)) as file:
            told = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _unlink(copy: str, name: str) -> None:
    try:
        os.unlink(os.path.join(copy + _DIRECTORY, name))
    except FileNotFoundError:
        pass
