"""Commands as a user types them, each with a deadline, none waited for."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

#: How long a command may take on an idle machine, beyond the time that its program runs.
DEADLINE_S = 45.0
#: The load average says more than the time that a process really waits for a core.
MOST_SLOWDOWN = 4.0


def slowdown() -> float:
    """By how much everything is slower than on an idle machine: the load for each core, within bounds."""
    return min(MOST_SLOWDOWN, max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


class Command:
    """One command that runs, or has run; its output goes to files."""

    def __init__(self, words: Sequence[str], argv: Sequence[str], env: dict[str, str], cwd: Path, place: Path) -> None:
        self.words = list(words)
        self.begun = time.monotonic()
        self.place = place
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        self.allowed_s = DEADLINE_S
        self._status: int | None = None
        self.ended = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def poll(self) -> int | None:
        """Its exit status once it has ended; negative for a signal."""
        if self._status is None:
            self._status = self.process.poll()
            if self._status is not None:
                self.ended = time.monotonic()
        return self._status

    def took_s(self) -> float:
        return (self.ended or time.monotonic()) - self.begun

    def is_late(self) -> bool:
        """Whether it runs for longer than anybody would wait for it."""
        return self.poll() is None and time.monotonic() - self.begun > self.allowed_s * slowdown()

    def out(self) -> str:
        return self._out.read_text(errors="replace")

    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def forget(self) -> None:
        """Remove its output."""
        for path in (self._out, self._err):
            path.unlink(missing_ok=True)

    def kill(self) -> None:
        if self.poll() is None:
            self.process.kill()
            self.process.wait()
            self.poll()
