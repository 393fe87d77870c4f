"""docs/protocol.md: every example in it is a message of this build, and every operation has one."""

import json
import re
from pathlib import Path

import pytest

from agents.wire import messages
from agents.wire.control import control, decode
from agents.wire.frames import CONTROL, Decoder
from agents.wire.messages import check, check_hello
from agents.wire.renames import new_names

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)

TABLES = {
    "cpa": messages.CPA,
    "rca": messages.RCA,
    "pct": messages.PCT,
    "requester": messages.REQUESTER,
    "object": messages.OBJECT,
    "keeper": messages.KEEPER,
    "down": messages.DOWN,
    "up": messages.UP,
    "pmix": messages.PMIX,
    "pmix_says": messages.PMIX_SAYS,
    "yod": messages.YOD,
}
FREE = {"reply", "event", "common"}  # checked by whoever asked for them
REQUESTS = ("cpa", "rca", "pct", "requester", "object", "keeper")


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=[f"{i}-{kind}" for i, (kind, _) in enumerate(EXAMPLES)])
def test_an_example_is_what_the_wire_takes(kind: str, text: str) -> None:
    message = decode(text.strip().encode())
    ((got, payload),) = Decoder().feed(control(message))
    assert got == CONTROL and new_names(json.loads(payload)) == message
    if kind == "hello":
        check_hello(message)
    elif kind in TABLES:
        check(TABLES[kind], message)
        known = TABLES[kind][message["op"]]
        assert set(message) <= {"op", "id", *known.required, *known.optional}, "an example shows what is there"
    else:
        assert kind in FREE
        assert kind != "reply" or type(message["re"]) is int


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_operation_has_an_example(kind: str) -> None:
    shown = {decode(text.strip().encode())["op"] for name, text in EXAMPLES if name == kind}
    assert shown == set(TABLES[kind])
