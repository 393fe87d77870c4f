"""The limits of the tests themselves: what hangs is ended in every phase; what is skipped is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of ``folder`` with the plugins that count here; to load all takes twice the time."""
    plugins = (word for name in ("xdist.plugin", "pytest_timeout", "tests.conftest") for word in ("-p", name))
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *plugins, *words, str(folder)],
        cwd=ROOT, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True,
        timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip


HANGS = """
import os, pytest

def hang():
    reader, writer = os.pipe()
    os.read(reader, 1)

@pytest.fixture
def hanging():
    yield
    hang()

def test_call():
    hang()

def test_teardown_after_a_failure(hanging):
    assert False

@pytest.mark.skipif(True, reason="the program x is not installed")
def test_skipped():
    pass
"""


@pytest.mark.timeout(300)
def test_a_test_that_hangs_is_ended_in_every_phase(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    done = run(tmp_path, "-n", "1", "--timeout", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert "2 failed, 1 skipped, 1 error in" in told[-1], done.stdout
    at = told.index("1: the program x is not installed")
    assert "1 tests DID NOT RUN" in told[at - 1] and told[at + 1].endswith("test_hangs.py::test_skipped")


TURNS = """
import os, pathlib, time, pytest

HERE = pathlib.Path(__file__).parent

@pytest.mark.load_sensitive(reason="counts who runs beside it")
@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    begun = [path.name for path in HERE.glob("runs-*")]
    (HERE / f"runs-alone{number}").touch()
    time.sleep(0.2)
    others = [path.name for path in HERE.glob("runs-*") if path.name != f"runs-alone{number}"]
    (HERE / f"runs-alone{number}").unlink()
    assert begun == others == []

@pytest.mark.parametrize("number", range(8))
def test_beside_others(number):
    (HERE / f"runs-{number}").touch()
    while not (HERE / "met").exists():  # the first of each process wait for each other
        time.sleep(0.01)
        if len(list(HERE.glob("runs-*"))) == 2:
            (HERE / "met").touch()
    (HERE / f"runs-{number}").unlink()
"""


#: The configured limit is longer than the patience of a wait, and grows as it does: a wait that fails says what did
#: not come, which the limit would not.
LIMIT = """
import signal
from tests.support.waiting import PATIENCE_S, SLOWNESS

def test_the_limit_of_a_test_is_longer_than_its_patience_and_grows_as_it_does():
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert left_s > 2 * PATIENCE_S and 179 * SLOWNESS - 10 < left_s <= 180 * SLOWNESS
"""


def test_a_test_that_needs_a_quiet_machine_runs_alone_and_has_its_limit(tmp_path: Path) -> None:
    (tmp_path / "test_turns.py").write_text(TURNS)
    (tmp_path / "test_limit.py").write_text(LIMIT)
    done = run(tmp_path, "-n", "2", "--dist", "worksteal", "-c", "pyproject.toml", "--rootdir", str(ROOT))
    assert "12 passed" in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert (tmp_path / "met").exists(), "the others ran side by side"
