"""Writes the tables of keys in ``docs/console.md`` from this package's actions:
``python -m console.tui.actions.docs_page docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from console.tui.actions.action import command_line
from console.tui.actions.registry import ALL, HEADINGS

BEGIN, END = "<!-- keys: made from console/tui/actions -->\n", "<!-- end of keys -->\n"
_SHOWN = {
    "less_than_sign": "<", "greater_than_sign": ">", "comma": ",", "full_stop": ".", "question_mark": "?",
    "equals_sign": "=", "slash": "/", "colon": ":", "minus": "-", "plus": "+", "exclamation_mark": "!",
    "at": "@", "left_parenthesis": "(", "right_parenthesis": ")",
    "left_square_bracket": "[", "right_square_bracket": "]", "pageup": "page up", "pagedown": "page down",
}  # fmt: skip


def keys() -> str:
    """A table for each place."""
    parts = []
    for place in dict.fromkeys(action.place for action in ALL.values()):
        heading = HEADINGS.get(place, place)
        parts.append(
            f"\n**{heading}** (`{place}`)\n\n| key | action | what it does | in a shell |\n|---|---|---|---|\n"
        )
        for action in ALL.values():
            if action.place == place:
                named = " ".join(f"`{_SHOWN.get(key, key)}`" for key in action.keys.split(",")) if action.keys else ""
                command = command_line(action, {})
                shell = f"`{command}`".replace("|", "\\|") if command else ""
                parts.append(
                    f"| {named} | `{action.name}` | {action.meaning.replace('|', chr(92) + '|')} | {shell} |\n"
                )
    return "".join(parts)


def updated(page: str) -> str:
    """The page with updated keys. Raises ValueError if it has no place for them."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:start] + keys() + "\n" + page[end:]


if __name__ == "__main__":
    path = Path(sys.argv[1], "console.md")
    path.write_text(updated(path.read_text()))
