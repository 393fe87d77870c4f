"""Jobs to replay: from a file in the Standard Workload Format, or generated. No I/O.

The format: Feitelson's Parallel Workloads Archive, version 2.2: 18 whitespace-separated numbers a line, ``;`` comments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agents.wire.errors import AgentError

LARGEST = 1e12  # in seconds: 30,000 years
FIELDS = 18
DAY_S = 86400.0


class BadTrace(AgentError):
    """A malformed line, which the message names."""

    code = "invalid"
    exit_status = 2


class Job(NamedTuple):
    """A job: its submission and run time in seconds of its own time, and its number of processors."""

    number: int
    submit_s: float
    run_s: float
    size: int


def read_swf(lines: Iterable[str]) -> Iterator[Job]:
    """The jobs of a trace in the order of lines, without those that never ran. Raises BadTrace."""
    for at, line in enumerate(lines, 1):
        text = line.partition(";")[0].strip()
        if not text:
            continue
        words = text.split()
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            raise BadTrace(f"line {at}: {text[:40]!r} is not a job of the Standard Workload Format") from None
        if len(numbers) != FIELDS:
            raise BadTrace(f"line {at} has {len(words)} of a job's {FIELDS} fields")
        if not all(abs(number) <= LARGEST for number in numbers):  # this also excludes NaN
            raise BadTrace(f"line {at}: {text[:40]!r} has a number that is none of a job's")
        number, submit, _wait, run, allocated, _cpu, _memory, requested = numbers[:8]
        size = int(requested if requested > 0 else allocated)
        if size > 0 and run >= 0 and submit >= 0:
            yield Job(int(number), submit, run, size)


def generated(
    processors: int, jobs: int | None = None, *, days: float | None = None, load: float = 0.8, seed: int = 1
) -> list[Job]:
    """Generate jobs, by number or days, that keep ``load`` of the machine busy.

    Sizes and run times follow the model of Lublin and Feitelson (JPDC 63, 2003), fitted to production machines: a
    quarter of the jobs are serial, most others are powers of two, sizes are spread evenly over the magnitudes in two
    stages up to a tenth of the machine, and larger jobs run longer. Arrivals are a Poisson process with the model's
    daily cycle, scaled to the load.
    """
    chance = random.Random(seed)
    shapes: list[tuple[int, float]] = []
    work, enough = 0.0, processors * load * (days or 0.0) * DAY_S
    while len(shapes) < jobs if jobs is not None else work < enough:
        size = _size(chance, max(1, processors // 10))
        shapes.append((size, _run_s(chance, size)))
        work += size * shapes[-1][1]
    span_s = work / (processors * load)
    found = []
    clock = 0.0
    for number, (size, run) in enumerate(shapes, 1):
        noon = 1.0 + 0.6 * math.sin(2 * math.pi * (clock / DAY_S - 0.25))
        clock += chance.expovariate(len(shapes) / span_s) / noon
        found.append(Job(number, clock, run, size))
    return found


#: Constants of the model, with the names of the paper: the probabilities of a serial job and of a power of two; the
#: range of log2(size), where its second stage begins (below the largest), and the probability of the first stage; the
#: parameters of the hyper-gamma distribution of log(run time), how its mixture depends on the size, and its maximum
#: (45 hours).
SERIAL, POW2 = 0.244, 0.576
ULOW, UMED_BELOW, UPROB = 0.8, 2.5, 0.86
A1, B1, A2, B2, PA, PB, LONGEST = 4.2, 0.94, 312.0, 0.03, -0.0054, 0.78, 12.0


def _size(chance: random.Random, most: int) -> int:
    kind = chance.random()
    high = math.log2(most)
    low, middle = min(ULOW, high), max(min(ULOW, high), high - UMED_BELOW)
    exponent = chance.uniform(low, middle) if chance.random() <= UPROB else chance.uniform(middle, high)
    if kind < SERIAL:
        return 1
    size = 2 ** round(exponent) if kind < SERIAL + POW2 else round(2**exponent)
    return max(1, min(most, size))


def _run_s(chance: random.Random, size: int) -> float:
    short = min(1.0, max(0.0, PA * size + PB))
    shape, scale = (A1, B1) if chance.random() < short else (A2, B2)
    return math.exp(min(LONGEST, chance.gammavariate(shape, scale)))
