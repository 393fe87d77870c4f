"""Links of a launch's tree: what the failure to connect to a node says of that node."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agents.link.loop import Loop
from agents.pct.launch.tree import Child
from agents.wire.control import Message


class Lost:
    """Keeps what a child reports of its end."""

    def __init__(self) -> None:
        self.deaths: list[Message | None] = []

    def child_lost(self, _child: Child, _reason: str, death: Message | None = None) -> None:
        self.deaths.append(death)

    def input_taken(self) -> None:
        """No input is sent."""


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.dup(0)  # the lowest free descriptor
    os.close(first)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def child(loop: Loop, lost: Lost, address: str) -> Child:
    run = [{"name": "n1", "index": 1, "address": address, "ranks": [1]}]
    return Child(loop, run, {"launcher": 7, "nodes": run}, b"", 1 << 20, lost)  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [True, False])
def test_our_own_limits_say_nothing_about_a_node(own: bool) -> None:
    loop, lost = Loop(), Lost()
    if own:
        with no_descriptors():
            child(loop, lost, "/nowhere/n1.sock")
    else:
        child(loop, lost, "/dev/null/n1.sock")
    loop.run_once(0.1)
    loop.close()
    if own:
        assert lost.deaths == [{
            "message": f"no connection to its PCT: {os.strerror(errno.EMFILE)}",
            "hint": "start fewer ranks on a node, or run mesh down and mesh up under a larger limit (ulimit -n)",
        }]  # fmt: skip
    else:
        assert lost.deaths == [None]
