"""Two faults of Textual's reading of keys mended: each ended the console (Textual 8.2.8; a monkey met both).

A byte that is not UTF-8 (from a terminal in Latin-1, or pasted) raised UnicodeDecodeError. An escape sequence
whose numbers are none (``ESC [ 1 ; 1 : 3 A``: the kitty protocol's release of a key, which an earlier program may
have left on) raised ValueError. Here the byte is shown as �, and the sequence is ignored.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from functools import partial

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.keys import Keys

_keys = XTermParser._sequence_to_key_events


def _known_keys(self: XTermParser, sequence: str, alt: bool = False) -> Iterable[events.Key]:
    try:
        return list(_keys(self, sequence, alt))
    except (ValueError, OverflowError):
        return [events.Key(Keys.Ignore, sequence)]


def _decoder(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    return partial(codecs.getincrementaldecoder(encoding), errors="replace")


def mend() -> None:
    """Read on after what a terminal should not send."""
    XTermParser._sequence_to_key_events = _known_keys  # type: ignore[method-assign]
    linux_driver.getincrementaldecoder = _decoder  # type: ignore[assignment, attr-defined]
