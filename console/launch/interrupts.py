"""What yod does on signals, as events of its launch."""

from __future__ import annotations

from agents.link.lean import signal
from console.launch.forming import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop

_EVENTS: tuple[tuple[int, Event, tuple[Any, ...]], ...] = (
    (signal.SIGINT, Event.INTERRUPT, ()),
    (signal.SIGTERM, Event.TERMINATE, (int(signal.SIGTERM),)),
    (signal.SIGHUP, Event.TERMINATE, (int(signal.SIGHUP),)),
    (signal.SIGUSR1, Event.SIGNAL, (int(signal.SIGUSR1), None)),
    (signal.SIGUSR2, Event.SIGNAL, (int(signal.SIGUSR2), None)),
)


def take_signals(loop: Loop, handle: Callable[..., None], leave: Callable[[], None] | None) -> None:
    """Have the loop call ``handle``, and ``leave`` for ^\\; what was ignored when we began stays so (nohup)."""
    for number, event, facts in _EVENTS:
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.on_signal(number, lambda event=event, facts=facts: handle(event, *facts))  # type: ignore[misc]
    if leave is not None and signal.getsignal(signal.SIGQUIT) != signal.SIG_IGN:
        loop.on_signal(signal.SIGQUIT, leave)
