"""What became of the root of a launch whose link has ended: its PCT, if it lives, knows how its launch child died."""

from __future__ import annotations

from agents.pct.fates import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.plan import PlacedNode


def inquire(loop: Loop, root: PlacedNode, reply: dict[str, Any], then: Callable[[dict[str, Any] | None], None]) -> None:
    """``then(message and hint, or None)``: None when nobody answers for it, or knows of no death."""
    from console.launch.far import acting

    ask(loop, root.address, acting(reply, root.name), reply["launcher"], then)
