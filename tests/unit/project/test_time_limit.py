"""The limits of the tests themselves: what hangs is ended in every phase; what is skipped is named."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
    options = ["-p", "tests.conftest", "-n", "2", "--timeout", "2"]
    words = [sys.executable, "-P", "-m", "pytest", *options, str(tmp_path / "test_hangs.py")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert "2 failed, 1 skipped, 1 error in" in told[-1], done.stdout
    at = told.index("1: the program x is not installed")
    assert "1 tests DID NOT RUN" in told[at - 1] and told[at + 1].endswith("test_hangs.py::test_skipped")
