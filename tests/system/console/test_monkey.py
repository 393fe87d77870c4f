"""A monkey at the console (tests/monkey): keys, mouse, sizes and events at random; make storm has longer ones.

``make test`` plays the same acts of the same seeds each time, however long the machine takes. ``make storm`` plays new
seeds for six minutes each, and prints them.
"""

import random
from pathlib import Path

import pytest

from tests.support.campaigns import played
from tests.support.chance import LONG
from tests.support.waiting import PATIENCE_S

#: Acts of a seed in make test, about 20 s; and minutes that they never take.
ACTS, MOST = 140, 20
MINUTES = 6
#: Seeds that found faults; their acts change with acts.py. 1: a byte that is no character, a sequence that is none.
#: 106: frames moved by emoji. 110: a key for a screen without its widgets.
SEEDS = [random.SystemRandom().randrange(1, 1 << 30) for _ in range(3)] if LONG else [1, 106, 110]


@pytest.mark.storm
@pytest.mark.timeout((MOST + 5) * 60)
@pytest.mark.parametrize("which", range(len(SEEDS)))
def test_a_monkey_at_the_console(which: int, tmp_path: Path) -> None:
    words = ["--minutes", str(MINUTES)] if LONG else ["--minutes", str(MOST), "--acts", str(ACTS)]
    patience_s = (MINUTES if LONG else MOST) * 60 + 3 * PATIENCE_S
    print(played("monkey", SEEDS[which], tmp_path, words, patience_s))
