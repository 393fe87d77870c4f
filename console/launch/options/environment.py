"""The part of the launcher's environment that ranks get (``--export``, as with srun).

``ALL`` (the default) forwards everything except variables of other launchers and Redmesh's secrets; ``NONE`` forwards
nothing; ``NAME`` forwards that variable; ``NAME=VALUE`` sets it. ``ALL`` and names may be mixed; without ``ALL``, only
the named variables are forwarded. A value in quotes may contain commas: ``ALL,LIST='a,b'``. Variables that the PCT sets
for each rank (YOD_*, the rank map, GPUs) have priority over all of these.
"""

from __future__ import annotations

import os

from console.errors import UsageError
from console.launch.options.request import forwarded
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Never forwarded, not even by name: a process with one of these may act as the batch system or as a CPA. The
#: allocation cookie is not one of them: it lets the user's processes launch inside a batch job, and ranks of a workflow
#: may need it (as a step of srun may run srun). It is forwarded only by name.
_SECRET = (b"REDMESH_ADMIN_COOKIE", b"REDMESH_CPA_DATABASE")


class Export:
    """Parsed rules. ``names`` are taken from the launcher's environment, ``values`` are set."""

    __slots__ = ("everything", "names", "values")

    def __init__(self, *, everything: bool, names: list[bytes], values: dict[bytes, bytes]) -> None:
        self.everything, self.names, self.values = everything, names, values

    def apply(self, environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the environment of the ranks, from the launcher's ``environ``.

        A variable of another launcher is forwarded only if it is named.
        """
        chosen = dict(forwarded(environ)) if self.everything else {}
        chosen.update((name, environ[name]) for name in self.names if name in environ)
        chosen.update(self.values)
        return chosen

    def missing(self, environ: Mapping[bytes, bytes]) -> list[bytes]:
        """Named variables that are not set in ``environ``. (srun ignores them silently, which is hard to notice.)"""
        return [name for name in self.names if name not in environ]


def parse(text: str) -> Export:
    """Parse ``--export=text``. Raises UsageError for an invalid name, or an unclosed quote."""
    everything, nothing = False, False
    names: list[bytes] = []
    values: dict[bytes, bytes] = {}
    for item in _items(text):
        name, equals, value = item.partition("=")
        if not equals and name in ("ALL", "NONE", "NIL"):
            everything |= name == "ALL"
            nothing |= name != "ALL"
            continue
        key = _name(name)
        if equals:
            values[key] = _value(name, value)
        elif key not in names:
            names.append(key)
    if nothing and (everything or names):
        raise UsageError(
            "--export: NONE exports nothing: only NAME=VALUE can be given with it", "--export NONE,NAME=VALUE"
        )
    return Export(everything=everything, names=[name for name in names if name not in values], values=values)


def _items(text: str) -> list[str]:
    """Split at commas outside quotes; a quote counts only at the beginning of a value, so that ``A=it's`` is valid."""
    items: list[str] = []
    at = 0
    while True:
        comma, equals = text.find(",", at), text.find("=", at)
        if equals >= 0 and (comma < 0 or equals < comma) and text[equals + 1 : equals + 2] in ("'", '"'):
            quote = text[equals + 1]
            end = text.find(quote, equals + 2)
            if end < 0:
                raise UsageError(
                    f"--export: the {quote} in {clean(text)!r} has no end",
                    "quote it for the shell: --export \"ALL,LIST='a,b'\"",
                )
            if text[end + 1 : end + 2] not in ("", ","):
                raise UsageError(
                    f"--export: a comma must follow the quote after {clean(text[at:equals])}",
                    "--export \"ALL,LIST='a,b',NAME\"",
                )
            comma = end + 1 if end + 1 < len(text) else -1
        item = text[at:comma] if comma >= 0 else text[at:]
        if not item:
            raise UsageError(
                f"--export: two commas without a value between them in {clean(text)!r}",
                "write ALL, NONE, NAME or NAME=VALUE",
            )
        items.append(item)
        if comma < 0:
            return items
        at = comma + 1


def _name(text: str) -> bytes:
    # execve accepts any name without = and NUL, but a blank in a name is always a mistake.
    if not text or "\0" in text or any(char.isspace() for char in text):
        raise UsageError(f"--export: {clean(text)!r} is not a variable's name", "--export ALL,NAME=VALUE")
    name = os.fsencode(text)
    if name in _SECRET:
        raise UsageError(
            f"--export: {clean(text)} is never passed to a program",
            "a process with it could act as the batch system, or as a CPA",
        )
    return name


def _value(name: str, text: str) -> bytes:
    if "\0" in text:
        raise UsageError(f"--export: the value of {clean(name)} has a NUL byte", "no variable may contain one")
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return os.fsencode(text)
