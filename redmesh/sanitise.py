"""Make text from programs and nodes safe for a terminal. All such text passes through this module."""

_SHOWN = 0x2400  # the Unicode pictures of C0: U+2400 … U+241F

#: Bidirectional controls (a name must not read backwards), zero-width characters, separators that
#: terminals and editors take for line ends, tags, and the noncharacters.
_INVISIBLE = (
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0x061C,
    0x00AD,
    0xFEFF,
    0xFFFE,
    0xFFFF,
    *range(0xFFF9, 0xFFFC),
)

_table: "dict[int, int | str] | None" = None


def _make_table() -> "dict[int, int | str]":
    table: dict[int, int | str] = {code: _SHOWN + code for code in range(0x20)}
    table[0x7F] = 0x2421
    table.update(dict.fromkeys((*range(0x80, 0xA0), *_INVISIBLE, *range(0xE0000, 0xE0080)), "\ufffd"))
    # Lone surrogates, which stand for bytes that were not UTF-8 (surrogateescape), cannot be printed. What stands for
    # the same bytes in rows and messages (redmesh/byte_text.py) looks the same.
    table.update(dict.fromkeys((*range(0xD800, 0xE000), *range(0xEF80, 0xF000)), "\ufffd"))
    return table


def clean(text: str, *, keep: str = "") -> str:
    """``text`` without control characters that a terminal acts on; each is replaced by its Unicode picture or
    U+FFFD.

    An escape sequence (CSI, OSC, DCS …) loses its first character and stays readable. Characters in ``keep`` (a
    newline, a tab) are not replaced.
    """
    global _table
    if text.isascii() and text.isprintable():
        return text
    if _table is None:
        _table = _make_table()
    if not keep:
        return text.translate(_table)
    kept = set(map(ord, keep))
    return text.translate({code: shown for code, shown in _table.items() if code not in kept})
