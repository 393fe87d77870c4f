"""The command of a section from a template: GNU parallel's replacement strings, and parameters by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agents.yodio.yodfields import file_name
from console.errors import UsageError

#: ``{}`` ``{.}`` ``{/}`` ``{//}`` ``{/.}`` ``{#}``, ``{2}`` ``{2.}`` …, ``{name}``; ``{{`` and ``}}`` in a job file.
_FIELD = re.compile(r"\{(?P<place>[1-9][0-9]*)?(?P<part>\.|//|/\.|/)?\}|\{#\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\}")
_DOUBLED = re.compile(r"\{\{(?P<text>[^{}]*)\}\}")


class Section(NamedTuple):
    """A section. ``number``: from 0. ``id``: its name for users. ``values``: from the list. ``parameters``: by name."""

    number: int
    id: str
    values: tuple[str, ...] = ()
    parameters: Mapping[str, str] = {}


def fill(template: str, section: Section, *, strict: bool) -> str:
    """Replace the fields of ``template`` by the section's values.

    With ``strict`` unknown names are refused, and ``{{name}}`` becomes the literal text ``{name}``.

    Without ``strict``, other texts in braces stay unchanged, as with GNU parallel: for example awk's ``{print}``.
    Raises UsageError.
    """
    if not strict:
        return _filled(template, section, strict=False)
    pieces, at = [], 0
    for doubled in _DOUBLED.finditer(template):
        pieces += [_filled(template[at : doubled.start()], section, strict=True), f"{{{doubled['text']}}}"]
        at = doubled.end()
    return "".join([*pieces, _filled(template[at:], section, strict=True)])


def command_of(words: Sequence[str], section: Section, *, strict: bool = False) -> list[str]:
    """Return the section's command; without ``strict``, if no word has a replacement string, its values are appended.

    Raises UsageError.
    """
    if not strict and section.values and not any(map(has_field, words)):
        return [*words, *section.values]
    return [fill(word, section, strict=strict) for word in words]


def has_field(template: str) -> bool:
    """True if ``template`` has a replacement string of GNU parallel, or ``{section}``."""
    return any(match["name"] in (None, "section") for match in _FIELD.finditer(template))


def file_of(template: str, section: Section) -> str:
    """Fill ``template``, a file name; a ``/`` of a value becomes ``_``. Raises UsageError."""
    return _FIELD.sub(lambda match: file_name(_filled(match[0], section, strict=False)), template)


def fields_of(template: str) -> list[str]:
    """The replacement strings of GNU parallel in ``template``, but not a shell's ``${1}``."""
    found = (match for match in _FIELD.finditer(template) if match["name"] is None)
    return [match[0] for match in found if template[: match.start()][-1:] != "$"]


def _filled(template: str, section: Section, *, strict: bool) -> str:
    def value(match: re.Match[str]) -> str:
        text = match[0]
        if text == "{#}":
            return str(section.number + 1)
        name = match["name"]
        if name is not None:
            if name == "section":
                return section.id
            if name in section.parameters:
                return section.parameters[name]
            if strict:
                known = " ".join(sorted({"section", *section.parameters}))
                raise UsageError(
                    f"section {section.id}: {text} is not a parameter",
                    f"the parameters are: {known}; write {{{text}}} for the text {text} itself",
                )
            return text
        return _part(_chosen(match["place"], section, text), match["part"])

    return _FIELD.sub(value, template)


def _chosen(place: str | None, section: Section, text: str) -> str:
    if place is None:
        return " ".join(section.values) if section.values else section.id
    if int(place) > len(section.values):
        raise UsageError(
            f"section {section.id}: {text} asks for value {place}, and the section has {len(section.values)}",
            "give as many lists (:::) or columns (--colsep) as the command uses",
        )
    return section.values[int(place) - 1]


def _part(value: str, part: str | None) -> str:
    if part == ".":
        return os.path.splitext(value)[0]
    if part == "/":
        return os.path.basename(value)
    if part == "//":
        return os.path.dirname(value) or "."
    if part == "/.":
        return os.path.splitext(os.path.basename(value))[0]
    return value
