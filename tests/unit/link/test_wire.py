"""Frames, strict JSON, message shapes; and every example of docs/protocol.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.launch.load import read_program
from agents.wire import messages
from agents.wire.control import control, decode, encode, to_bytes, to_text
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import COMMON, CONTROL, KINDS, LIMITS, STDOUT, Decoder, frame, output, split_output
from agents.wire.renames import OLD_NAMES

PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```$", PROTOCOL.read_text(), re.M | re.S)
TABLES = {
    "pmix": messages.PMIX, "pmix_says": messages.PMIX_SAYS,
    "cpa": messages.CPA, "rca": messages.RCA, "pct": messages.PCT, "object": messages.OBJECT, "keeper": messages.KEEPER,
    "down": messages.DOWN, "up": messages.UP, "yod": messages.YOD, "requester": messages.REQUESTER,
}  # fmt: skip


@pytest.mark.parametrize(("table", "text"), EXAMPLES, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_every_example_of_the_protocol(table: str, text: str) -> None:
    payload = text.encode()
    message = decode(payload)
    assert decode(encode(message)) == message
    if table in TABLES:
        assert messages.check(TABLES[table], message) in TABLES[table]
    elif table == "hello":
        assert messages.check_hello(message) in messages.ROLES
    elif table == "reply":
        assert isinstance(message["re"], int)
        if "error" in message:
            assert AgentError.from_message(message["error"]).as_message() == message["error"]
    elif table == "common":
        assert read_program(payload).segments
    else:
        assert table == "event" and isinstance(message["event"], str) and isinstance(message["at"], float)


def test_every_operation_has_an_example() -> None:
    shown = {(table, json.loads(text).get("op")) for table, text in EXAMPLES}
    told = PROTOCOL.read_text()
    for table, shapes in TABLES.items():
        for op in shapes:
            assert (table, op) in shown or f"`{op}`" in told or f"**{op}**" in told, f"{table}: {op} is not documented"


def test_every_example_names_a_table() -> None:
    assert len(EXAMPLES) >= 40
    assert {table for table, _ in EXAMPLES} == {*TABLES, "hello", "reply", "common", "event"}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.binary(max_size=300)), max_size=20),
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
)
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in frames)
    decoder, found, at = Decoder(), [], 0
    for cut in cuts:
        found += decoder.feed(stream[at : at + cut])
        at += cut
    found += decoder.feed(stream[at:])
    assert found == frames
    assert decoder.pending == 0


def test_output_carries_its_rank() -> None:
    [(kind, payload)] = Decoder().feed(output(STDOUT, 70000, b"\0bytes\xff"))
    assert kind == STDOUT
    assert split_output(payload) == (70000, b"\0bytes\xff")
    with pytest.raises(WireError):
        split_output(b"abc")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_too_large_is_refused_at_the_header(kind: int) -> None:
    header = bytes([kind]) + (LIMITS[kind] + 1).to_bytes(4, "big")
    with pytest.raises(WireError):
        Decoder().feed(header)
    with pytest.raises(WireError):
        frame(kind, bytes(LIMITS[kind] + 1))


def test_other_refusals_of_the_frame_layer() -> None:
    with pytest.raises(WireError, match="byte 71"):
        Decoder().feed(b"GET / HTTP/1.0")
    with pytest.raises(WireError):
        Decoder(limit=100).feed(b"\0" + (101).to_bytes(4, "big"))
    assert Decoder(limit=100).feed(frame(COMMON, bytes(100))) == [(COMMON, bytes(100))]


HOSTILE = [
    b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":1,"a":2}', b'{"a":"\\ud800"}',
    b"[1]", b"1", b"", b"{", b"\xff", b'{"a":' * 40 + b"1" + b"}" * 40, b"[" * 100000, b'{"a":' + b"9" * 5000 + b"}",
    b'{"\\udc00":1}', b'{"a":"\xed\xa0\x80"}',
]  # fmt: skip


@pytest.mark.parametrize("payload", HOSTILE, ids=lambda payload: repr(payload[:20]))
def test_hostile_json_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode(payload)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_messages_come_back_as_they_went(message: dict[str, Any]) -> None:
    [(kind, payload)] = Decoder().feed(control(message))
    assert kind == CONTROL
    assert decode(payload) == message


@given(st.binary())
def test_bytes_of_the_system_survive(data: bytes) -> None:
    assert to_bytes(decode(encode({"a": to_text(data)}))["a"]) == data


def test_what_json_cannot_hold_is_not_sent() -> None:
    for value in (float("nan"), "\ud800"):
        with pytest.raises(WireError):
            encode({"a": value})
    with pytest.raises(WireError):
        to_bytes("\u0100")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"op": "nonsense"}, "unknown_op"), ({}, "unknown_op"), ({"op": 3}, "unknown_op"),
        ({"op": ["kill"]}, "unknown_op"),
        ({"op": "signal"}, "invalid"), ({"op": "signal", "signal": "9"}, "invalid"),
        ({"op": "signal", "signal": True}, "invalid"), ({"op": "signal", "signal": 9, "ranks": 1}, "invalid"),
    ],
)  # fmt: skip
def test_shapes_are_checked(message: dict[str, Any], code: str) -> None:
    with pytest.raises(AgentError) as error:
        messages.check(messages.DOWN, message)
    assert error.value.code == code


def test_unknown_keys_are_ignored() -> None:
    assert messages.check(messages.DOWN, {"op": "done", "new": 1}) == "done"


@pytest.mark.parametrize(
    "hello",
    [
        {"op": "load"}, {"op": "hello"}, {"op": "hello", "protocol": "1", "role": "cpa"},
        {"op": "hello", "protocol": 99, "role": "cpa"}, {"op": "hello", "protocol": 0, "role": "cpa"},
        {"op": "hello", "protocol": 1, "role": "nobody"}, {"op": "hello", "protocol": 1},
    ],
)  # fmt: skip
def test_bad_hellos_end_the_connection(hello: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        messages.check_hello(hello)


def test_neighbouring_protocol_numbers_work_together() -> None:
    assert messages.check_hello(dict(messages.hello("cpa"), protocol=messages.PROTOCOL + 1)) == "cpa"


@pytest.mark.parametrize("new", [op for op in OLD_NAMES if op])
def test_a_message_of_protocol_1_is_understood(new: str) -> None:
    old, keys = OLD_NAMES[new]
    (table,) = [one for one in (messages.CPA, messages.PCT, messages.DOWN, messages.UP) if new in one]
    example: dict[str, object] = {"op": new}
    for key, types in {**table[new].required, **{key: table[new].optional[key] for key in keys}}.items():
        example[key] = types[0]()
    ((_, sent),) = Decoder().feed(control(example))
    received = decode(sent)
    assert received["op"] == old and set(keys.values()) <= set(received) and not set(keys) & set(received)
    assert messages.check(table, received) == new and received == example
