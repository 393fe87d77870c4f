"""Fixtures that every test may use."""

import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.support.chance import LONG, long
from tests.support.daemons import daemons, make_daemons
from tests.support.hosts import loopback_hosts, netns_hosts
from tests.support.mesh import mesh
from tests.support.once import share
from tests.support.outcomes import beside_a_process
from tests.support.reaper import private_directory
from tests.support.shared_mesh import mesh_of_all_modules
from tests.support.stores import database_url, machine, sql_database, sql_server, store
from tests.support.turns import Turns
from tests.support.waiting import SLOWNESS

__all__ = [
    "daemons",
    "database_url",
    "loopback_hosts",
    "machine",
    "make_daemons",
    "mesh",
    "mesh_of_all_modules",
    "netns_hosts",
    "nobodys_own_mesh",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_runtestloop",
    "pytest_terminal_summary",
    "pytest_timeout_set_timer",
    "sql_database",
    "sql_server",
    "store",
]


# Every worker imports all tests; where PYTHONDONTWRITEBYTECODE is set, each would compile them again.
sys.dont_write_bytecode = False

# What is imported and collected, some 300,000 objects, stays until the end of the run. Without this, each full garbage
# collection looks at all of it: an eighth of the time of a collection of tests, and of a console that runs in a test.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Begin to collect garbage, of what the tests make."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


# How long an example takes says more of the machine's other work than of ours.
_SLOW = [hypothesis.HealthCheck.too_slow]
# The examples are few and the same every time, but for ``make storm``, which runs every test that has some
# (tests/support/chance.py).
hypothesis.settings.register_profile(
    "shared machine",
    deadline=None,
    suppress_health_check=_SLOW,
    derandomize=not LONG,
    print_blob=True,
    max_examples=long(25, 1000),
)
hypothesis.settings.load_profile("shared machine")


#: Where this process, and what it starts without directories of its own, would have its personal mesh.
HOME = private_directory("rm-home-")


@pytest.fixture(autouse=True)
def nobodys_own_mesh() -> Iterator[None]:
    """No test starts the mesh of whoever runs the tests: one that starts any outside its own directories fails."""
    yield
    if (HOME / "redmesh").exists():
        mesh = [sys.executable, "-P", "-m", "redmesh", "mesh", "down", "--force"]
        subprocess.run(mesh, stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(HOME / "redmesh")
        pytest.fail("a personal mesh was started; tests have meshes in directories of their own")


#: The limit of a test, kept for its later phases.
_LIMIT = pytest.StashKey[Any]()
#: A descriptor of the terminal, which pytest's capture of a test's output leaves alone.
_TERMINAL = pytest.StashKey[int]()
#: What a test may still take after its limit, until the process that runs it ends.
_GRACE_S = 60.0


#: The fixtures that start a database server for several tests.
_SERVERS = frozenset({"sql_server", "fragile"})
#: The turns of a run that has several processes.
_TURNS = pytest.StashKey[Turns]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a quiet machine comes last, and says why it does; what uses a server is marked as such."""
    for item in items:
        if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            beside_a_process(item)
        marker = item.get_closest_marker("load_sensitive")
        if marker is not None and not marker.kwargs.get("reason"):
            raise pytest.UsageError(f"{item.nodeid}: load_sensitive needs a reason")
    items.sort(key=_is_load_sensitive)


def _is_load_sensitive(item: pytest.Item) -> bool:
    return item.get_closest_marker("load_sensitive") is not None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist where the turns are taken, and what all share."""
    node.workerinput["turns"] = str(HOME)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test when it is its turn; its time limit begins then."""
    turns = item.config.stash.get(_TURNS, None)
    if turns is None:
        return (yield)
    with turns.take(alone=_is_load_sensitive(item)):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Keep the limit: pytest-timeout arms it once, and drops it when a phase fails."""
    item.stash.setdefault(_LIMIT, settings)


def _arm(item: pytest.Item) -> None:
    """Start the time limit of a phase of ``item``: set-up, call and tear-down have the whole of it each.

    A signal ends what waits in Python. Where that has no effect (its exception was swallowed, or C code does not
    return), the process prints its stacks and exits; xdist then starts another.
    """
    settings = item.stash.get(_LIMIT, None)
    if settings is not None:
        settings = settings._replace(timeout=settings.timeout * SLOWNESS)
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
        faulthandler.dump_traceback_later(settings.timeout + _GRACE_S, exit=True, file=item.config.stash[_TERMINAL])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the limit of the set-up."""
    _arm(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Start the limit of the call."""
    _arm(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Start the limit of the tear-down; with its end nothing is left to wait for."""
    _arm(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name every test that was skipped, under its reason."""
    reasons: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.setdefault(why.removeprefix("Skipped: "), []).append(report.nodeid)
    if reasons:
        count = sum(map(len, reasons.values()))
        terminalreporter.section(f"{count} tests DID NOT RUN", red=True, bold=True)
    for why, names in sorted(reasons.items()):
        terminalreporter.write_line(f"{len(names)}: {why}", red=True, bold=True)
        for name in names:
            terminalreporter.write_line(f"    {name}")


def pytest_unconfigure() -> None:
    """The directories of the personal mesh that nobody started."""
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """A run that is told to end (a time limit, a cancelled job) takes its meshes down like one that is interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt("SIGTERM")

    config.stash[_TERMINAL] = os.dup(2)
    # pytest-xdist would begin with the files that have the most tests, and end with the few that take longest
    config.option.loadscopereorder = False
    config.addinivalue_line("markers", "load_sensitive(reason): needs a quiet machine; runs alone, after the others")
    if hasattr(config, "workerinput"):
        config.stash[_TURNS] = Turns(Path(config.workerinput["turns"]))
        share(Path(config.workerinput["turns"]))
    os.environ.update(dict.fromkeys(("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"), str(HOME)))
    # how the tests are run (in several processes, without buffers) is nothing to what they run
    for name in ("COLUMNS", "LINES", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, interrupt)
    # under nohup, or in the background of a script, these are ignored, and so they would be in all that tests start
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
