"""How busy the machine was lately, as a line of bars. Pure."""

from __future__ import annotations

from collections import deque

_BARS = "▁▂▃▄▅▆▇█"
KEPT = 240


class Usage:
    """A share of busy processors for each second."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=KEPT)

    def add(self, busy: int, usable: int) -> None:
        """What it is now."""
        self._shares.append(busy / usable if usable else 0.0)

    def bars(self, width: int) -> str:
        """The last ``width`` seconds; fewer where fewer are known. Nothing busy is the lowest bar."""
        shares = list(self._shares)[-width:] if width else []
        return "".join(_BARS[min(len(_BARS) - 1, int(share * len(_BARS)))] for share in shares)
