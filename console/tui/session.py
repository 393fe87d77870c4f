"""What the console was left with: theme and tabs. Lost or nonsense, it begins afresh."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from console.tui.presets import read_json, write_json
from console.tui.theme import NAMES

_MOST = 20  # tabs


class Session:
    """``console-session.json`` in STATE."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, "console-session.json")
        self._kept: Any = None

    def theme(self) -> str:
        """The theme of the last time; empty when none is known."""
        theme = self._read().get("theme")
        return theme if theme in NAMES else ""

    def launchers(self) -> list[int]:
        """Whose tabs were open."""
        found = self._read().get("launchers")
        if not isinstance(found, list):
            return []
        return [number for number in found if isinstance(number, int) and 0 < number < 1 << 63][:_MOST]

    def keep(self, theme: str, launchers: list[int]) -> None:
        """Writes it down, where anything changed; a state directory that cannot be written is nobody's fault here."""
        now = {"theme": theme, "launchers": launchers[-_MOST:]}
        if now != self._kept:
            self._kept = now
            with contextlib.suppress(OSError):
                write_json(self._path, now)

    def _read(self) -> dict[str, Any]:
        found = read_json(self._path, {})
        return found if isinstance(found, dict) else {}
