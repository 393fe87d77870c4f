"""Runs the tests, and runs each test that failed once more: ``python -m tests.support.second_look [TESTS…]``.

A busy machine must not keep a change from landing, and no failure may be hidden. When the run is over, each failed test
runs again: alone, one after another, with verbose output. A test that fails twice fails the run. A test that passes the
second time is *unstable*: the last lines name it, and build/unstable.txt has both outputs. The last line of all
is in pytest's format, counts every test once, and agrees with the exit status.

There is no second look

- for unit tests that depend on no other process: what makes these fail is in the program or in the test;
- after more than MOST_FAILURES failures: so many usually have one cause;
- if anything but failed tests makes the run fail, or if not every test ran: pytest's own result stands;
- if options of pytest are given, except those of pytest-xdist: a test that runs again would need them too;
- with STRICT=1 in the environment.

All tests are run in two parts: the unit tests, and if these pass, the others. The machine's speed
(tests/support/slowness.py) is measured before both.

The model is ``regrtest --rerun`` of CPython.
"""

import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.support.recorded import FAILING, Outcomes
from tests.support.slowness import measured_once

#: More unstable tests than this fail the run.
MOST_UNSTABLE = 5
#: After more failures than this nothing runs again.
MOST_FAILURES = 20
#: The unit tests. Those among them that depend on no other process have no second look.
UNIT = "tests/unit/"
#: Both outputs of each unstable test of the last run.
UNSTABLE = Path("build/unstable.txt")
#: pytest's exit status of a run in which some tests failed.
TESTS_FAILED = 1
#: pytest's exit status if no test was selected.
NO_TESTS = 5
#: How many characters of a test that fails again are printed.
_SHOWN = 200_000


@dataclass(frozen=True, slots=True)
class SecondLook:
    """One test that ran again."""

    name: str
    #: pytest's category of the test, or why the test did not run. A test that is skipped has not passed.
    outcome: str
    #: What pytest printed.
    output: str

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The combined result of both runs."""

    #: The number of tests in each of pytest's categories.
    totals: dict[str, int]
    #: The tests that failed twice, or failed once and had no second look.
    failed: list[str]
    #: The tests that failed and then passed.
    unstable: list[str]

    def status(self) -> int:
        """Return the exit status of the whole."""
        return TESTS_FAILED if self.totals["failed"] else 0

    def closing_line(self, seconds: float) -> str:
        """Return the totals in the format of pytest's last line."""
        words = ("failed", "passed", "skipped", "xfailed", "xpassed")
        counts = ", ".join(f"{self.totals[word]} {word}" for word in words if self.totals.get(word))
        clock = f" ({datetime.timedelta(seconds=int(seconds))})" if seconds >= 60 else ""
        return f"{counts} in {seconds:.2f}s{clock}"


def to_look_at(first: Outcomes) -> list[str]:
    """Return the tests that run again."""
    failed = first.failed()
    if len(failed) > MOST_FAILURES or not first.complete:
        return []
    return [name for name in failed if not name.startswith(UNIT) or name in first.beside]


def judge(first: Outcomes, looks: list[SecondLook]) -> Verdict:
    """Return the totals of both runs; unstable tests count as passed, those beyond MOST_UNSTABLE as failed."""
    unstable = [look.name for look in looks if look.passed]
    failed = [name for name in first.failed() if name not in unstable]
    totals = Counter(category for category in first.categories.values() if category not in FAILING)
    beyond = max(0, len(unstable) - MOST_UNSTABLE)
    totals["passed"] += len(unstable) - beyond
    totals["failed"] = len(failed) + beyond
    return Verdict(dict(totals), failed, unstable)


