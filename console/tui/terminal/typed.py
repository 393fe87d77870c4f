"""Three faults of Textual's reading of keys mended (Textual 8.2.8). The first two ended the console; a monkey met both.

A byte that is not UTF-8 (from a terminal in Latin-1, or pasted) raised UnicodeDecodeError. An escape sequence
whose numbers are none (``ESC [ 1 ; 1 : 3 A``: the kitty protocol's release of a key, which an earlier program may
have left on) raised ValueError. Here the byte is shown as �, and the sequence is ignored.

Escape with a character within 0.1 s behind it is what a terminal sends for alt and that character. Textual took it for
``alt+m``, or for ``?`` alone, so that the palette stayed open and had a letter more. Here it is escape and then the
character, unless the user's own keys name ``alt+m``.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from functools import partial

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.keys import Keys

#: Keys with alt that the user's configuration names.
MEANT: set[str] = set()

_keys = XTermParser._sequence_to_key_events


def _known_keys(self: XTermParser, sequence: str, alt: bool = False) -> Iterable[events.Key]:
    try:
        found = list(_keys(self, sequence, alt))
        if not alt or not sequence.isprintable() or any(event.key in MEANT for event in found):
            return found
        return [events.Key("escape", "\x1b"), *_keys(self, sequence)]
    except (ValueError, OverflowError):
        return [events.Key(Keys.Ignore, sequence)]


def _decoder(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    return partial(codecs.getincrementaldecoder(encoding), errors="replace")


def mend() -> None:
    """Read on after what a terminal should not send."""
    XTermParser._sequence_to_key_events = _known_keys  # type: ignore[method-assign]
    linux_driver.getincrementaldecoder = _decoder  # type: ignore[assignment, attr-defined]
