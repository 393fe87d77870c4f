"""Launches of before, and those with a name: two files of JSON, for the launch form."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from console.tui.actions.launch_command import FIELDS, Form
from redmesh.sanitise import clean

MOST = 100  # launches remembered
_LARGEST = 1 << 20
_IDS = frozenset(entry.id for entry in FIELDS)


class Presets:
    """``history`` in STATE, newest first, as (launcher, form); ``named`` beside mesh.toml."""

    def __init__(self, state_dir: str, config_dir: str) -> None:
        self._history_file = os.path.join(state_dir, "console-launches.json")
        self._named_file = os.path.join(config_dir, "presets.json")

    @property
    def history(self) -> list[tuple[int, Form]]:
        """What was launched from here before."""
        rows = read_json(self._history_file, [])
        if not isinstance(rows, list):
            return []
        good = [row for row in rows if isinstance(row, dict) and isinstance(row.get("launcher"), int)]
        return [(row["launcher"], _form(row.get("form"))) for row in good[:MOST]]

    @property
    def named(self) -> dict[str, Form]:
        """Presets by name."""
        rows = read_json(self._named_file, {})
        return {clean(name): _form(form) for name, form in rows.items()} if isinstance(rows, dict) else {}

    def launched(self, launcher: int, form: Form) -> None:
        """Remembers a launch. OSError."""
        rows = [(launcher, form), *((number, one) for number, one in self.history if one != form)]
        write_json(self._history_file, [{"launcher": number, "form": one} for number, one in rows[:MOST]])

    def name(self, name: str, form: Form | None) -> None:
        """Keeps a form under a name; None: forgets the name. OSError."""
        named = self.named
        if form is None:
            named.pop(name, None)
        else:
            named[name] = form
        write_json(self._named_file, named)

    def form_of(self, launcher: int) -> Form | None:
        """What a launch began with, where it is remembered."""
        return next((form for number, form in self.history if number == launcher), None)


def config_directory(environ: Any = os.environ) -> str:
    """Where the user's mesh.toml would be."""
    home = environ.get("XDG_CONFIG_HOME", "")
    return os.path.join(home if home.startswith("/") else os.path.expanduser("~/.config"), "redmesh")


def read_json(path: str, otherwise: Any) -> Any:
    """What a file holds; ``otherwise`` when there is none, or none that makes sense."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return otherwise


def write_json(path: str, value: Any) -> None:
    """Puts a whole new file (0600) in the place of the old one. OSError."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".console-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, ensure_ascii=False)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _form(value: object) -> Form:
    if not isinstance(value, dict):
        return {}
    return {name: clean(text) for name, text in value.items() if name in _IDS and isinstance(text, str)}
