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


class MixedResultsError(Exception):
    """The results in a file are those of another version."""


class Results:
    """The runs of one version in a file, so that several Slurms can be tried in turn.

    The file has the ``commit`` and the ``runs``: for each tracker, level and case, what was wrong with each run (""
    if nothing was).
    """

    def __init__(self, path: Path, commit: str = "") -> None:
        """``commit``: the version that is tried; "" to read only. Raises MixedResultsError for another one's file."""
        self._path = path
        self.commit, self._runs = commit, dict[str, list[str]]()
        if not path.exists():
            return
        found = json.loads(path.read_text())
        self.commit, self._runs = str(found.get("commit", "unknown")), found.get("runs", {})
        if "runs" not in found or commit not in ("", self.commit):
            raise MixedResultsError(f"{path} has results of commit {self.commit}: name another file by --results")

    def add(self, tracker: str, level: str, case: str, wrong: str) -> None:
        """Record a run and what was wrong with it; "" for a hit."""
        self._runs.setdefault(f"{tracker} {level} {case}", []).append(wrong)
        self._path.write_text(json.dumps({"commit": self.commit, "runs": self._runs}, indent=1, sort_keys=True))

    def cell(self, tracker: str, level: str, case: str) -> str:
        """``hits of runs``; empty if it was not tried."""
        found = self._runs.get(f"{tracker} {level} {case}")
        return f"{found.count('')} of {len(found)}" if found else "–"

    def table(self) -> str:
        """The table in Markdown."""
        columns = [(tracker, level) for tracker in TRACKERS for level in LEVELS]
        lines = ["| what | " + " | ".join(f"{tracker}, {level}" for tracker, level in columns) + " |"]
        lines.append("|---|" + "---|" * len(columns))
        rows = [(case.name, case.title) for case in CASES] + [(LEFT, "after a case, no process and no file is left")]
        for name, title in rows:
            if not any(key.endswith(f" {name}") for key in self._runs):
                continue  # not tried anywhere
            lines.append(f"| {title} | " + " | ".join(self.cell(*column, name) for column in columns) + " |")
        return "\n".join(lines)

    def write(self) -> None:
        """Put the table into the page."""
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{self.table()}\n\n{END}{rest.partition(END)[2]}")
