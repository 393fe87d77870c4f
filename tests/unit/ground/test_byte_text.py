"""Bytes as text: reversible, whatever the bytes are, and taken by JSON, SQLite and UTF-8."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redmesh.byte_text import (
    each_from_system,
    each_to_system,
    from_bytes,
    from_system,
    to_bytes,
    to_system,
    without_surrogates,
)
from redmesh.sanitise import clean
from redmesh.start_command import ROOT

#: Arbitrary bytes, and those that are close to the escape: UTF-8 of U+EF80 to U+EFFF, of surrogates, and parts of it.
PIECES = st.sampled_from([b"\xee\xbf\xa9", b"\xee\xbe\x80", b"\xee\xbf", b"\xed\xb3\xa9", b"\xe9", "é…".encode(), b"a"])
BYTES = st.one_of(st.binary(max_size=40), st.lists(PIECES, max_size=8).map(b"".join))


@given(BYTES)
@example(b"\xee\xbf\xa9\xe9\xed\xb3\xa9\xff")
def test_bytes_come_back_from_the_text(data: bytes) -> None:
    assert to_bytes(from_bytes(data)) == data


@given(BYTES)
def test_json_and_a_database_take_the_text(data: bytes) -> None:
    text = from_bytes(data)
    assert text.encode("utf-8").decode("utf-8") == text
    assert json.loads(json.dumps(text, ensure_ascii=False).encode()) == text
    [row] = sqlite3.connect(":memory:").execute("SELECT ?", (text,))
    assert row == (text,)


@given(BYTES, BYTES)
def test_texts_put_together_are_their_bytes_put_together(one: bytes, other: bytes) -> None:
    assert to_bytes(from_bytes(one) + from_bytes(other)) == one + other


@given(BYTES)
def test_a_string_of_the_system_comes_back(data: bytes) -> None:
    text = os.fsdecode(data)
    assert to_system(from_system(text)) == text
    assert each_to_system(each_from_system({text: [text, 1, None]})) == {text: [text, 1, None]}


@given(st.text(max_size=40).filter(lambda text: not any("\uef80" <= one <= "\uefff" for one in text)))
def test_utf8_is_itself(text: str) -> None:
    if not any("\ud800" <= one <= "\udfff" for one in text):
        assert from_bytes(text.encode()) == text


def test_a_byte_has_the_last_digits_of_its_character_and_no_picture() -> None:
    assert from_bytes(b"caf\xe9") == "caf\uefe9"
    assert from_bytes("\uefe9".encode()) == "\uefee\uefbf\uefa9"
    assert clean("caf\uefe9") == clean("caf\udce9") == "caf\ufffd"


def test_rows_of_earlier_versions_have_lone_surrogates_for_bytes() -> None:
    assert to_bytes(json.loads('"caf\\udce9"')) == b"caf\xe9"
    with pytest.raises(UnicodeEncodeError):
        to_bytes("\ud800")
    assert from_system("\ud800").encode()


def test_a_message_of_a_peer_or_of_this_process_is_byte_text() -> None:
    assert without_surrogates("caf\udce9") == without_surrogates("caf\uefe9") == "caf\uefe9"
    assert without_surrogates("\ud800 é") == "? é"


def test_text_of_a_utf8_file_keeps_its_bytes_under_another_encoding() -> None:
    asked = "import sys; from redmesh.byte_text import from_system\n"
    asked += "print(ascii(from_system('a\\udce9\\u20ac')), sys.flags.utf8_mode)"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [ascii("a\uefe9€"), "0"]
