"""The files of ours that ranks get: yodio, yodstate and yodpdb on their PATH and PYTHONPATH.

If the agent is a single archive, each launch extracts these files. In system mode users may not read the archive, so
its contents are read beforehand.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List

#: The directory that ranks under ``--io`` have on PATH and PYTHONPATH.
YODIO = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "yodio")
_FILES = (
    "yodio", "yodio.py", "yodpdb.py", "yodreport.py", "yodstate", "yodstate.py", "yodwork", "yodwork.py", "yodcall.py",
    "yodbegun.py", "yodbytes.py", "yodcaller.py", "yodfields.py", "yodmemory.py", "yodpackage.py", "yodparts.py",
    "yodstage.py", "yodstopped.py",
)  # fmt: skip
_read: Dict[str, bytes] = {}


def yodio_in(directory: str) -> str:
    """A directory with yodio in it: ours, or one created in ``directory``. Raises OSError."""
    if os.path.isdir(YODIO):
        return YODIO
    load()
    place = os.path.join(directory, "yodio-bin")
    os.mkdir(place, 0o700)
    for name, content in _read.items():
        fd = os.open(os.path.join(place, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
        with open(fd, "wb") as file:
            file.write(content)
    return place


def source(name: str) -> bytes:
    """The source of one of the files. Raises OSError."""
    if name in _read:
        return _read[name]
    if os.path.isdir(YODIO):
        with open(os.path.join(YODIO, name), "rb") as file:
            return file.read()
    load()
    return _read[name]


def load() -> None:
    """Read the files from the archive."""
    import agents

    if not _read and not os.path.isdir(YODIO):
        loader = agents.__loader__
        for name in _FILES:
            _read[name] = loader.get_data(os.path.join(YODIO, name))  # type: ignore[union-attr]


def load_all_modules() -> List[str]:
    """Import every module that a launch child may need, while the archive is readable; returns their names."""
    import importlib
    import pkgutil
    import sys

    import agents.link
    import agents.linux
    import agents.pct
    import agents.pmix
    import agents.wire

    # The archive's first entry has modules for the first launch (console/deploy/agent/archive.py).
    loaded = [name for finder in sys.meta_path for name in getattr(finder, "waiting", ())]
    for name in loaded:
        importlib.import_module(name)
    packages = [agents.wire, agents.link, agents.linux, agents.pct, agents.pmix]
    for package in packages:  # the list grows during the iteration
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
                loaded.append(module.name)
        # pkgutil does not recognise packages of the archive among modules imported at the start.
        below = [name for name in sys.modules if name.rpartition(".")[0] == package.__name__]
        packages += [sys.modules[name] for name in sorted(below) if hasattr(sys.modules[name], "__path__")]
    load()
    return loaded
