"""The command line: run cases in the Slurm of SLURM_CONF, count, and write the table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.batch.cases import CASES, Case, run
from tests.batch.slurm_job import User, setting
from tests.batch.table import LEFT, LEVELS, MixedResultsError, Results


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.batch", description=__doc__)
    parser.add_argument("--user", required=True, help="the ordinary user whose jobs these are")
    parser.add_argument("--commands", required=True, help="the directory with yod, mesh and python3 for this user")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="jobs that run at the same time")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--results", type=Path, default=Path("batch-results.json"), help="where they are gathered")
    parser.add_argument("--write", action="store_true", help="write the table into docs/managers.md, and run nothing")
    return parser


def commit() -> str:
    """The commit that is tried; with the time if it was changed since, because changes have no name."""
    root = Path(__file__).parents[2]
    said = [
        subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    ]
    return said[0] + (f" changed {int(time.time())}" if said[1] else "")


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    try:
        results = Results(options.results, "" if options.write else commit())
    except MixedResultsError as error:
        parser.error(str(error))
    if options.write:
        results.write()
        return 0
    user = User(options.user, options.commands)
    campaign = Campaign(user, results, setting("ProctrackType").rpartition("/")[2])
    wanted = [case for case in CASES if case.name in options.cases.split(",")]
    runs = [(case, level) for _ in range(options.times) for case in wanted for level in options.levels.split(",")]
    campaign.run(runs, options.at_once)
    left = user.left()[:5]
    for level in options.levels.split(","):
        campaign.record(level, "after all", LEFT, left)
    return 1 if campaign.misses else 0


class Campaign:
    """Runs of cases, several at the same time, whose results are recorded for one tracker of processes."""

    def __init__(self, user: User, results: Results, tracker: str) -> None:
        self._user, self._results, self._tracker = user, results, tracker
        self._lock = threading.Lock()
        self.misses = 0

    def run(self, runs: Sequence[tuple[Case, str]], at_once: int) -> None:
        """Run each case at its level."""
        waiting = iter(runs)

        def work() -> None:
            while True:
                with self._lock:
                    case, level = next(waiting, (None, ""))
                if case is None:
                    return
                wrong, left = run(case, self._user, level)
                self.record(level, case.name, case.name, wrong)
                self.record(level, case.name, LEFT, left[:5])

        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def record(self, level: str, case: str, row: str, wrong: Sequence[str]) -> None:
        """Record one run of a row of the table."""
        text = "; ".join(wrong)
        with self._lock:
            self._results.add(self._tracker, level, row, text)
            self.misses += bool(wrong)
            print(f"{time.strftime('%X')} {self._tracker} {level} {case} {row}: {text or 'ok'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
