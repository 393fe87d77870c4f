"""A pytest plugin: ``-p tests.support.outcomes --outcomes FILE`` writes how each test of the run ended into FILE."""

import resource
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.recorded import FAILING, Outcomes

#: pytest's categories of one phase of a test, worst first. A test has the worst of its phases.
_CATEGORIES = ("error", "failed", "skipped", "xfailed", "xpassed", "passed")
#: Python's audit events of a test that starts a process.
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"})
#: The property of a test that depended on another process.
_BESIDE = ("beside another process", True)


def beside_a_process(item: pytest.Item) -> None:
    """Note that the test ``item`` uses a process that was started before it."""
    if _BESIDE not in item.user_properties:
        item.user_properties.append(_BESIDE)


def _faults_of_children() -> int:
    """Return a count that grows with every child that has ended and been waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


class _Watch:
    """Notes which tests start processes; registered in every process that runs tests."""

    def __init__(self) -> None:
        self._item: pytest.Item | None = None
        self._faults = _faults_of_children()
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _arguments: object) -> None:
        if event in _STARTS and self._item is not None:
            beside_a_process(self._item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch one test, with its set-up and tear-down."""
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        """Notice a child of which there was no audit event, as those of multiprocessing."""
        faults = _faults_of_children()
        if faults != self._faults:
            self._faults = faults
            beside_a_process(item)


class _Recorder:
    """The plugin's hooks, registered in the process that collects all reports: not in the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config = config
        self._file = file
        self._selected: set[str] = set()
        self._ended: set[str] = set()
        self._failures = 0
        self._beside: set[str] = set()
        self._categories: dict[str, str] = {}
        self._reports: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the selected tests of a run in one process."""
        self._selected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Record the selected tests of a run with workers: each worker selects all of them."""
        self._selected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one phase of a test."""
        self._failures += report.failed
        if list(_BESIDE) in map(list, report.user_properties):  # pytest-xdist makes a list of the tuple
            self._beside.add(report.nodeid)
        if report.when not in ("setup", "call"):  # the tear-down, or "???" of a worker that crashed
            self._ended.add(report.nodeid)
        hook = self._config.hook
        category = hook.pytest_report_teststatus(report=report, config=self._config)[0]
        if category not in _CATEGORIES:
            return  # a phase that pytest does not count: a set-up or tear-down that succeeded
        worst = self._categories.get(report.nodeid, category)
        self._categories[report.nodeid] = min(worst, category, key=_CATEGORIES.index)
        if category in FAILING:
            parts = [f"{category} in {report.when}:", report.longreprtext]
            parts += [f"--- {title} ---\n{text}" for title, text in report.sections]
            self._reports[report.nodeid].append("\n".join(parts))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Write the outcomes when all other plugins have ended the session; not if one of them raised an error."""
        yield
        complete = (
            session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            and not session.shouldstop
            and not session.shouldfail
            and session.testsfailed == self._failures  # pytest counts files that could not be collected, too
            and self._ended >= self._selected
        )
        reports = {name: "\n".join(texts) for name, texts in self._reports.items()}
        Outcomes(self._categories, reports, sorted(self._beside), complete).write(self._file)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--outcomes``."""
    parser.addoption("--outcomes", metavar="FILE", help="write how each test ended into FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder where all reports arrive, and the watch where tests run."""
    file = config.getoption("outcomes")
    if file is not None:
        config.pluginmanager.register(_Watch())
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config, Path(file)))
