"""A process that stands in for the PCTs of many nodes, with one socket, one session with the RCA, and no ranks."""

from __future__ import annotations

import json
import os
import socket
import time

from agents.link.acceptor import allow_many_files
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.pct.heartbeat.session import Beats
from agents.pct.node.daemon import TOMBSTONE_S
from agents.pct.node.incarnation import next_incarnation
from agents.pct.node.listener import LaunchListener
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import PCT
from redmesh.settings.keeper_file import KeeperFile
from redmesh.version import VERSION
from simulated.launch import Host, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class StandIn:
    """The daemon ``name``; the file STATE/name.json lists the nodes that it stands in for."""

    def __init__(self, loop: Loop, config: KeeperFile, name: str) -> None:
        self._loop, self._name, self._boot_id = loop, name, config.boot_id
        run, state = config.run, config.state
        self._run, self._state = run, state
        share = _share(os.path.join(state, f"{name}.json"))
        self._nodes: list[str] = [str(node) for node in share["nodes"]]
        self._processors = int(share["processors"])
        self._log = Journal(os.path.join(state, "log", f"{name}.jsonl"), name)
        address = os.path.join(run, f"{name}.sock")
        self._host = Host(loop, frozenset(self._nodes), address)
        self._listener = LaunchListener(loop, self._launch, self._welcome, self._welcome)
        self._host.connect = self._pair
        self._server = Server(loop, address, "pct", PCT, self._on_request, name=name)
        self._server.on_accept = self._listener.accept
        self._incarnation = next_incarnation(run, state, name, self._boot_id)
        self._address = address
        self._beats = Beats(loop, os.path.join(run, "rca.sock"), self._registration, lambda: len(self._host.launches))
        self._log.write("stand-in started", nodes=len(self._nodes), incarnation=self._incarnation)

    def stop(self) -> None:
        """Stop listening and end the loop."""
        self._log.write("stand-in ended", launches=len(self._host.launches))
        self._beats.close()
        self._server.close()
        self._loop.stop()

    def _pair(self) -> socket.socket:
        # A child in this process: use a socket pair instead of connect and accept.
        ours, theirs = socket.socketpair()
        self._loop.after(0, lambda: self._listener.accept(theirs))
        return ours

    def _launch(self, sock: socket.socket, role: str) -> None:
        Launch(self._host, sock, role)

    def _welcome(self, sock: socket.socket) -> None:
        self._server.welcome(sock)

    def _registration(self) -> Message:
        return {
            "op": "register_node",
            "node": self._name,
            "nodes": self._nodes,
            "boot_id": self._boot_id,
            "incarnation": self._incarnation,
            "address": self._address,
            "pid": os.getpid(),
            "processors": self._processors,
            "agent": VERSION,
        }

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        if op == "kill_launch":
            session.reply(message, {"clean": True, "killed": self._kill(message["launcher"])})
        elif op == "wipe":
            session.reply(message, {"clean": True, "killed": self._wipe(frozenset(message.get("nodes", self._nodes)))})
        elif op == "failed":
            self._loop.after(1.0, self._beats.register_again)
            session.reply(message, {})
        elif op == "status":
            session.reply(message, self._status(message.get("node", "")))
        else:
            session.refuse(message, AgentError(f"a simulated node knows no {op}", code="unknown_op"))

    def _kill(self, launcher: int) -> int:
        now = time.monotonic()
        self._host.killed = {one: at for one, at in self._host.killed.items() if now - at < TOMBSTONE_S}
        self._host.killed[launcher] = now
        return sum(launch.kill() for launch in list(self._host.launches.get(launcher, ())))

    def _wipe(self, nodes: frozenset[str]) -> int:
        here = [one for those in self._host.launches.values() for one in those if one.node in nodes]
        killed = sum(launch.kill() for launch in here)
        self._incarnation = next_incarnation(self._run, self._state, self._name, self._boot_id)
        self._beats.register_again()
        return killed

    def _status(self, node: str) -> Message:
        """The reply to a status request: the launches on ``node``, or (if empty) on all nodes of this process."""
        launches = [
            {
                "launcher": launcher,
                "pid": os.getpid(),
                "state": here[0].state,
                "ranks": [pair for one in here for pair in one.ranks],
            }
            for launcher, those in self._host.launches.items()
            if (here := [one for one in those if node in ("", one.node)])
        ]
        return {
            "node": self._name,
            "boot_id": self._boot_id,
            "incarnation": self._incarnation,
            "processors": [],
            "launches": launches,
        }


def _share(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            share: dict[str, Any] = json.load(file)
            return share
    except (OSError, ValueError) as error:
        raise AgentError(f"{path} does not say which nodes: {error}", "mesh up --simulate FILE writes it") from None


def serve(config: KeeperFile, name: str) -> None:
    """Run the daemon until SIGTERM or SIGINT."""
    import signal

    allow_many_files()
    loop = Loop()
    stand_in = StandIn(loop, config, name)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, stand_in.stop)
    loop.run()
