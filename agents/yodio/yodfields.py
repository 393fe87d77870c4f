"""The fields in the words and file names of a job's tasks. Standard library only, Python 3.9."""

from __future__ import annotations

#: What a shell reads as the number of its arguments; it stays.
_SHELLS = "${#}"
#: Stands for the path of a part, by its place, in the words of a section.
PART = "\ue000{}\ue000"


def filled(word: str, number: str, text: str) -> str:
    """``word`` with the task's number for ``{#}``, and ``text`` (its line, or its number) for ``{}``."""
    return _SHELLS.join(part.replace("{#}", number) for part in word.split(_SHELLS)).replace("{}", text)


def has_field(word: str) -> bool:
    """True if ``word`` differs from task to task."""
    return "{}" in word or "{#}" in word.replace(_SHELLS, "")


def file_name(text: str) -> str:
    """An input as part of a file name; a path must not lead elsewhere."""
    return text.replace("/", "_").replace("\0", "_")[:200]
