"""Lost launchers: cleaned up on every node first, only then freed in the database. Runs beside the loop."""

import time
from collections.abc import Callable, Sequence

from agents.cpa.cleanup.nodes import Unclean, nodes_to_clean
from agents.cpa.cleanup.runner import Cleanups
from agents.cpa.operations import Operations
from agents.link.journal import Journal
from agents.wire.errors import AgentError
from db.allocation import finish
from db.allocation.types import Live
from db.errors import StoreError
from db.store.outage import Outage

Error = AgentError | StoreError
Done = Callable[[Error | None], None]


class _Round:
    """Launchers that are cleaned up together: ``done`` is called after the last one, with the last error."""

    def __init__(self, count: int, done: Done) -> None:
        self.outstanding = count
        self.done = done
        self.error: Error | None = None
        self.began = time.monotonic()

    def through(self, error: Error | None) -> None:
        self.error = error or self.error
        self.outstanding -= 1
        if not self.outstanding:
            self.done(self.error)


class Lost:
    """Cleans up launchers, and tells the requester when their processors are free."""

    def __init__(self, operations: Operations, outage: Outage, cleanups: Cleanups, journal: Journal) -> None:
        self._operations, self._outage, self._cleanups, self._journal = operations, outage, cleanups, journal

    def clear(self, launchers: Sequence[Live], reason: str, done: Done) -> None:
        """Clean up and free; ``done(error)`` follows, at once if there are none. Raises StoreError before anything
        began."""
        if not launchers:
            done(None)
            return
        nodes = [self._outage.guard(lambda live=live: self._nodes_of(live)) for live in launchers]  # type: ignore[misc]
        together = _Round(len(launchers), done)
        for live, where in zip(launchers, nodes, strict=True):
            self._clean(live, where, reason, together)

    def stop(self) -> None:
        """Kill running clean-ups. Waiting requesters will repeat their requests to another CPA."""
        self._cleanups.stop()

    def _nodes_of(self, live: Live) -> list[dict[str, str]]:
        return nodes_to_clean(self._operations, live.processors)

    def _clean(self, live: Live, nodes: list[dict[str, str]], reason: str, together: _Round) -> None:
        def then(clean: bool, said: str) -> None:
            took_s = round(time.monotonic() - together.began, 3)
            self._journal.write("cleanup", launcher=live.launcher, clean=clean, said=said, seconds=took_s)
            if clean:
                together.through(self._free(live.launcher, reason))
            else:
                together.through(Unclean(f"launcher {live.launcher} is not cleaned up: {said}", "say it again"))

        self._cleanups.run(live.launcher, nodes, then)

    def _free(self, launcher: int, reason: str) -> Error | None:
        try:
            self._outage.guard(lambda: finish.lose(self._operations.store, launcher, reason))
        except StoreError as error:
            return error
        return None
