"""A yod with the time of each line of its standard error, for tests of how soon a fault is reported."""

import subprocess
import threading
import time

from tests.support.mesh import PrivateMesh


class Watched:
    """A running yod; ``said`` has (time.monotonic, line) of its standard error."""

    def __init__(self, mesh: PrivateMesh, *words: str) -> None:
        self.process = mesh.start("yod", *words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append((time.monotonic(), line.rstrip()))

    def end(self) -> float:
        """Wait for yod's exit; return its time (time.monotonic)."""
        try:
            self.process.wait()
            ended = time.monotonic()
        finally:
            self.process.kill()
            self._reader.join()
        return ended

    def decided(self) -> "tuple[float, str] | None":
        """Return the time and line at which yod tried other nodes, or else failed; None if neither happened."""
        again = [one for one in self.said if "trying other nodes" in one[1]]
        return again[0] if again else self.said[-1] if self.process.returncode else None
