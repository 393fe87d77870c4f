"""Jobs to replay: from a file in the Standard Workload Format, or made up. Pure.

The format: Feitelson's Parallel Workloads Archive, version 2.2: 18 whitespace-separated numbers a line, ``;`` comments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agents.wire.errors import AgentError

FIELDS = 18
DAY_S = 86400.0


class BadTrace(AgentError):
    """A line that is no job; the message names it."""

    code = "invalid"
    exit_status = 2


class Job(NamedTuple):
    """A job: when it is submitted and how long it runs (seconds of its own time), and how many processors it wants."""

    number: int
    submit_s: float
    run_s: float
    size: int


def read_swf(lines: Iterable[str]) -> Iterator[Job]:
    """The jobs of a trace in the order of their lines; those that never ran are left out. BadTrace."""
    for at, line in enumerate(lines, 1):
        text = line.partition(";")[0].strip()
        if not text:
            continue
        words = text.split()
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            raise BadTrace(f"line {at}: {text[:40]!r} is no job of the Standard Workload Format") from None
        if len(numbers) != FIELDS or not all(map(math.isfinite, numbers)):
            raise BadTrace(f"line {at} has {len(words)} fields, and a job has {FIELDS}")
        number, submit, _wait, run, allocated, _cpu, _memory, requested = numbers[:8]
        size = int(requested if requested > 0 else allocated)
        if size > 0 and run >= 0 and submit >= 0:
            yield Job(int(number), submit, run, size)


def generated(processors: int, jobs: int, *, load: float = 0.8, seed: int = 1) -> list[Job]:
    """Jobs that keep ``load`` of the machine busy: mostly powers of two, evenly over the magnitudes to a tenth of it.

    Run times are log-normal (median 20 minutes, cut at two days); more is submitted at noon than at midnight.
    Sizes and daily cycle after Lublin and Feitelson (JPDC 63, 2003), simplified.
    """
    chance = random.Random(seed)
    shapes = [(_size(chance, processors), _run_s(chance)) for _ in range(jobs)]
    work = sum(size * run for size, run in shapes)
    span_s = work / (processors * load)
    found = []
    clock = 0.0
    for number, (size, run) in enumerate(shapes, 1):
        noon = 1.0 + 0.6 * math.sin(2 * math.pi * (clock / DAY_S - 0.25))
        clock += chance.expovariate(jobs / span_s) / noon
        found.append(Job(number, clock, run, size))
    return found


def _size(chance: random.Random, processors: int) -> int:
    most = max(1, processors // 10)
    exponent = chance.uniform(0.0, math.log2(most))
    size = 2 ** round(exponent) if chance.random() < 0.75 else round(2**exponent)
    return max(1, min(most, size))


def _run_s(chance: random.Random) -> float:
    return min(2 * DAY_S, max(1.0, chance.lognormvariate(math.log(1200.0), 1.6)))
