"""Whatever a client says, a CPA answers each request with a reply or a refusal, and never by a fault of its own."""

import os
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.link.client import Client
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import CPA
from tests.support.allocations import LOGIN
from tests.support.chance import examples
from tests.support.daemons import Daemons
from tests.support.mariadb import Server

KNOWN = ("unavailable", "invalid", "unknown_op", "denied", "expired", "unclean", "no_key")

numbers = st.sampled_from([0, 1, 2, 3, 7, 8, -1, 255, 256, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63)])
words = st.one_of(
    st.sampled_from(
        ["", "n0", "n1", LOGIN, "root", "batch", "interactive", "0" * 32, "a" * 32, "\0", "é" * 300, "'--"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.text(string.hexdigits[:16], min_size=32, max_size=32),
    st.builds(lambda: os.urandom(16).hex()),
)
listed = st.fixed_dictionaries(
    {"processors": st.lists(st.lists(numbers, max_size=3), max_size=3), "nodes": st.lists(words, max_size=2)}
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
BY_TYPE: dict[type, st.SearchStrategy[Any]] = {
    int: numbers,
    float: st.floats(allow_nan=False, allow_infinity=False, width=16),
    str: words,
    bool: st.booleans(),
    dict: st.one_of(listed, st.dictionaries(words, anything, max_size=3)),
    list: st.lists(st.one_of(numbers, anything), max_size=4),
    type(None): st.none(),
}


@st.composite
def requests(draw: st.DrawFn) -> Message:
    """A request that fits the table, now and then with one value that does not."""
    op = draw(st.sampled_from(sorted(CPA)))
    shape = CPA[op]
    message: Message = {"op": op}
    for key, types in [*shape.required.items(), *shape.optional.items()]:
        if key in shape.required or draw(st.booleans()):
            message[key] = draw(st.one_of([BY_TYPE[each] for each in types]))
    if draw(st.integers(0, 9)) == 0:
        message[draw(st.sampled_from(sorted(message)))] = draw(anything)
    if isinstance(message.get("wait_s"), (int, float)) and message["wait_s"] > 0:
        message["wait_s"] = 0.05  # nobody has the time
    return message


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def one(request: pytest.FixtureRequest) -> Iterator[Daemons]:
    url = ""
    if request.param == "mariadb":
        server: Server = request.getfixturevalue("sql_server")
        url = server.new_database()
    made = Daemons(8, 2, url, cleanup="/bin/true")
    try:
        made.start("cpa-0")
        made.nodes_up()
        yield made
    finally:
        made.close()


@pytest.mark.storm
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests(), min_size=1, max_size=4))
def test_every_request_has_an_answer(one: Daemons, asked: list[Message]) -> None:
    with one.client() as client:
        for message in asked:
            answer(client, message)
    assert one.processes["cpa-0"].poll() is None, one.stderr("cpa-0")


def answer(client: Client, message: Message) -> None:
    try:
        reply = client.call(message)
        assert "error" not in reply
    except AgentError as error:
        assert error.code in KNOWN, (message, error.code, error.message)
        assert error.message and "Traceback" not in error.message
        # 2: somebody typed it behind a word of the command line
        assert error.exit_status == 125 or (error.exit_status == 2 and "placement" in message)
