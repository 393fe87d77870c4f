"""The command line: run cases in the Slurm of SLURM_CONF, count, and write the table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.batch.cases import CASES, run
from tests.batch.slurm_job import User
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


def tracker() -> str:
    """The tracker of processes that Slurm's configuration names."""
    said = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    lines = dict(line.partition("=")[::2] for line in said.splitlines())
    found = {name.strip(): value.strip() for name, value in lines.items()}
    return found["ProctrackType"].rpartition("/")[2]


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
    user, kind = User(options.user, options.commands), tracker()
    wanted = [case for case in CASES if case.name in options.cases.split(",")]
    lock, misses = threading.Lock(), 0
    for case in wanted:
        for level in options.levels.split(","):
            work: Iterator[int] = iter(range(options.times))

            def one(case=case, level=level, work=work) -> None:  # type: ignore[no-untyped-def]
                nonlocal misses
                while True:
                    with lock:
                        number = next(work, None)
                    if number is None:
                        return
                    try:
                        wrong = run(case, user, level)
                    except Exception as error:
                        wrong = [repr(error)]
                    with lock:
                        results.add(kind, level, case.name, "; ".join(wrong))
                        misses += bool(wrong)
                        print(f"{kind} {level} {case.name} {number + 1}: {'; '.join(wrong) or 'ok'}", flush=True)

            threads = [threading.Thread(target=one) for _ in range(options.at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            left = user.left()
            results.add(kind, level, LEFT, "; ".join(left))
            misses += bool(left)
            print(f"{kind} {level} {case.name}: left {len(left)} {left[:3]}", flush=True)
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
