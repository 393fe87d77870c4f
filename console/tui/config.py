"""The console's preferences: the section ``[console]`` of the configuration, checked. No I/O."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from console.settings import ConfigurationError
from console.tui.actions.action import Action
from console.tui.actions.registry import ALL
from console.tui.navigation.presets import read_json, write_json
from console.tui.terminal.themes import NAMES

_KEYS = ("theme", "read_only", "notes", "bell", "restore", "keys")


class Preferences(NamedTuple):
    """The values of ``[console]``. ``keys``: Textual's keymap, by the actions' names."""

    theme: str = ""  # the console's own short name; empty: the last one used, or dark
    read_only: bool = False
    bell: bool = False  # ring when a launch of the user ends that is not on the screen
    notes: bool = True  # show a note about it
    restore: bool = True  # open the tabs of the last session again
    keys: Mapping[str, str] = {}


def preferences(section: Mapping[str, Any] | None, origin: str = "[console]") -> Preferences:
    """Parse the section. Raises ConfigurationError; for an unknown word it names the most similar known one."""
    found = Preferences()
    for name, value in (section or {}).items():
        if name not in _KEYS:
            raise ConfigurationError(f"{origin}: no key is called {name!r}", _nearest(name, _KEYS))
        if name == "keys":
            found = found._replace(keys=keymap(value, origin))
        elif name == "theme":
            if value not in NAMES:
                raise ConfigurationError(f"{origin}: no theme is called {value!r}", f"there are {', '.join(NAMES)}")
            found = found._replace(theme=value)
        elif not isinstance(value, bool):
            raise ConfigurationError(f"{origin}: {name} must be true or false, not {value!r}")
        else:
            found = Preferences(**{**found._asdict(), name: value})
    return found


def keymap(section: object, origin: str) -> dict[str, str]:
    """Parse ``[console.keys]``: keys by actions, separated by commas. Raises ConfigurationError, also for
    conflicting keys."""
    if not isinstance(section, dict):
        raise ConfigurationError(f'{origin}: keys must be a table: action = "key"')
    found: dict[str, str] = {}
    for name, keys in section.items():
        if name not in ALL:
            raise ConfigurationError(f"{origin}.keys: no action is called {name!r}", _nearest(name, ALL))
        if not isinstance(keys, str) or not keys.strip():
            raise ConfigurationError(f'{origin}.keys: {name} wants keys, like "ctrl+k" or "f,F"')
        found[name] = ",".join(_key(key.strip(), name, origin) for key in keys.split(","))
    _refuse_clashes(found, origin)
    return found


def _key(key: str, name: str, origin: str) -> str:
    from textual.keys import KEY_ALIASES, KEY_DISPLAY_ALIASES, Keys, _character_to_key

    *modifiers, last = key.split("+") if key != "+" else ["+"]
    if any(modifier not in ("ctrl", "alt", "shift") for modifier in modifiers):
        raise ConfigurationError(f"{origin}.keys: {key!r} is not a key ({name})", "modifiers are ctrl, alt and shift")
    if len(last) == 1:
        last = _character_to_key(last)
    else:
        known = {one.value for one in Keys} | set(KEY_ALIASES) | set(KEY_DISPLAY_ALIASES)
        if last not in known and _character_name(last) is None:
            raise ConfigurationError(f"{origin}.keys: {key!r} is not a key ({name})", _nearest(last, known))
    return "+".join((*modifiers, last))


def _character_name(name: str) -> str | None:
    import unicodedata

    try:
        return unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return None


def _refuse_clashes(found: Mapping[str, str], origin: str) -> None:
    taken: dict[tuple[str, str], Action] = {}
    for action in ALL.values():
        for key in (found.get(action.name) or action.keys).split(","):
            if not key:
                continue
            other = taken.setdefault((action.place, key.strip()), action)
            if other is not action and (action.name in found or other.name in found):
                raise ConfigurationError(
                    f"{origin}.keys: {key} would be both {other.name} and {action.name}", "give one of them another"
                )


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else "docs/console.md has them all"


# The last session: theme and tabs. If it is missing or invalid, the console starts afresh.


_MOST = 20  # tabs


class Session:
    """``console-session.json`` in STATE."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, "console-session.json")
        self._kept: Any = None
        self.fresh = not os.path.exists(self._path)

    def theme(self) -> str:
        """The theme of the last session; empty if unknown."""
        theme = self._read().get("theme")
        return theme if theme in NAMES else ""

    def launchers(self) -> list[int]:
        """The launchers whose tabs were open."""
        found = self._read().get("launchers")
        if not isinstance(found, list):
            return []
        return [number for number in found if isinstance(number, int) and 0 < number < 1 << 63][:_MOST]

    def keep(self, theme: str, launchers: list[int]) -> None:
        """Save the session if it has changed; an unwritable state directory is ignored."""
        now = {"theme": theme, "launchers": launchers[-_MOST:]}
        if now != self._kept:
            self._kept = now
            with contextlib.suppress(OSError):
                write_json(self._path, now)

    def _read(self) -> dict[str, Any]:
        found = read_json(self._path, {})
        return found if isinstance(found, dict) else {}
