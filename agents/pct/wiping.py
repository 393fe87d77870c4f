"""A node that changes sides: nothing of its launches or their images stays, and its PCT begins a new life."""

from __future__ import annotations

from agents.link.loop import Loop
from agents.pct.hosted import Hosted, Kill
from agents.wire.control import Message

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable


class Wipe:
    """Kills every launch here, sweeps the RAM disk, then calls ``renew``; ``on_done(reply)`` follows."""

    def __init__(
        self, loop: Loop, hosted: Hosted, renew: Callable[[], None], on_done: Callable[[Message], None]
    ) -> None:
        self._hosted, self._renew, self._on_done = hosted, renew, on_done
        self._clean = True
        launchers = hosted.launchers()
        self._outstanding = 1 + len(launchers)
        for launcher in launchers:
            Kill(loop, hosted, launcher, self._on_killed, {})
        self._one_less()

    def _on_killed(self, reply: Message) -> None:
        self._clean = self._clean and bool(reply.get("clean"))
        self._one_less()

    def _one_less(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        self._hosted.sweep_images_then(self._swept)

    def _swept(self) -> None:
        if self._clean:  # else the node stays out of service: something of the old side may still run
            self._renew()
        self._on_done({"clean": self._clean})