class _Pytest:
    """Starts pytest, and forwards to it each signal that ends programs."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        #: The last of these signals, 0 if there was none.
        self.signalled = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, self._forward)

    def run(self, words: list[str], outcomes: Path, output: Path | None = None) -> int:
        """Run pytest and return its exit status; ``output`` takes what it prints, ``outcomes`` the outcomes."""
        plugin = ["-p", "tests.support.outcomes", f"--outcomes={outcomes}"]
        command = [sys.executable, "-m", "pytest", *plugin, *words]
        with open(output, "wb") if output else nullcontext() as file:
            # In a process group of its own, pytest gets each signal once. In this group it would get the signals
            # of a terminal or of timeout(1), and the forwarded ones while it takes its meshes down.
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0)
        if self.signalled:
            self._signal_group(self.signalled)  # it came before there was a child
        return self._child.wait()

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self.signalled = number
        self._signal_group(number)

    def _signal_group(self, number: int) -> None:
        """Signal pytest and the workers of pytest-xdist: each takes down what its test has started."""
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


def _look(pytest: _Pytest, name: str, folder: Path) -> SecondLook:
    """Run one test alone."""
    recorded, output = folder / "second.json", folder / "second.txt"
    recorded.unlink(missing_ok=True)
    try:
        status = pytest.run(["-vvv", "-rA", name], recorded, output)
        printed = output.read_text(errors="replace")
        second = Outcomes.read(recorded)
    except (OSError, ValueError) as error:  # a name that is no argument; a test that removed the directory
        return SecondLook(name, f"it could not run: {error}", "")
    outcome = second.categories.get(name, "not found") if second else "it ended pytest"
    if outcome == "passed" and status != 0:
        outcome = f"pytest's exit status was {status}"
    return SecondLook(name, outcome, printed)


def _keep(report: str, look: SecondLook) -> None:
    """Append both outputs of an unstable test to UNSTABLE."""
    try:
        UNSTABLE.parent.mkdir(exist_ok=True)
        with open(UNSTABLE, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"===== {look.name}: failed beside other tests\n{report}\n")
            file.write(f"===== {look.name}: passed alone\n{look.output}\n")
    except OSError as error:
        print(f"redmesh: cannot write {UNSTABLE}: {error.strerror}; {look.name} failed beside other tests:\n{report}")


def _look_again(pytest: _Pytest, first: Outcomes, names: list[str], folder: Path) -> list[SecondLook]:
    """Run the tests ``names``, each alone; print and keep what they show. Fewer come back after a signal."""
    print(f"\nredmesh: a second look at {len(names)} of {len(first.failed())} failed tests", flush=True)
    looks: list[SecondLook] = []
    for name in names:
        look = _look(pytest, name, folder)
        if pytest.signalled:
            print(f"redmesh: interrupted in the second look at {name}", flush=True)
            break
        looks.append(look)
        print(f"{'passes' if look.passed else 'DOES NOT PASS'} alone: {name}", flush=True)
        if look.passed:
            _keep(first.reports[name], look)
        else:
            print(look.output[-_SHOWN:], flush=True)
    return looks


def _print_verdict(verdict: Verdict, looks: list[SecondLook], seconds: float) -> None:
    outcomes = {look.name: f"alone: {look.outcome}" for look in looks}
    for name in verdict.failed:
        print(f"FAILED {name} ({outcomes.get(name, 'no second look')})")
    if verdict.unstable:
        if UNSTABLE.exists():
            print(f"Both outputs of each unstable test are in {UNSTABLE}.")
        if len(verdict.unstable) > MOST_UNSTABLE:
            print(f"The run fails: more than {MOST_UNSTABLE} tests are unstable.")
        print(f"{len(verdict.unstable)} unstable: {', '.join(verdict.unstable)}")
    print(verdict.closing_line(seconds), flush=True)


def _selection(words: list[str]) -> list[str]:
    """Return ``words`` without the options of pytest-xdist: names of tests, and options that a second look needs."""
    rest = iter(words)
    return [word for word in rest if word not in ("-n", "--dist") or next(rest, None) is None]


def _fewer(words: list[str]) -> list[str]:
    """Return ``words`` with half the processes: unit tests compute, and each process collects them all (5 s)."""
    place = words.index("-n") + 1 if "-n" in words else len(words)
    if place >= len(words) or not words[place].isdigit():
        return words
    return [*words[:place], str(max(1, int(words[place]) // 2)), *words[place + 1 :]]


def _at_once(words: list[str]) -> int:
    """Return the number of tests that run at the same time: 1 without pytest-xdist's option, however it is written."""
    given = re.search(r"(?:^| )(?:-n *|--numprocesses[ =])(auto|logical|\d+)(?: |$)", " ".join(words))
    if given is None:
        return 1
    return int(given[1]) if given[1].isdigit() else len(os.sched_getaffinity(0))


def _run(pytest: _Pytest, words: list[str], recorded: Path) -> tuple[int, Outcomes | None]:
    """Run a part of the tests; return the exit status, and how they ended if the run came to its end."""
    began = time.monotonic()
    status = pytest.run(words, recorded)
    found = Outcomes.read(recorded)
    if found is None and status == 0:
        print("redmesh: a test ended pytest with status 0 before the end of the run")
        print(f"1 error in {time.monotonic() - began:.2f}s", flush=True)
        status = TESTS_FAILED
    return (status if status >= 0 else 128 - status), found


def main(words: list[str]) -> int:
    """Run the tests, look again at those that failed, and return the exit status."""
    began = time.monotonic()
    measured_once(_at_once(words))
    selection = _selection(words)
    if os.environ.get("STRICT", "0") not in ("", "0") or any(word.startswith("-") for word in selection):
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(OSError):
        UNSTABLE.unlink()
    pytest = _Pytest()
    parts = [words]
    if not selection and Path(UNIT).is_dir():
        parts = [[*_fewer(words), UNIT], [*words, f"--ignore={UNIT}"]]
    status, ran = 0, 0
    looks: list[SecondLook] = []
    failed: list[str] = []
    outcomes = Outcomes({}, {}, [], complete=True)
    with tempfile.TemporaryDirectory(prefix="rm-second-look-", ignore_cleanup_errors=True) as name:
        for part in parts:
            status, found = _run(pytest, part, Path(name, f"part{ran}.json"))
            if found is None:
                return status  # pytest's own last line says why
            ran += 1
            outcomes = outcomes.and_then(found)
            names = to_look_at(found) if status == TESTS_FAILED and not pytest.signalled else []
            looked = _look_again(pytest, found, names, Path(name)) if names else []
            if len(looked) < len(names):
                return 128 + pytest.signalled
            looks += looked
            if status == NO_TESTS and ran > 1:
                status = 0
            failed = found.failed()
            enough = len(looks) <= MOST_UNSTABLE
            if enough and names and set(names) == set(failed) and all(look.passed for look in looked):
                status = 0
            if status != 0:
                break
    if status == 0 or (status == TESTS_FAILED and failed):
        seconds = time.monotonic() - began
        verdict = judge(outcomes, looks)
        if looks:
            _print_verdict(verdict, looks, seconds)
        elif ran > 1:
            print(verdict.closing_line(seconds), flush=True)
        return verdict.status()
    return status  # otherwise pytest's own last line has the totals


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
