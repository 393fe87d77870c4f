"""``yod -worker-of SOCKET``: the ranks are workers of a job; yod forwards their requests to the job's owner.

The owner's side is agents/job/worker_links.py. When the owner exits, the launch is ended.
"""

from __future__ import annotations

import os
import signal
import struct

from agents.job.workers.relay_frames import HELLO, OVER, pack, parse_answer
from agents.link.link import Link
from agents.link.sockets import connect_now
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import FILE
from console.errors import ConsoleError, UsageError
from console.launch.options.request import StateOptions
from console.launch.states import Event
from redmesh.state import is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from console.launch.features.feature import LaunchContext


def options(given: dict[str, Any]) -> StateOptions:
    """Read -worker-of and the options that belong to it. Raises UsageError if the socket's name is not a job's."""
    path = given["worker-of"]
    uuid = os.path.basename(path).partition(".")[0]
    if not is_uuid(uuid):
        raise UsageError(f"-worker-of {path}: this is not the socket of a job's owner", "mesh submit starts workers")
    read = StateOptions(uuid, keep=False, purge=False, socket=os.path.abspath(path))
    read.holds, read.grows = "worker-holds" in given, max(0, given.get("worker-grows", 0))
    return read


def run_for_job(engine: LaunchContext, run: Callable[[], int], state: StateOptions) -> int:
    """Run the launch to its end; returns yod's exit status. Raises ConsoleError if the owner does not run."""
    state.relay = OwnerRelay(engine, state.socket)
    status = run()
    state.relay.close()
    return status


class OwnerRelay:
    """The connection of a launch to the owner of its job."""

    def __init__(self, engine: LaunchContext, path: str) -> None:
        self._engine = engine
        self._replies: dict[int, Callable[[bytes], None]] = {}
        self._next = 0
        try:
            sock = connect_now(path)
        except (OSError, AgentError) as error:
            raise ConsoleError(f"the owner of the job does not answer at {path}: {error}", "mesh job resume") from None
        self._link = Link(engine.loop, sock, self._on_frame, self._on_end)
        self._link.send({"op": HELLO, "pid": os.getpid()})

    def ask(self, channel: tuple[int, int], data: bytes, node: str, reply: Callable[[bytes], None]) -> None:
        """Forward a rank's request; ``reply`` gets the owner's answer."""
        self._next += 1
        self._replies[self._next] = reply
        self._link.send_raw(pack(channel, self._next, node, data))

    def gone(self, channel: tuple[int, int]) -> None:
        """Tell the owner that a rank has closed its connection."""
        self._link.send_raw(pack(channel, 0, "", b""))

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != FILE:
            return
        try:
            number, data = parse_answer(payload)
        except struct.error:
            raise WireError("not an answer of a job's owner") from None
        reply = self._replies.pop(number, None)
        if reply is not None:
            reply(data)

    def _on_end(self, _link: Link, _reason: str) -> None:
        self._engine.say("the owner of the job has exited: ending its workers", "mesh job resume starts another")
        self._engine.handle(Event.TERMINATE, int(signal.SIGTERM))

    def close(self) -> None:
        """Tell the owner that no rank runs any more, and disconnect."""
        self._link.send({"op": OVER})
        self._link.close()
