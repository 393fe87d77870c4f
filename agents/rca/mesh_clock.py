"""What time it is in the mesh, as an RCA tells the nodes."""

import time

DRIFT = 2e-4  # how far two clocks may part, in seconds a second


class MeshClock:
    """The database's clock as we know it: our monotonic one and an offset, learnt anew with every answer."""

    def __init__(self) -> None:
        self._offset = self._error_s = self._learnt_at = 0.0

    def learn(self, mesh_time: float, asked_at: float, now: float) -> None:
        """It was ``mesh_time`` between ``asked_at`` and ``now``."""
        self._offset, self._error_s, self._learnt_at = mesh_time - (asked_at + now) / 2, (now - asked_at) / 2, now

    def now(self) -> tuple[float, float]:
        """Mesh time and how far it may be off; zeroes while nobody has told it."""
        if not self._learnt_at:
            return 0.0, 0.0
        now = time.monotonic()
        return now + self._offset, self._error_s + (now - self._learnt_at) * DRIFT
