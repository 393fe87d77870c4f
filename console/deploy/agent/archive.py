"""The entry point of an agent's archive: ``agent.pyz keeper --config FILE`` and similar commands.

It becomes the archive's ``__main__`` and runs on hosts with a bare Python of 3.9 or newer: standard library only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The archive's entry with all modules that an agent imports at its start: name → (is a package, byte-code).
START = "start"
_WORDS = {"keeper": "agents.keeper.__main__", "pct": "agents.pct.__main__", "yodio": "agents.yodio.yodio"}


class Start:
    """Imports the modules of the entry ``START``, because importing them from separate entries takes a third longer."""

    def __init__(self, path: str, modules: dict[str, tuple[bool, bytes]]) -> None:
        self._path, self.waiting = path, modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        found = self.waiting.get(name)
        if found is None:
            return None
        place = "%s/%s" % (self._path, name.replace(".", "/"))
        kind: Any = type(sys.__spec__)  # the class from importlib, without importing importlib
        spec = kind(name, self, origin=place, is_package=found[0])
        if found[0]:
            spec.submodule_search_locations.append(place)
        return spec

    def create_module(self, spec: Any) -> None:
        pass

    def exec_module(self, module: Any) -> None:
        import marshal

        package, code = self.waiting.pop(module.__name__)
        module.__file__ = module.__spec__.origin + ("/__init__.pyc" if package else ".pyc")
        exec(marshal.loads(code), module.__dict__)

    def get_data(self, path: str) -> bytes:
        """Other data in the archive, for importers of archives."""
        import zipimport

        return zipimport.zipimporter(self._path).get_data(path)


def open_archive(path: str) -> None:
    """Make the modules of the archive at ``path`` importable."""
    import marshal
    import zipimport

    sys.path.insert(0, path)
    try:
        packed = zipimport.zipimporter(path).get_data("%s/%s" % (path, START))
    except OSError:
        return  # an archive with source: every module has its own entry
    sys.meta_path.insert(0, Start(path, marshal.loads(packed)))


def main(words: list[str]) -> int:
    """Run the command in ``words``; returns the exit status."""
    if not words or words[0] not in _WORDS:
        print("usage: agent.pyz keeper --config keeper.json", file=sys.stderr)
        return 2
    from importlib import import_module

    module: Any = import_module(_WORDS[words[0]])
    sys.argv = words
    status: int = module.main() if words[0] == "yodio" else module.main(words[1:])
    return status


if __name__ == "__main__":
    if sys.version_info < (3, 9):
        sys.exit("redmesh: Python 3.9 or newer is needed, this is %d.%d" % sys.version_info[:2])
    open_archive(sys.path.pop(0))
    sys.exit(main(sys.argv[1:]))
