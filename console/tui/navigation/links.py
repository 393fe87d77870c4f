"""Places with names: ``:node n12``, ``:launcher 7``, ``:events``; and the history of visited places. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from console.errors import ConsoleError
from console.tui.model.machine import Machine

#: Words, their abbreviations, and whether they need a name.
KINDS: dict[str, bool] = {
    "mesh": False, "launch": False, "launchers": False, "partitions": False, "nodes": False, "events": False,
    "jobs": False, "help": False, "quit": False, "node": True, "cabinet": True, "launcher": True, "partition": True,
    "run": True, "job": True, "user": True, "select": True, "view": True, "save": True, "forget": True,
}  # fmt: skip
ALIASES = {
    "m": "mesh", "map": "mesh", "n": "node", "no": "nodes", "l": "launcher", "la": "launchers", "ls": "launchers",
    "p": "partition", "pa": "partitions", "e": "events", "ev": "events", "r": "run", "attach": "run", "c": "cabinet",
    "rack": "cabinet", "u": "user", "q": "quit", "q!": "quit", "s": "select", "h": "help",
    "j": "job", "v": "view",
}  # fmt: skip
_NUMBERED = ("launcher", "partition", "run")
MOST = 12


class LinkError(ConsoleError):
    """An unknown place."""

    exit_status = 2


class Link(NamedTuple):
    """A place. ``name`` is empty for places without one."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


def parse(text: str) -> Link:
    """Parse the text after the colon. Raises LinkError."""
    word, _, name = text.strip().partition(" ")
    name = name.strip()
    kind = ALIASES.get(word, word)
    if kind not in KINDS:
        near = [known for known in KINDS if word and known.startswith(word)]
        if len(near) != 1 and word and not name:
            raise LinkError(f"there is no view called {word}", ", ".join(near) or ", ".join(KINDS))
        if len(near) != 1:
            raise LinkError("where to?" if not word else f"there is no view called {word}", ", ".join(KINDS))
        kind = near[0]
    if name and not KINDS[kind]:
        plural = {"nodes": "node", "launchers": "launcher", "partitions": "partition", "jobs": "job"}
        if kind not in plural:
            raise LinkError(f"{kind} takes no name")
        kind = plural[kind]
    if KINDS[kind] and not name:
        raise LinkError(f"{kind} which?")
    if kind in _NUMBERED and not (name.isascii() and name.isdigit() and len(name) < 19):
        raise LinkError(f"{kind} takes a number, not {name}")
    return Link(kind, name)


def completions(text: str, machine: Machine, views: Iterable[str] = ()) -> list[str]:
    """Possible continuations of ``text``, as whole lines. ``views``: names of saved views."""
    word, space, name = text.lstrip().partition(" ")
    if not space:
        return [kind + (" " if KINDS[kind] else "") for kind in KINDS if kind.startswith(word)][: MOST + 4]
    kind = ALIASES.get(word, word)
    known = sorted(views) if kind in ("view", "save", "forget") else _names(kind, machine)
    return [f"{word} {one}" for one in known if one.startswith(name) and one != name][:MOST]


def _names(kind: str, machine: Machine) -> list[str]:
    if kind in ("node", "nodes"):
        return [node.name for node in machine.nodes]
    if kind in ("launcher", "launchers", "run"):
        return [str(number) for number in sorted(machine.launchers)]
    if kind in ("partition", "partitions"):
        return [str(number) for number in sorted(machine.partitions)]
    if kind == "job":
        return [job.id for job in machine.jobs.values()]
    if kind == "user":
        return sorted({row.user for row in machine.launchers.values()})
    return []


class Trail:
    """The history of places: back and forward as in a browser."""

    def __init__(self) -> None:
        self._been: list[Link] = [Link("mesh")]
        self._at = 0

    @property
    def here(self) -> Link:
        """The present place, as far as known."""
        return self._been[self._at]

    def visit(self, link: Link) -> None:
        """Go to a new place: places ahead are forgotten."""
        if link != self.here:
            del self._been[self._at + 1 :]
            self._been.append(link)
            del self._been[:-100]
            self._at = len(self._been) - 1

    def step(self, by: int) -> Link | None:
        """Back (-1) or forward (1); None at the end."""
        if not 0 <= self._at + by < len(self._been):
            return None
        self._at += by
        return self.here
