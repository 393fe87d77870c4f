"""A short storm at each setting (tests/storm), of a seed that found a fault once; make storm has longer ones."""

from pathlib import Path

import pytest

from tests.support.campaigns import played
from tests.support.chance import long
from tests.support.waiting import PATIENCE_S

#: With the start of the mesh and the checkpoint a storm of so long takes 10 s, nearly all of it by the clock.
MINUTES = str(long(0.03, 0.25))
SEEDS = {"sqlite": 353208976, "mariadb": 444695589, "ssh": 982271522}


@pytest.mark.storm
@pytest.mark.parametrize("setting", SEEDS)
def test_a_short_storm(setting: str, tmp_path: Path) -> None:
    words = ["--setting", setting, "--minutes", MINUTES, "--every", "0.5"]
    print(played("storm", SEEDS[setting], tmp_path, words, 2 * PATIENCE_S))
