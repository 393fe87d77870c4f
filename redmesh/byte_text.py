"""Byte strings of the system (arguments, paths, variables, lines) as text, whatever the bytes are.

The text is valid Unicode without lone surrogates, so JSON, SQLite and utf8mb4 take it unchanged. Bytes that are UTF-8
stay the text that they are. Every other byte 0x80 to 0xFF becomes the character U+EF80 to U+EFFF (private use) with
the same last two digits: byte E9 is U+EFE9. A character U+EF80 to U+EFFF of the bytes themselves becomes three such
characters, one for each of its bytes, so that :func:`to_bytes` returns exactly what :func:`from_bytes` was given. Each
character stands for whole bytes, so a text that is cut off has no half of an escape.

Standard library only, Python 3.9. Workers of jobs import this file as ``yodbytes`` (docs/protocol.md *Byte strings*).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

_FIRST, _LAST = 0x80, 0xFF
_ESCAPED = 0xEF00  # and the byte
_SURROGATE = 0xDC00  # and the byte: what Python's surrogateescape makes of it

# Filled when they are first needed: most processes have ASCII alone, and every yod imports this module.
_to_surrogate: Dict[int, int] = {}
_from_surrogate: Dict[int, Any] = {}


def _fill_tables() -> None:
    back = {_ESCAPED + byte: _SURROGATE + byte for byte in range(_FIRST, _LAST + 1)}
    _from_surrogate.update({surrogate: chr(code) for code, surrogate in back.items()})
    _from_surrogate.update({code: "".join(chr(_ESCAPED + byte) for byte in chr(code).encode()) for code in back})
    _to_surrogate.update(back)  # last, and at once: other threads take a table that is not empty as filled


def from_bytes(data: bytes) -> str:
    """``data`` as text. :func:`to_bytes` is the inverse."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    if not _to_surrogate:
        _fill_tables()
    return text.translate(_from_surrogate)


def to_bytes(text: str) -> bytes:
    """The bytes for which ``text`` stands. Raises UnicodeEncodeError for a lone surrogate that stands for no byte."""
    if not text.isascii():
        if not _to_surrogate:
            _fill_tables()
        text = text.translate(_to_surrogate)
    return text.encode("utf-8", "surrogateescape")


def from_system(text: str) -> str:
    """A string of Python's ``os`` and ``sys`` (an argument, a path) as text that JSON and databases take."""
    if text.isascii():
        return text
    try:
        return from_bytes(os.fsencode(text))
    except UnicodeEncodeError:
        pass
    try:
        return from_bytes(text.encode("utf-8", "surrogateescape"))  # a message or file of UTF-8 under another encoding
    except UnicodeEncodeError:  # a surrogate of no byte
        return from_bytes(text.encode("utf-8", "surrogatepass"))


def to_system(text: str) -> str:
    """The string of Python's ``os`` and ``sys`` for a text of :func:`from_system`. Raises UnicodeEncodeError as
    :func:`to_bytes`."""
    return text if text.isascii() else os.fsdecode(to_bytes(text))


def without_surrogates(text: str) -> str:
    """The byte text for ``text``, which is byte text already, or a string of the system with lone surrogates: for
    messages that come from both."""
    try:
        return text if text.isascii() else from_bytes(to_bytes(text))
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "replace").decode()


def each_from_system(value: Any) -> Any:
    """``value``, which JSON can hold, with every string changed by :func:`from_system`."""
    return _each(value, from_system)


def each_to_system(value: Any) -> Any:
    """``value``, which JSON can hold, with every string changed by :func:`to_system`."""
    return _each(value, to_system)


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_each(one, change) for one in value]
    if isinstance(value, dict):
        return {change(key): _each(one, change) for key, one in value.items()}
    return value
