"""A daemon's log: one JSON object a line, written with one write(2) each, so that nothing is interleaved."""

from __future__ import annotations

import os
import time
from _json import encode_basestring_ascii, make_encoder

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 16 << 20  # then the file is kept once as .1


#: What json.dumps(…, default=str) does; the module json has regular expressions loaded, which no daemon needs.
_encode = make_encoder(None, str, encode_basestring_ascii, None, ": ", ", ", False, False, True)


class Journal:
    """Appends to ``path`` (0600), or nowhere when it is empty. Never raises: a full disk must not end a daemon.

    What is secret (cookies, keys, environments) is not logged: callers name the fields they mean.
    """

    def __init__(self, path: str, daemon: str) -> None:
        self.path = path
        self.daemon = daemon
        self._fd = -1
        self._size = 0
        self._open()

    def write(self, event: str, **fields: Any) -> None:
        """One line: ``at`` (UTC seconds), daemon, event, then the fields."""
        if self._fd < 0:
            return
        line = "".join(_encode(dict(at=round(time.time(), 3), daemon=self.daemon, event=event, **fields), 0))
        try:
            self._size += os.write(self._fd, line.encode("utf-8", "backslashreplace") + b"\n")
            if self._size > MAX_BYTES:
                os.rename(self.path, self.path + ".1")
                os.close(self._fd)
                self._open()
        except OSError:
            pass

    def _open(self) -> None:
        self._fd = -1
        if not self.path:
            return
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError:
            pass
