"""The stable number of a message: ``RM-1042`` stands behind it on the terminal, and docs/messages.md lists them all.

A message is known by its fixed words, wherever it was made: here, by a daemon, or by an older version.
message_codes.txt has a line for each, ``NUMBER FILE TEMPLATE``; tools/message_codes.py writes it from the code.
"""

from __future__ import annotations

import os
from functools import cache

#: What has fewer fixed letters could be anything, and has no number.
LEAST = 8
_FILE = f"{os.path.dirname(__file__)}/message_codes.txt"


@cache
def numbers() -> list[tuple[int, str, str]]:
    """(number, file or "-" for one that no longer occurs, template with {} for what varies), ascending. OSError."""
    with open(_FILE, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 2) for line in file if not line.startswith("#")]
    return [(int(number), where, template) for number, where, template in rows]


def code_of(message: str) -> str:
    """``RM-1042`` for a message; "" for one that has no number. The template that says most itself wins."""
    try:
        known = numbers()
    except OSError:
        return ""
    # who passes a message on writes a name and a colon before it
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
    """A message as it stands on the terminal: the hint in brackets behind it, then its number."""
    code = code_of(message)
    return message + (f" ({hint})" if hint else "") + (f" [{code}]" if code else "")


def fixed_letters(template: str) -> int:
    """How many letters and digits a template says itself."""
    return sum(letter.isalnum() for letter in template.replace("{}", ""))


def fits(template: str, text: str) -> bool:
    """Whether ``text`` can be what became of the template."""
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
