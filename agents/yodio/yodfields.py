"""The fields in the words and file names of a job's tasks. Standard library only, Python 3.9."""

from __future__ import annotations

FIELDS = ("{}", "{#}")
#: Stands for the path of a part, by its place, in the words of a section.
PART = "\ue000{}\ue000"


def filled(word: str, number: str, text: str) -> str:
    """``word`` with the task's number for ``{#}``, and ``text`` (its line, or its number) for ``{}``."""
    return word.replace("{#}", number).replace("{}", text)


def has_field(word: str) -> bool:
    """True if ``word`` differs from task to task."""
    return any(field in word for field in FIELDS)


def file_name(text: str) -> str:
    """An input as part of a file name; a path must not lead elsewhere."""
    return text.replace("/", "_").replace("\0", "_")[:200]
