"""Bytes that a terminal should not send: they end nothing, and what follows them is read."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver

from console.tui.terminal import typed

typed.mend()

#: A key's release as the kitty protocol reports it; numbers that are too large, or none.
SEQUENCES = ["\x1b[1;1:3A", "\x1b[97;1:1u", "\x1b[97;5;1114112u", "\x1b[99999999999u"]


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_that_nobody_knows_is_ignored(sequence: str) -> None:
    parser = XTermParser()
    read = [*parser.feed(sequence), *parser.feed("j")]
    assert [event.key for event in read if isinstance(event, events.Key)][-1] == "j"


def test_a_byte_that_is_no_character_is_shown_as_one() -> None:
    make: Any = vars(linux_driver)["getincrementaldecoder"]
    decode = make("utf-8")().decode
    assert decode(b"\xffa\x80") == "\ufffda\ufffd"
    assert decode("é".encode()[:1]) == "" and decode("é".encode()[1:], final=True) == "é"


@pytest.mark.parametrize(("key", "name"), [("?", "question_mark"), ("m", "m"), ("é", "é")])
def test_a_key_right_behind_escape_does_not_swallow_it(key: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The palette stayed open, with the key as a letter in its line."""
    assert keys_of(f"\x1b{key}") == [("escape", "\x1b"), (name, key)]
    monkeypatch.setattr(typed, "MEANT", {"alt+m"})
    assert keys_of("\x1bm") == [("alt+m", "m")], "the user's keys name it"
    assert keys_of("\x1b[A") == [("up", None)]


def keys_of(sequence: str) -> list[tuple[str, str | None]]:
    parser = XTermParser()
    read = [*parser.feed(sequence), *parser.feed("")]
    return [(event.key, event.character) for event in read if isinstance(event, events.Key)]
