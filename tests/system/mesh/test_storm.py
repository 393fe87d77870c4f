"""A short storm at each setting (tests/storm), of a seed that found a fault once; make storm has longer ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chance import long
from tests.support.waiting import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[3]
#: With the start of the mesh and the checkpoint a storm of so long takes 15 s, nearly all of it by the clock.
MINUTES = str(long(0.12, 0.25))
LONG_S = 2 * PATIENCE_S


SEEDS = {"sqlite": 353208976, "mariadb": 444695589, "ssh": 982271522}


@pytest.mark.storm
@pytest.mark.parametrize("setting", SEEDS)
def test_a_short_storm(setting: str, tmp_path: Path) -> None:
    chosen = ["--setting", setting, "--seed", str(SEEDS[setting])]
    command = [sys.executable, "-m", "tests.storm", "--minutes", MINUTES, "--every", "0.5", *chosen]
    storm = subprocess.Popen(
        [*command, "--report", str(tmp_path)], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = storm.communicate(timeout=LONG_S)
    except subprocess.TimeoutExpired:
        storm.terminate()  # so that it takes its mesh down
        said, _ = storm.communicate(timeout=PATIENCE_S)
        pytest.fail(f"the storm does not end within {LONG_S:.0f} s:\n{said}")
    finally:
        storm.kill()
    if "is left out: " in said:
        pytest.skip(said.partition("is left out: ")[2].splitlines()[0])
    assert storm.returncode == 0, said
    assert "0 violations" in said.splitlines()[-1], said
