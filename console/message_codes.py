"""The stable number of a message: it is printed after the message as ``[RM-1042]``; docs/messages.md lists all.

A message is recognised by its fixed words, whether this command, a daemon or an older version made it.
message_codes.txt has a line ``NUMBER FILE TEMPLATE`` for each message; tools/message_codes.py writes it from the code.
"""

from __future__ import annotations

import os
from functools import cache

#: A template with fewer fixed letters matches too many texts, and gets no number.
LEAST = 8
_FILE = f"{os.path.dirname(__file__)}/message_codes.txt"


@cache
def numbers() -> list[tuple[int, str, str]]:
    """Return (number, file, template) of every message, ascending by number. Raises OSError.

    The template has {} for its variable parts. The file is "-" for a message that no longer occurs.
    """
    with open(_FILE, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 2) for line in file if not line.startswith("#")]
    return [(int(number), where, template) for number, where, template in rows]


def code_of(message: str) -> str:
    """Return ``RM-1042`` for a message, "" if it has no number. The matching template with most fixed letters wins."""
    try:
        known = numbers()
    except OSError:
        return ""
    # A program that forwards a message may put a name and a colon before it.
    ends = [0, *(at + 2 for at in range(len(message) - 2) if message[at : at + 2] == ": ")]
    best, code = (0, 0, 0), ""
    for start in ends[:4]:
        text = message[start:]
        for number, _where, template in known:
            if fits(template, text):
                fields = template.count("{}")
                weight = (fixed_letters(template), len(template) - 2 * fields, -fields)
                if weight > best:
                    best, code = weight, f"RM-{number}"
    return code


def coded(message: str, hint: str = "") -> str:
    """Return a message as it is printed: followed by the hint in parentheses and its number in brackets.

    A message that another command has printed has its number already.
    """
    code = "" if message.endswith("]") and " [RM-" in message[-10:] else code_of(message)
    return message + (f" ({hint})" if hint else "") + (f" [{code}]" if code else "")


def fixed_letters(template: str) -> int:
    """The number of letters and digits in the fixed parts of a template."""
    return sum(letter.isalnum() for letter in template.replace("{}", ""))


def fits(template: str, text: str) -> bool:
    """True if ``text`` matches the template."""
    first, *between = template.split("{}")
    if not between:
        return text == template
    last = between.pop()
    at = len(first)
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or end < at:
        return False
    for part in between:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
