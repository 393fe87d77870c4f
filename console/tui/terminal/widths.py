"""Keeps what follows a character in its column when the terminal has another width for the character than Rich.

Terminals and Rich have their tables of widths from different versions of Unicode, and terminals differ in flags,
keycaps, skin tones and joined emoji. One such character in a program's output moved the rest of the line, with the
frame, by a column, and left a cell that no later paint of the frame reached (a monkey met it in tmux 3.3).

Here the cursor is put back to where the character began, and from there over its columns. The columns are blank before
the character is written, so that a narrower one leaves nothing of before beside it. The cursor is saved and restored
(DECSC, DECRC) because a strip does not know its column.
"""

from __future__ import annotations

import re
from typing import Any

from rich.cells import split_graphemes
from rich.style import Style
from textual.strip import Strip

#: Characters that have the same width everywhere: Latin, Greek, Cyrillic, punctuation, arrows, lines, blocks, shapes,
#: kana, ideographs, Hangul syllables and full-width forms. No combining marks, no emoji.
_CERTAIN = re.compile(
    "[ -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u2190-\u2311\u2500-\u25fc\u2713\u2717"
    "\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60\ufffd]*"
)
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_render_style = Strip.render_style


def steady(text: str) -> str:
    """The text with the cursor put right after each character whose width is uncertain."""
    if text.isascii() or _CERTAIN.fullmatch(text):
        return text
    return "".join(_steady(text[start:end], width) for start, end, width in split_graphemes(text)[0])


def _steady(character: str, width: int) -> str:
    if _CERTAIN.fullmatch(character):
        return character
    return f"{_SAVE}{' ' * width}{_RESTORE}{character}{_RESTORE}" + (f"\x1b[{width}C" if width else "")


def _render_steadily(style: Style, text: str, color_system: Any) -> str:
    return _render_style(style, steady(text), color_system)


def mend() -> None:
    """Render all strips so."""
    Strip.render_style = staticmethod(_render_steadily)  # type: ignore[method-assign]
