"""``-time``, ``-wait``, ``-signal SIG@T``: time limits of a launch."""

from __future__ import annotations

from console.launch.features.feature import Feature
from console.launch.states import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.launch.options.output import OutputOptions


class TimeLimits(Feature):
    """Enforces the limits of a launch, counted from GO, or from the end of its first rank."""

    def __init__(self, options: OutputOptions) -> None:
        self._options = options
        self._first_ended = False

    def before_go(self) -> None:
        """Start the clock."""
        limit_s, warn, context = self._options.limit_s, self._options.warn, self.context
        if limit_s is None:
            return
        if warn is not None:
            number, before_s = warn
            context.loop.after(max(0.0, limit_s - before_s), lambda: context.handle(Event.SIGNAL, number, None))
        told = f"the time limit of {limit_s:g} s is reached: ending the launch"
        context.loop.after(limit_s, lambda: context.handle(Event.LIMIT, told, 124))

    def on_ends(self) -> None:
        """Start the clock of ``-wait`` at the end of the first rank."""
        ranks, wait_s = self.context.launch.ranks, self._options.wait_s
        if self._first_ended or not ranks.ends or ranks.all_ended:
            return
        self._first_ended = True
        if wait_s is not None:
            why = f"{wait_s:g} s after the first rank ended others still run (-wait): ending them"
            self.context.loop.after(wait_s, lambda: self.context.handle(Event.LIMIT, why, None))
