"""What a command line says of limits, files and steps; spools that drop their oldest."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.wire.control import decode
from agents.wire.frames import CONTROL, STDOUT, Decoder, split_output
from console.errors import UsageError
from console.launch.events.spool import SpoolFront
from console.launch.options.limits import duration
from console.launch.options.output import TOPICS, read, size
from tests.support.chance import examples


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600), ("1.5", 90), ("0", None), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400), ("10:30", 630),
        ("1:10:30", 4230), ("2-12", 216000), ("2-12:30", 217800), ("2-12:30:05", 217805), ("0.5s", 0.5), ("0:00", None),
    ],
)  # fmt: skip
def test_time_limits_are_read_in_every_form(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1:2:3:4", "nan", "inf", "1e99", "1:x", "-1:00", "2-", "٣", "s", "1 m", "1_0"]
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError):
        duration(text)


@given(st.integers(0, 20), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_days_hours_minutes_seconds(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert duration(f"{days}-{hours}:{minutes:02}:{seconds:02}") == (total or None)
    assert duration(f"{days * 24 + hours}:{minutes:02}:{seconds:02}") == (total or None)
    assert duration(f"{total}s") == (total or None)


def test_sizes_have_units() -> None:
    assert [size(text) for text in ("1m", "1MiB", "2g", "2GB", "1048576", "4096K")] == [
        1 << 20, 1 << 20, 2 << 30, 2 << 30, 1 << 20, 4 << 20,
    ]  # fmt: skip
    for text in ("", "m", "1k", "1x", "-1m", "1.5m", "9" * 20):
        with pytest.raises(UsageError):
            size(text)


def test_debug_topics_are_known_words() -> None:
    assert read({"d": ["io,comm", "load"]}).topics == {"io", "comm", "load"}
    assert read({"d": [",".join(TOPICS)], "D": True}).topics == {*TOPICS, "all"}
    for text in ("", "io,", "IO,io", "all", "io,nosuch"):
        assert read({"d": [text]}).topics == {"io"} & set(text.split(",")), "the original ignores what it does not know"


def test_the_warning_needs_a_limit_and_a_signal() -> None:
    assert read({"time": "10", "signal": "USR1@60"}).warn == (10, 60.0)
    assert read({"time": "10", "signal": "sigusr1@60"}).warn == (10, 60.0)
    assert read({"time": "10", "signal": "2@0.5"}).warn == (2, 0.5)
    for given_ in ({"signal": "USR1@60"}, {"time": "0", "signal": "USR1@60"}, {"time": "1", "signal": "NO@6"}):
        with pytest.raises(UsageError):
            read(given_)
    for text in ("USR1@", "USR1@x", "USR1@-1", "@5", "99@5"):
        with pytest.raises(UsageError):
            read({"time": "1", "signal": text})


def test_waiting_for_ever_is_no_limit() -> None:
    assert read({"wait": 0.0}).wait_s is None
    assert read({"wait": 2.0}).wait_s == 2.0


ALLOCATED = {"event": "allocated", "at": 1.0, "launcher": 7, "size": 2}


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=120))
def test_a_dropping_spool_keeps_all_events_and_the_newest_output(pieces: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        limit, passed = 300_000, [0]

        def give(amount: int) -> None:
            passed[0] += amount

        spool = SpoolFront(folder, {"command": "x"}, give, lambda *_: None, limit, drops=True)
        spool.event(ALLOCATED)
        whole = b""
        for number, length in enumerate(pieces):
            data = bytes([number % 251]) * length
            whole += data
            spool.output(STDOUT, 0, memoryview(data))
            spool.event({"event": "note", "at": 1.0, "node": "", "text": str(number)})
        assert passed[0] == len(whole), "the job is never held up"
        kept, events, skipped = b"", [], 0
        content = Path(spool.spool_path).read_bytes()
        assert len(content) <= limit
        for kind, payload in Decoder().feed(content):
            if kind == CONTROL:
                event: dict[str, Any] = decode(payload)
                events.append(event.get("text", event["event"]))
                skipped = event["bytes"] if event["event"] == "skipped" else skipped
            else:
                kept += bytes(split_output(payload)[1])
        assert kept == whole[len(whole) - len(kept) :] and skipped + len(kept) == len(whole)
        told = [event for event in events if event != "skipped"]
        assert told == ["hello", "allocated", *(str(number) for number in range(len(pieces)))]
