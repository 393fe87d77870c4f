"""The end of the daemons' logs, for users whose mesh did not come up."""

import json
import os

#: How many daemons are shown, and lines of each.
_FILES, _LINES = 3, 4
_TELLING = ("error", "message", "reason", "event")


def tail(directory: str, since: float) -> str:
    """The last lines since ``since`` (wall clock), indented; the keeper's stderr first."""
    files = []
    for name in _names(directory):
        path = os.path.join(directory, name)
        try:
            status = os.stat(path)
        except OSError:
            continue
        if status.st_size and status.st_mtime >= since - 1:
            files.append((not name.endswith(".stderr"), -status.st_mtime, path))
    parts = []
    for _stderr, _age, path in sorted(files)[:_FILES]:
        lines = [readable(line) for line in _last_lines(path)]
        if lines:
            parts.append(f"\n  {os.path.basename(path)}:\n" + "\n".join(f"    {line}" for line in lines))
    return "".join(parts)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _last_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_LINES:]


def readable(line: str) -> str:
    """A log line in readable, sanitised form."""
    from redmesh.sanitise import clean

    try:
        said = json.loads(line)
        words = [str(said[key]) for key in _TELLING if said.get(key)] if isinstance(said, dict) else []
    except ValueError:
        words = []
    return clean(": ".join(words) or line)[:200]
