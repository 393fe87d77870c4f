"""What the monkey has reached: how often each screen was in front at a check, and how often each binding ran.

``python -m tests.monkey.coverage DIRECTORY…`` adds up the reports of several seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from console.tui.actions.registry import ALL

FILE = "coverage.log"
#: Bindings that the monkey must not run, or runs as a way to leave: no line says that they never ran.
_BY_ITSELF = frozenset({"app.quit", "app.suspend"})


class Recorder:
    """Writes down what a console shows and does. Each line is whole, because the console may be killed."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def screen(self, screen: object) -> None:
        """This screen is in front."""
        self._file.write(f"screen {type(screen).__name__}\n")

    def action(self, node: Any, action: str) -> None:
        """A binding of this node ran."""
        bound = (one for several in node._bindings.key_to_bindings.values() for one in several)
        for name in {one.id for one in bound if one.action == action and one.id in ALL}:
            self._file.write(f"binding {name}\n")


def counted(reports: Iterable[Path]) -> Counter[str]:
    """How often each line stands in the files of these directories."""
    found: Counter[str] = Counter()
    for report in reports:
        if (report / FILE).exists():
            found.update((report / FILE).read_text(encoding="utf-8").splitlines())
    return found


def table(found: Counter[str]) -> str:
    """Screens and bindings, the most frequent first; what never came at the end."""
    screens = {name[7:]: count for name, count in found.most_common() if name.startswith("screen ")}
    bindings = {name[8:]: count for name, count in found.most_common() if name.startswith("binding ")}
    never = sorted(name for name, action in ALL.items() if action.keys and name not in {*bindings, *_BY_ITSELF})
    lines = ["screens in front: " + ", ".join(f"{name} {count}" for name, count in screens.items())]
    lines += [f"bindings that ran: {len(bindings)} of {len(bindings) + len(never)}"]
    lines += ["  " + "  ".join(f"{name} {count}" for name, count in row) for row in _rows(list(bindings.items()))]
    return "\n".join([*lines, "never ran: " + (", ".join(never) or "none")])


def _rows(pairs: list[tuple[str, int]]) -> Iterable[list[tuple[str, int]]]:
    return (pairs[at : at + 6] for at in range(0, len(pairs), 6))


if __name__ == "__main__":
    print(table(counted(map(Path, sys.argv[1:]))))
