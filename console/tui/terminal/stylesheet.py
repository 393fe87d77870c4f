"""Styles that are read once: at the start Textual reads the same ones three times, a sixth of what a start takes."""

from __future__ import annotations

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet

_KEPT = 512  # sources; Textual keeps 64, fewer than there are once every screen was looked at


class ReadOnce(Stylesheet):
    """Textual's, which is read again only for other variables: another theme."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(_KEPT)

    def set_variables(self, variables: dict[str, str]) -> None:
        """What is known by the ones before is forgotten."""
        if variables != self._variables:
            super().set_variables(variables)
            self._require_parse = True

    def reparse(self) -> None:
        """Only what is new."""
        if self._require_parse:
            self.parse()
