"""How the tests of a run ended, in a file; the process that only reads it does not need pytest, half a second."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

#: The categories of a test that makes a run fail.
FAILING = frozenset({"error", "failed"})


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How the tests of one run ended, by node id."""

    #: The category of each test that ran.
    categories: dict[str, str]
    #: The reports of each test that failed: what pytest prints in its section FAILURES or ERRORS.
    reports: dict[str, str]
    #: The tests that started a process, or used one that runs for several tests (``beside_a_process``).
    beside: list[str]
    #: Every selected test ran to its end, and nothing but failed tests makes the run fail.
    complete: bool

    def failed(self) -> list[str]:
        """Return the tests that failed in any phase, in the order in which they ended."""
        return [name for name, category in self.categories.items() if category in FAILING]

    def and_then(self, later: Self) -> Self:
        """Return the outcomes of both runs, which have no test in common."""
        return replace(
            later,
            categories={**self.categories, **later.categories},
            reports={**self.reports, **later.reports},
            beside=[*self.beside, *later.beside],
        )

    def write(self, file: Path) -> None:
        """Write the outcomes to ``file``."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """Return what ``write`` wrote; None if the run ended before it wrote anything."""
        if not file.exists():
            return None
        return cls(**json.loads(file.read_text()))
