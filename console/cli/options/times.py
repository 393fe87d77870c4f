"""A time in the future: ``mesh drain --at``. The formats of sbatch's ``--begin`` and ``--deadline``, and ``+T``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from console.errors import UsageError
from console.launch.options.limits import duration

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_FROM_NOW = re.compile(r"now\+([0-9]{1,9})(second|minute|hour|day|week|)s?", re.ASCII)
_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)


def seconds_until(text: str, now: datetime) -> float:
    """The seconds from ``now``, a local time, until the time that ``text`` names. Raises UsageError.

    ``+1:30:00`` and ``+90m`` (as -time takes them), ``now+2hours``, ``22:00`` (the next time it is 22:00),
    ``2026-12-24T18:00``.
    """
    try:
        seconds = _seconds_until(text, now)
    except (ValueError, OverflowError):
        hint = "--at +1:30:00, --at 22:00, or --at 2030-12-24T18:00"
        raise UsageError(f"{text!r} is not a time: it takes +H:M:S, now+2hours, HH:MM or a date", hint) from None
    if seconds < 0:
        raise UsageError(f"{text} is in the past", "without --at, nodes are drained now")
    return seconds


def _seconds_until(text: str, now: datetime) -> float:
    if text.startswith("+"):
        try:
            return duration(text[1:]) or 0.0
        except UsageError:
            raise ValueError(text) from None
    if found := _FROM_NOW.fullmatch(text):
        return float(int(found[1]) * _UNITS[found[2] or "second"])
    if found := _OF_DAY.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in found.groups())
        at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        today_s = _between(now, at)
        return today_s if today_s > 0 else _between(now, at + timedelta(days=1))
    return _between(now, datetime.fromisoformat(text))


def _between(now: datetime, at: datetime) -> float:
    """The seconds by the calendar of the time zone: a change of the clocks counts.

    In autumn an hour comes twice: then the next time that it is ``at``.
    """
    first_s, second_s = (at.replace(fold=fold).timestamp() - now.timestamp() for fold in (0, 1))
    return second_s if first_s <= 0 < second_s else first_s
