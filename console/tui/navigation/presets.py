"""Earlier launches, named launches and named views, in JSON files."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, NamedTuple

from console.tui.actions.launch_command import FIELDS, Form
from redmesh.sanitise import clean

MOST = 100  # launches remembered
_LARGEST = 1 << 20
_IDS = frozenset(entry.id for entry in FIELDS)


class Presets:
    """``history``: earlier launches as (launcher, form), newest first, in a file in STATE. ``named``: named launches,
    in a file beside mesh.toml."""

    def __init__(self, state_dir: str, config_dir: str) -> None:
        self._history_file = os.path.join(state_dir, "console-launches.json")
        self._named_file = os.path.join(config_dir, "presets.json")

    @property
    def history(self) -> list[tuple[int, Form]]:
        """Earlier launches."""
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
        """Add a launch to the history. Raises OSError."""
        rows = [(launcher, form), *((number, one) for number, one in self.history if one != form)]
        write_json(self._history_file, [{"launcher": number, "form": one} for number, one in rows[:MOST]])

    def name(self, name: str, form: Form | None) -> None:
        """Save a form under a name; None deletes the name. Raises OSError."""
        named = self.named
        if form is None:
            named.pop(name, None)
        else:
            named[name] = form
        write_json(self._named_file, named)

    def form_of(self, launcher: int) -> Form | None:
        """The form of an earlier launch, if it is known."""
        return next((form for number, form in self.history if number == launcher), None)


class View(NamedTuple):
    """The view of a table. ``sort``: a column's name; ``ended``: with ended rows."""

    table: str
    filter: str = ""
    sort: str = ""
    reverse: bool = False
    ended: bool = False


class Views:
    """Views by name, in ``views.json`` beside mesh.toml."""

    def __init__(self, config_dir: str) -> None:
        self._file = os.path.join(config_dir, "views.json")

    @property
    def named(self) -> dict[str, View]:
        """All valid views."""
        rows = read_json(self._file, {})
        found = {clean(name): _view(row) for name, row in rows.items()} if isinstance(rows, dict) else {}
        return {name: view for name, view in found.items() if view is not None}

    def name(self, name: str, view: View | None) -> None:
        """Save a view under a name; None deletes the name. Raises OSError."""
        named = self.named
        if view is None:
            named.pop(name, None)
        else:
            named[name] = view
        write_json(self._file, {name: one._asdict() for name, one in named.items()})


def config_directory() -> str:
    """The directory of the user's mesh.toml."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return os.path.join(home if home.startswith("/") else os.path.expanduser("~/.config"), "redmesh")


def read_json(path: str, otherwise: Any) -> Any:
    """The contents of a file; ``otherwise`` if it is missing or invalid."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return otherwise


def write_json(path: str, value: Any) -> None:
    """Replace a file (0600) atomically. Raises OSError."""
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


def _view(row: object) -> View | None:
    if not isinstance(row, dict) or set(row) != set(View._fields):
        return None
    view = View(**row)
    if not all(isinstance(one, type(View._field_defaults.get(name, ""))) for name, one in view._asdict().items()):
        return None
    return view._replace(filter=clean(view.filter))


def _form(value: object) -> Form:
    if not isinstance(value, dict):
        return {}
    return {name: clean(text) for name, text in value.items() if name in _IDS and isinstance(text, str)}
