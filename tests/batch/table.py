"""The results of all trackers of processes, and the table of docs/managers.md that is made from them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.batch.cases import CASES

PAGE = Path(__file__).parents[2] / "docs" / "managers.md"
BEGIN, END = "<!-- made by python -m tests.batch -->", "<!-- end of what python -m tests.batch made -->"
TRACKERS, LEVELS = ("pgid", "linuxproc", "cgroup"), ("daemon", "rank")
#: The row of the table that counts what was left after all cases.
LEFT = "left"


class Results:
    """Hits and runs by tracker, level and case, in a file, so that several Slurms can be tried in turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, tracker: str, level: str, case: str, hit: bool) -> None:
        """Count a run."""
        found = self._counts.setdefault(f"{tracker} {level} {case}", [0, 0])
        found[0] += hit
        found[1] += 1
        self._path.write_text(json.dumps(self._counts, indent=1, sort_keys=True))

    def cell(self, tracker: str, level: str, case: str) -> str:
        """``hits of runs``; empty if it was not tried."""
        found = self._counts.get(f"{tracker} {level} {case}")
        return f"{found[0]} of {found[1]}" if found else "–"

    def table(self) -> str:
        """The table in Markdown."""
        columns = [(tracker, level) for tracker in TRACKERS for level in LEVELS]
        lines = ["| what | " + " | ".join(f"{tracker}, {level}" for tracker, level in columns) + " |"]
        lines.append("|---|" + "---|" * len(columns))
        rows = [(case.name, case.title) for case in CASES] + [(LEFT, "after a case, no process and no file is left")]
        for name, title in rows:
            if not any(key.endswith(f" {name}") for key in self._counts):
                continue  # not tried anywhere
            lines.append(f"| {title} | " + " | ".join(self.cell(*column, name) for column in columns) + " |")
        return "\n".join(lines)

    def write(self) -> None:
        """Put the table into the page."""
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{self.table()}\n\n{END}{rest.partition(END)[2]}")
