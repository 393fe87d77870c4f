"""The program as it was when a mesh came up: what its daemons run, whatever becomes of the installed one meanwhile.

Daemons load most of what they can do when it is first asked for. Were those files another version's by then, or gone
(an upgrade of the package), a node would fail in the middle of a launch. So they run from ``STATE/program/ID``: the
same files by hard link, which costs a few milliseconds and no room, or by copy where that cannot be.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator

import agents
import db

#: What is kept under a state directory, and how many letters name a version.
PLACE = "program"
_LETTERS = 16
_CURRENT = "current"  # a link to what the daemons run


def keep(state: str, *, alone: bool = False) -> str:
    """The directory of this version's packages under ``state``, made where it is not there. OSError.

    ``alone``: nothing lives that could run what else is kept there.
    """
    files = list(_files())
    name = _name(files)
    place = f"{state}/{PLACE}/{name}"
    if not os.path.isdir(place):
        _make(place, files)
    mark = f"{state}/{PLACE}/{_CURRENT}"
    if not os.path.islink(mark) or os.readlink(mark) != name:
        os.symlink(name, f"{mark}.new")
        os.replace(f"{mark}.new", mark)
    if alone:
        for other in set(os.listdir(f"{state}/{PLACE}")) - {name, _CURRENT}:
            shutil.rmtree(f"{state}/{PLACE}/{other}", ignore_errors=True)
    return place


def runs_another(state: str) -> bool:
    """Whether the daemons run another program than the one that is installed now."""
    try:
        name = os.readlink(f"{state}/{PLACE}/{_CURRENT}")
    except OSError:
        return False  # they run the installed one
    return name != _name(list(_files()))


def _files() -> Iterator[tuple[str, str, os.stat_result]]:
    """Every file of the daemons' packages: its name in there, its path, and its stat."""
    for package in (agents, db):
        root = os.path.dirname(os.path.abspath(str(package.__file__)))
        yield from _inside(root, os.path.basename(root))


def _inside(folder: str, name: str) -> Iterator[tuple[str, str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _inside(entry.path, f"{name}/{entry.name}")
            elif not entry.name.endswith((".so", ".tmp")):
                yield f"{name}/{entry.name}", entry.path, entry.stat()


def _name(files: list[tuple[str, str, os.stat_result]]) -> str:
    """What tells one version from another: sources alone, for byte-code comes by itself."""
    digest = hashlib.sha256()
    for name, _, stat in sorted(files, key=lambda file: file[0]):
        if "/__pycache__/" not in name:
            digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}\n".encode())
    return digest.hexdigest()[:_LETTERS]


def _make(place: str, files: list[tuple[str, str, os.stat_result]]) -> None:
    begun = f"{place}.{os.getpid()}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(place), 0o700)
    os.mkdir(begun, 0o700)
    made = {begun}
    try:
        for name, path, _ in files:
            to = f"{begun}/{name}"
            folder = os.path.dirname(to)
            if folder not in made:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                made.add(folder)
            _put(path, to)
        os.rename(begun, place)
    finally:
        shutil.rmtree(begun, ignore_errors=True)


def _put(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except OSError:  # another file system, or somebody else's file
        shutil.copy2(path, to)
