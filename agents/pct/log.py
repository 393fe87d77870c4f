"""JSON lines, one file a daemon, written by whoever has something to say."""

import os
import time
from typing import Any

from agents.wire.control import encode


class Log:
    """Appends to the file at ``path``; each line is one write, so that several processes may share the file."""

    def __init__(self, path: str, **always: Any) -> None:
        self._always = always
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **what: Any) -> None:
        """One line: ``at``, ``event``, what is always said, and ``what``. A full disk stops no launch."""
        line = {"at": round(time.time(), 6), "event": event}
        line.update(self._always)
        line.update(what)
        try:
            os.write(self._fd, encode(line) + b"\n")
        except OSError:
            pass
