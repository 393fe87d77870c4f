"""The log of a storm as JSON lines, and the violations found."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

#: How many violations of one kind are printed in full.
IN_FULL = 3
#: Seconds of the log that are printed with a violation, and lines at most.
AROUND_S, AROUND_LINES = 12.0, 30


class Violation(NamedTuple):
    """Something that must not happen, in words."""

    kind: str
    setting: str
    text: str
    at: float


class Journal:
    """Everything that the storm did and saw, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._begun = time.monotonic()
        self.setting = ""
        self.lines: list[dict[str, Any]] = []
        self.violations: list[Violation] = []

    def now(self) -> float:
        """Seconds since the storm began."""
        return time.monotonic() - self._begun

    def write(self, event: str, **what: Any) -> None:
        line = {"t": round(self.now(), 3), "at": round(time.time(), 3), "setting": self.setting, "event": event, **what}
        self.lines.append(line)
        self._file.write(json.dumps(line, default=str) + "\n")

    def violate(self, kind: str, text: str, since: float | None = None, evidence: str = "") -> None:
        """Record a violation; print it with what was logged since ``since`` (seconds of the storm)."""
        same = sum(one.kind == kind for one in self.violations)
        self.violations.append(Violation(kind, self.setting, text, self.now()))
        self.write("violation", kind=kind, text=text, evidence=evidence)
        print(f"VIOLATION {kind} ({self.setting}, {self.now():.1f} s): {text}", flush=True)
        if same < IN_FULL:
            print(self.around(self.now() - AROUND_S if since is None else since), flush=True)
            if evidence:
                print("\n".join("  | " + line[:240] for line in evidence.splitlines()[-40:]), flush=True)

    def around(self, since: float) -> str:
        """What was logged since ``since``: its end, when that is much; faults are never left out."""
        chosen = [line for line in self.lines if line["t"] >= since - 0.5 and line["event"] != "violation"]
        faults = [line for line in chosen if line["event"] in ("fault", "heal")]
        shown = sorted({id(line): line for line in faults[-AROUND_LINES:] + chosen[-AROUND_LINES:]}.values(), key=_time)
        return "\n".join("  " + _words(line) for line in shown)

    def close(self) -> None:
        self._file.close()


def _time(line: dict[str, Any]) -> float:
    return float(line["t"])


def _words(line: dict[str, Any]) -> str:
    rest = " ".join(f"{key}={value}" for key, value in line.items() if key not in ("t", "at", "setting", "event"))
    return f"{line['t']:8.2f} {line['event']:<10} {rest[:300]}"
