"""How long, and from which seed, the tests run that choose at random.

``make test`` makes the same choices every time, and few: what it shows does not depend on luck. ``make storm`` makes
others, and many; every test prints its seed, and a seed that failed becomes a test of ``make test``.
"""

import os
import random
from typing import TypeVar

T = TypeVar("T")

#: Set by ``make storm``.
LONG = os.environ.get("REDMESH_LONG", "") == "1"
#: The seed of ``make test``.
_ALWAYS = 1


def long(usual: T, in_a_storm: T) -> T:
    """Return a length (seconds, rounds, rows of a table): ``usual`` in ``make test``."""
    return in_a_storm if LONG else usual


def examples(usual: int) -> int:
    """Return how many examples hypothesis makes: ``usual`` in ``make test``, forty times as many in a storm."""
    return long(usual, 40 * usual)


def seed(variable: str) -> int:
    """Return the seed of a test: that of the environment's ``variable``, else a new one in a storm."""
    given = int(os.environ.get(variable, "0"))
    return given or long(_ALWAYS, random.SystemRandom().randrange(1, 1 << 30))
