"""All actions of the console, and what is made of them."""

from __future__ import annotations

from itertools import chain

from textual.binding import Binding, BindingType

from console.tui.actions import keys
from console.tui.actions.action import Action

TABLES: tuple[tuple[Action, ...], ...] = (
    keys.EVERYWHERE,
    keys.MESH,
    keys.MAP,
    keys.LAUNCHERS,
    keys.WRONG,
    keys.REPLAY,
    keys.TABLE_SCREEN,
    keys.JOBS,
    keys.ROWS,
    keys.LAUNCH_FORM,
    keys.FIELD,
    keys.CHOICE,
    keys.RUN,
    keys.RANKS,
    keys.PROMPT,
    keys.JOB,
    keys.STACKS,
    keys.BESIDE,
    keys.TREE,
    keys.PAGE,
    keys.CHOOSING,
    keys.CELLS,
    keys.LINES,
    keys.OUTPUT,
)
ALL: dict[str, Action] = {action.name: action for action in chain.from_iterable(TABLES)}
assert len(ALL) == sum(map(len, TABLES)), "two actions have one name"

#: Places with only cursor and page movements, which need no labels.
MOVING = frozenset({"cells", "lines", "output", "page", "choosing", "prompt", "field", "choice"})

#: The headings of places in the help.
HEADINGS = {
    "app": "Everywhere",
    "mesh": "Here",
    "launchers": "In the list of launchers",
    "map": "On the map",
    "wrong": "On the line of what is wrong",
    "cells": "Moving over cells",
    "lines": "In a list",
    "table": "Here",
    "replay": "In a recording",
    "jobs": "On a job",
    "job": "Here",
    "rows": "On a row",
    "launch": "Here",
    "field": "In a field",
    "choice": "On an option",
    "run": "Here",
    "ranks": "On a rank",
    "choosing": "In a list to choose from",
    "stacks": "Here",
    "beside": "Here",
    "tree": "In the tree",
    "page": "On a page",
    "prompt": "In the line below",
    "output": "In the output",
}


def of(*places: str) -> list[Action]:
    """The actions of these places, in the order of the places."""
    return [action for place in places for action in ALL.values() if action.place == place]


def bindings(place: str) -> list[BindingType]:
    """The BINDINGS of a screen or widget of that name.

    Their ids are the actions' names, for ``[console.keys]``.
    """
    groups = {name: Binding.Group(name, compact=True) for name in {action.group for action in of(place)} if name}
    return [
        Binding(
            action.keys,
            action.do,
            action.label,
            show=action.footer,
            tooltip=action.meaning,
            id=action.name,
            priority=action.priority,
            group=groups.get(action.group),
        )
        for action in of(place)
        if action.keys
    ]


def changes(place: str, action: str) -> bool:
    """True if the Textual action of that name (``signal`` for ``signal(15)``), bound there, changes anything."""
    return any(row.changes for row in of(place) if row.method == action)
