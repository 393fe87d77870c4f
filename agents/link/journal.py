"""A daemon's log: one JSON object a line, each written with one write(2), so that lines never interleave."""

from __future__ import annotations

import os
import time
from _json import encode_basestring_ascii, make_encoder

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

MAX_BYTES = 16 << 20  # at this size the file is renamed to .1, and one such file is kept


#: Equivalent to json.dumps(…, default=str); the module json imports regular expressions, which no daemon needs.
_encode = make_encoder(None, str, encode_basestring_ascii, None, ": ", ", ", False, False, True)


#: The burst of lines about one user or address that is logged, and the rate for each second afterwards.
_BURST, _EACH_S = 1000.0, 50.0
_TELL_S = 10.0  # between log lines with the number of omitted lines
_MOST_NAMES = 10_000


class Quota:
    """Limits log lines about a user or an address, so that nobody fills the log or displaces others' lines."""

    def __init__(self) -> None:
        self._left: Dict[Any, Tuple[float, float]] = {}  # lines that may still be written, and the time of that count
        self._omitted: Dict[Any, int] = {}
        self._told_at = 0.0

    def allows(self, who: Any, now: float) -> bool:
        """True if one more line about ``who`` may be written."""
        left, since = self._left.get(who, (_BURST, now))
        left = min(_BURST, left + (now - since) * _EACH_S)
        if len(self._left) > _MOST_NAMES:
            self._left.clear()
        if left < 1.0:
            self._left[who] = left, now
            self._omitted[who] = self._omitted.get(who, 0) + 1
            return False
        self._left[who] = left - 1.0, now
        return True

    def omitted(self, now: float) -> List[Tuple[Any, int]]:
        """The number of omitted lines for each user or address, if it is time to log them."""
        if not self._omitted or now - self._told_at < _TELL_S:
            return []
        self._told_at = now
        found, self._omitted = list(self._omitted.items()), {}
        return found


class Journal:
    """Appends to ``path`` (0600), or does nothing if it is empty. Never raises: a full disk must not end a daemon.

    Secrets (cookies, keys, environments) must not be logged: callers name the fields to log.
    """

    def __init__(self, path: str, daemon: str, **always: Any) -> None:
        self.path = path
        self._daemon, self._always = daemon, always
        self._fd = -1
        self._size = 0
        self._quota = Quota()
        self._own = (0, os.geteuid())
        self._open()

    def write(self, event: str, **fields: Any) -> None:
        """Write a line: ``at`` (UTC seconds), daemon, event, the fields of every line (``always``), then ``fields``."""
        if self._fd < 0:
            return
        who = fields.get("uid", fields.get("peer"))
        if who is not None and who not in self._own:
            now = time.monotonic()
            for whose, count in self._quota.omitted(now):
                self._line("omitted", {"uid" if isinstance(whose, int) else "peer": whose, "lines": count})
            if not self._quota.allows(who, now):
                return
        self._line(event, fields)

    def exhausted(self, reason: str) -> None:
        """Log that no connection can be accepted for lack of descriptors or memory."""
        self.write("accept_paused", reason=reason)

    def _line(self, event: str, fields: Dict[str, Any]) -> None:
        head = {"at": round(time.time(), 3), "daemon": self._daemon, "event": event}
        line = "".join(_encode({**head, **self._always, **fields}, 0))
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


def where(error: BaseException) -> List[str]:
    """The stack of an error for the log: file, line and function, the outermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames
