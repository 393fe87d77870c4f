"""Times in the future: ``mesh drain --at``."""

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
