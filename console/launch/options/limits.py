"""The time limit of a launch, and the signal before it: ``-time`` and ``-signal``."""

from __future__ import annotations

from console.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OF_LIMITS = frozenset("0123456789.:-smhd")  # float() would accept more


def warning(text: str, limit_s: float | None) -> tuple[int, float]:
    """The signal of ``SIG@T``, and how many seconds before the limit it is sent. Raises UsageError."""
    from console.launch.options.signal_names import signal_number

    name, _, before = text.partition("@")
    try:
        before_s = float(before)
    except ValueError:
        before_s = -1.0
    if not 0 <= before_s < 1e9:
        raise UsageError(f"-signal SIG@T takes seconds before the limit, not {before!r}", "--time 10 --signal USR1@60")
    if limit_s is None:
        raise UsageError(
            "-signal SIG@T is sent T seconds before the limit: give one with -time", "-time 10:00 -signal USR1@60"
        )
    return signal_number(name), before_s


def duration(text: str) -> float | None:
    """Parse a time limit to seconds; None for 0, which means no limit. Raises UsageError.

    The formats of srun: ``10`` and ``1.5`` (minutes), ``10:30`` (minutes and seconds), ``1:10:30``, ``2-12:00:00``;
    and also ``90s``, ``5m``, ``2h``, ``1d``.
    """
    try:
        seconds = _seconds(text) if set(text) <= _OF_LIMITS else -1.0
    except ValueError:
        seconds = -1.0
    if seconds >= 1e9:
        raise UsageError(f"-time {text}: the number is too large", "a billion seconds are 31 years; 0 is no limit")
    if not seconds >= 0:
        raise UsageError(
            f"-time takes minutes, M:S, H:M:S, D-H:M:S or a number with s, m, h or d, not {text!r}", "-time 90s"
        )
    return seconds or None


def _seconds(text: str) -> float:
    if text[-1:] in _UNITS:
        return float(text[:-1]) * _UNITS[text[-1]]
    days, dash, rest = text.partition("-")
    if dash:
        hours, minutes, seconds = (*map(_whole, rest.split(":")), 0, 0)[:3]
        return ((_whole(days) * 24 + hours) * 60 + minutes) * 60.0 + seconds
    parts = text.split(":")
    if len(parts) == 1:
        return float(text) * 60
    if len(parts) > 3:
        raise ValueError(text)
    hours, minutes, seconds = (0, *map(_whole, parts))[-3:]
    return (hours * 60 + minutes) * 60.0 + seconds


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise ValueError(text)
    return int(text)
