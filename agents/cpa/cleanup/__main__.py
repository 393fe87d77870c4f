"""The built-in clean-up executable (row A7): it exits with 0 when the launch's processes are gone from every node.

``python -P -m redmesh cpa.cleanup LAUNCHER`` reads the nodes, a JSON list of ``{"name", "address"}``, from standard
input. A site may configure its own (``cleanup``) with the same argument and input; exit status 0 means clean. It is run
again until it succeeds, so it must be idempotent. It does not use the database.
"""

import json
import os
import sys

from agents.cpa.cleanup.runner import NO_PCT
from agents.link import trust
from agents.link.acceptor import allow_many_files
from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError

DEADLINE_S = 5.0
CLEAN, UNCLEAN, USAGE = 0, 1, 2


class Cleanup:
    """Asks every node's PCT to kill one launch; ``left`` has the nodes that are not clean, with the reasons."""

    def __init__(self, launcher: int, nodes: list[tuple[str, str]]) -> None:
        self.launcher = launcher
        self.left = {name: "no answer in time" for name, _ in nodes}
        self._at: dict[str, list[str]] = {}  # address -> nodes; a process that stands for many nodes is asked once
        for name, address in nodes:
            self._at.setdefault(address, []).append(name)
        self._loop = Loop()
        self._outstanding = 0

    def run(self, deadline_s: float = DEADLINE_S) -> dict[str, str]:
        """Ask all PCTs at once and wait; returns the nodes that are not clean, with the reasons."""
        self._loop.after(deadline_s, self._loop.stop)
        for address, names in self._at.items():
            self._ask(names, address)
        if self._outstanding:
            self._loop.run()
        return self.left

    def _ask(self, names: list[str], address: str) -> None:
        try:
            caller = Caller(self._loop, connect_now(address), "cleanup", lambda _caller, _reason: None)
        except (OSError, AgentError) as error:
            told = f"{NO_PCT}: {getattr(error, 'strerror', None) or error}"
            self.left.update(dict.fromkeys(names, told))
            return

        def answered(reply: Message | None, error: AgentError | None) -> None:
            self._outstanding -= 1
            if reply is not None and reply.get("clean") is True:
                for name in names:
                    del self.left[name]
            else:
                told = error.message if error is not None else "processes are left"
                self.left.update(dict.fromkeys(names, told))
            caller.close()
            if not self._outstanding:
                self._loop.stop()

        self._outstanding += 1
        caller.call({"op": "kill_launch", "launcher": self.launcher}, answered)


def main(arguments: list[str]) -> int:
    """Returns the exit status: 0 clean, 1 not clean (stderr has nodes and reasons), 2 wrong usage."""
    try:
        (launcher,) = map(int, arguments)
        nodes = [(str(node["name"]), str(node["address"])) for node in json.load(sys.stdin)]
    except (ValueError, TypeError, KeyError) as error:
        print(f"usage: cleanup LAUNCHER < nodes.json ({error})", file=sys.stderr)
        return USAGE
    allow_many_files()
    if os.environ.get("CPA_STATE"):
        trust.use_login(os.environ.get("CPA_MESH", ""), os.environ["CPA_STATE"])
    left = Cleanup(launcher, nodes).run()
    for name, reason in left.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return UNCLEAN if left else CLEAN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
