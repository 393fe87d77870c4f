"""How busy the machine was lately, as a line of bars or as a chart. Pure."""

from __future__ import annotations

from collections import deque

_BARS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " " + _BARS
KEPT = 360


class Usage:
    """A share of busy processors for each second."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=KEPT)

    def add(self, busy: int, usable: int) -> None:
        """What it is now."""
        self._shares.append(busy / usable if usable else 0.0)

    @property
    def now(self) -> float | None:
        """The last one; None before the first."""
        return self._shares[-1] if self._shares else None

    def seconds(self, width: int) -> int:
        """How many of the last ``width`` are known."""
        return min(width, len(self._shares))

    def bars(self, width: int) -> str:
        """The last ``width`` seconds; fewer where fewer are known. Nothing busy is the lowest bar."""
        shares = list(self._shares)[-width:] if width else []
        return "".join(_BARS[min(len(_BARS) - 1, int(share * len(_BARS)))] for share in shares)

    def chart(self, width: int, height: int) -> list[str]:
        """The same, ``height`` lines high from the top down, the newest second on the right."""
        shares = list(self._shares)[-width:]
        eighths = [round(8 * height * min(1.0, share)) for share in shares]
        left = " " * (width - len(shares))
        return [
            left + "".join(_EIGHTHS[max(0, min(8, count - 8 * (height - 1 - y)))] for count in eighths)
            for y in range(height)
        ]
