"""Receives the bytes of an object into a file beside the other objects, under a name that no other process opens."""

from __future__ import annotations

import hashlib
import os

from agents.objects.holder import PART, Holder
from agents.wire.control import Message
from agents.wire.errors import AgentError
from redmesh.state import LIMIT, SUFFIX, is_uuid, note_arrival

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional


class Arrival:
    """An object that is being received."""

    def __init__(self, holder: Holder, message: Message) -> None:
        self.uuid, self.counter = str(message["uuid"]), int(message["counter"])
        self.sender, self._left = str(message["sender"]), int(message["size"])
        if not is_uuid(self.uuid) or not 0 <= self.counter < 1 << 62 or not 0 < self._left <= LIMIT * 64:
            raise AgentError("that is not an offer of a state object", code="invalid")
        os.makedirs(holder.directory, 0o700, exist_ok=True)
        self.path = os.path.join(holder.directory, f"{self.uuid}{SUFFIX}{PART}{os.getpid()}")
        try:
            os.unlink(self.path)  # left by a process that had our pid
        except FileNotFoundError:
            pass
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._digest = hashlib.sha256()
        self._error: Optional[OSError] = None

    def write(self, data: bytes) -> None:
        """Write the next bytes. Raises AgentError if there are more than were offered. A disk error is raised at the
        end, when the sender waits for a reply."""
        self._left -= len(data)
        if self._left < 0:
            raise AgentError("more bytes were sent than were offered", code="invalid")
        if self._error is not None:
            return
        self._digest.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._error = error
            os.ftruncate(self._fd, 0)  # others need the room

    def finish(self, message: Message, node: str) -> None:
        """Keep the complete object. Raises AgentError if it differs from what was sent, StateError or OSError."""
        self.verify(message)
        note_arrival(self.path, self.counter, node)
        os.fsync(self._fd)

    def verify(self, message: Message) -> None:
        """Raise AgentError if the bytes differ from those that were sent, OSError if the disk failed."""
        if self._error is not None:
            raise self._error
        if self._left or message["digest"] != self._digest.hexdigest() or message["counter"] != self.counter:
            raise AgentError(
                f"the bytes of job {self.uuid} were damaged or incomplete on arrival", "move it again", code="invalid"
            )
        os.fsync(self._fd)

    def close(self) -> None:
        """Delete the file unless it was kept."""
        os.close(self._fd)
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
