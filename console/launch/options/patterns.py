"""File names with ``{rank} {node} {launcher} {local}``: --output, --error, --stdin, --stage-in, --stage-out.

``{rank:04}`` pads a number; ``{{`` and ``}}`` are braces. ``local`` is the rank's index on its node, from 0.
"""

from __future__ import annotations

from console.errors import UsageError
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

NAMES: Final = ("rank", "node", "launcher", "local")
#: Placeholders of srun, sbatch and mpiexec without their %, and ours.
_OTHERS: Final = {
    "t": "rank", "r": "rank", "a": "rank", "n": "local", "N": "node", "h": "node", "j": "launcher", "J": "launcher",
    "A": "launcher", "g": "launcher",
}  # fmt: skip
_WIDEST = 64  # more digits than any number has; limits memory


class Pattern:
    """A name with placeholders. ``fields`` are those that it uses."""

    __slots__ = ("_parts", "fields", "text")

    def __init__(self, text: str, parts: list[str | tuple[str, str]]) -> None:
        self.text, self._parts = text, parts
        self.fields = frozenset(part[0] for part in parts if isinstance(part, tuple))

    @property
    def one_each(self) -> bool:
        """True if every rank gets its own name; otherwise ranks share a file, which is opened once."""
        return "rank" in self.fields or {"node", "local"} <= self.fields

    def fill(self, rank: int, node: str, launcher: int, local: int) -> str:
        """The name for one rank. Slashes in the node's name are replaced, so that it cannot change the directory."""
        values: dict[str, int | str] = {"rank": rank, "launcher": launcher, "local": local, "node": _harmless(node)}
        return "".join(
            part if isinstance(part, str) else format(values[part[0]], part[1]) if part[1] else str(values[part[0]])
            for part in self._parts
        )


def parse(text: str, option: str, *, quiet: bool = False) -> Pattern:
    """Parse ``text``. Raises UsageError, which names ``option``, for an unknown name or unbalanced braces.

    Unless ``quiet``, a line on stderr reports another launcher's placeholder, which is an ordinary part of a name here.
    """
    parts: list[str | tuple[str, str]] = []
    literal, at = "", 0
    if not text or "\0" in text:
        raise UsageError(f"{option} takes a file name, not {clean(text)!r}", "like out.{rank:04}")
    if "%" in text and not quiet:
        _report_others(text, option)
    while at < len(text):
        char = text[at]
        if char not in "{}":
            literal += char
            at += 1
        elif text[at + 1 : at + 2] == char:
            literal += char
            at += 2
        else:
            end = text.find("}", at)
            if char == "}" or end < 0:
                raise UsageError(f"{option}: the braces in {clean(text)!r} do not match", "a brace itself is {{ or }}")
            if literal:
                parts.append(literal)
            literal = ""
            parts.append(_field(text[at + 1 : end], option))
            at = end + 1
    if literal:
        parts.append(literal)
    return Pattern(text, parts)


def _report_others(text: str, option: str) -> None:
    import re  # needed only for a name with %
    import sys

    for found in re.finditer(f"%[0-9]*([{''.join(_OTHERS)}])(?![0-9A-Za-z])", text):
        meant = "{" + _OTHERS[found[1]] + "}"
        print(
            f"yod: {option} {clean(text)}: {found[0]} stays as it is; did you mean {meant}?"
            f" (placeholders: {' '.join('{' + known + '}' for known in NAMES)})",
            file=sys.stderr,
        )


def _field(inside: str, option: str) -> tuple[str, str]:
    name, colon, form = inside.partition(":")
    if name not in NAMES:
        known = " ".join("{" + known + "}" for known in NAMES)
        raise UsageError(f"{option} knows no {{{clean(inside)}}}", f"it knows {known}; a brace itself is {{{{ or }}}}")
    if not colon:
        return name, ""
    digits = form.removesuffix("d")
    if name == "node" or not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > _WIDEST:
        raise UsageError(f"{option}: {{{clean(inside)}}} is not a form", "numbers may be padded, as in {rank:04}")
    return name, form


def _harmless(node: str) -> str:
    # A name from a resource manager or configuration must not choose the directory.
    safe = "".join("_" if char in "/\0" else char for char in node)
    return "_" + safe[1:] if safe[:1] in ("", ".") else safe
