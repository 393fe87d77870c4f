"""Times in the future: ``mesh drain --at``."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from console.cli.options.times import seconds_until
from console.errors import UsageError

NOW = datetime(2026, 3, 4, 21, 30)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+1:30:00", 5400), ("+90m", 5400), ("+10", 600), ("+0", 0), ("now+30", 30), ("now+2hours", 7200),
        ("now+1day", 86400), ("22:00", 1800), ("21:30", 86400), ("6:00", 8.5 * 3600), ("21:30:05", 5),
        ("2026-03-04T22:30", 3600), ("2026-03-04 21:31:30", 90), ("2026-03-05", 9000),
    ],
)  # fmt: skip
def test_times_are_read_in_every_form(text: str, seconds: float) -> None:
    assert seconds_until(text, NOW) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "+", "+x", "25:00", "10:60", "now", "now+1year", "1:2:3:4", "٣:00", "9999999"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        seconds_until(text, NOW)


def test_what_is_past() -> None:
    with pytest.raises(UsageError, match="2026-03-04T21:00 is in the past"):
        seconds_until("2026-03-04T21:00", NOW)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clocks go from 2:00 to 3:00 on 2026-03-29, and from 3:00 back to 2:00 on 2026-10-25."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "text", "hours"),
    [
        (datetime(2026, 3, 28, 22), "6:00", 7), (datetime(2026, 3, 28, 22), "2026-03-29T06:00", 7),
        (datetime(2026, 3, 28, 22), "2:30", 4.5), (datetime(2026, 10, 24, 22), "6:00", 9),
        (datetime(2026, 10, 25, 1), "now+1day", 24), (datetime(2026, 10, 25, 1), "2:30", 1.5),
        (datetime(2026, 10, 25, 2, 45), "2:15", 0.5), (datetime(2026, 10, 25, 2, 45), "2026-10-25T02:15", 0.5),
        (datetime(2026, 10, 25, 2, 15, fold=1), "2:45", 0.5),
        (datetime(2026, 10, 25, 2, 15, fold=1), "2026-10-25T02:45", 0.5),
        (datetime(2026, 10, 25, 2, 45, fold=1), "2:15", 23.5), (datetime(2026, 10, 25, 2, 45, fold=1), "3:30", 0.75),
    ],
)  # fmt: skip
def test_the_clocks_change_meanwhile(now: datetime, text: str, hours: float) -> None:
    assert seconds_until(text, now) == hours * 3600
