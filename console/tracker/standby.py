"""Standby copies of state objects: updates one (``mesh job standby``, a process of the job's owner), and continues a
job from one.

The tracker's counter decides which object may be written. A copy counts as the standby only after the tracker knows its
place. A copy becomes the object only after the tracker has raised the counter, which needs evidence that the owner is
lost.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from agents.job.start import start_dependents, start_owner
from agents.link.client import Client
from agents.linux import prctl
from agents.linux.ready import ready
from agents.objects.commands import COMMANDS, ELSEWHERE
from agents.objects.connection import connect
from agents.objects.holder import PART, Holder
from agents.objects.object_process import FED_S
from agents.objects.receiver import fetch
from agents.objects.replica import copy
from agents.wire.control import control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import FILE, Decoder, frame
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.jobs.objects import directory_of, summary
from console.jobs.owner_client import NoOwner, ask
from console.launch.daemons.connect import login_name
from console.settings import Settings
from console.tracker.evacuation import nodes_that_are_up
from console.tracker.hand_over import HandOver, why_not
from console.tracker.source import address_of, report
from db.errors import StoreError
from redmesh.state import RUNNING, SUFFIX, StateError, url_on

_PIECE = 256 << 10
#: Seconds until a request that no CPA answered is repeated; the most seconds for a copy of any size to arrive.
_AGAIN_S, _COPY_S = 2.0, 600.0
#: The least seconds between the starts of two owners.
_LEAST_S = 10.0
#: Seconds between two looks for the owner's answers to commands from other hosts.
_ANSWERS_S = 0.1


class Fenced(Exception):
    """The tracker has given the job to another owner."""

    def __init__(self, url: str, counter: int) -> None:
        super().__init__(f"it is at {url} now (move {counter}); nothing of what runs here is recorded any more")
        self.url, self.counter = url, counter


def stand_by(settings: Settings, options: argparse.Namespace) -> int:
    """Copy the commits of the owner, connected to standard input, to a node of another host until the owner ends."""
    prctl.set_name(b"redmesh-standby")  # a keeper that inherits this process must know that it is no task
    feed = Feed(settings, options.job)
    try:
        feed.run()
    except Fenced as error:
        feed.owner.sendall(control({"op": "fenced", "reason": str(error)}))
        feed.await_end()
        node = error.url.removeprefix("redmesh://").partition("/")[0]
        address = ""
        with contextlib.suppress(ConsoleError):
            address = address_of(settings, node)
        feed.holder.fence(feed.uuid, error.counter, node, address)
        start_dependents(options.job)  # they follow it from now on
        return 0
    except OSError:
        pass  # the owner has exited
    feed.replace_lost_owner()
    return 0


class Feed:
    """Keeps one standby copy up to date. ``owner``: the socket to the job's owner."""

    def __init__(self, settings: Settings, path: str) -> None:
        self._settings, self._path = settings, path
        self.uuid = os.path.basename(path)[: -len(SUFFIX)]
        self._home = login_name(settings)
        self.holder = Holder(os.path.dirname(path), self._home)
        self.owner = socket.socket(fileno=os.dup(0))
        self._decoder = Decoder()
        self._partly, self._commits = bytearray(), bytearray()  # bytes of an incomplete commit, and complete commits
        self._ended = False
        self._asked = self._leaves_to = ""  # the requested login processor, and the one to which the job goes
        self._blind = ""  # the reason why no node is known
        self._began = time.monotonic()
        self._have = 0  # the number of commits that the copy has

    def run(self) -> None:
        """Update the standby until the owner ends. Raises Fenced, or OSError if the owner has exited."""
        self._register("")
        self._tell(op="clear")
        for node, address in self._candidates():
            try:
                with connect(address, FED_S) as client:
                    self._feed(client, node)
                if self._leaves_to:
                    HandOver(self._settings, self.holder, self._path, node, address).run(self._leaves_to, self._have)
                return
            except (AgentError, StateError):
                self._register("")  # raises Fenced if that copy has become the object
        self._tell(op="none", reason=self._blind)

    def _register(self, standby: str) -> None:
        """Tell the tracker the place of the standby; repeats until a CPA answers. Raises Fenced or OSError."""
        counter = summary(self._path).counter
        uid = os.geteuid()
        message = {"op": "state_standby", "uuid": self.uuid, "node": self._home, "standby": standby}
        while True:
            try:
                found = ask_cpa(self._settings, {**message, "counter": counter, "uid": uid})
                break
            except (AgentError, ConsoleError):
                self._receive(_AGAIN_S)
                if self._ended:
                    raise ConnectionResetError from None
        if found["counter"] > counter or found["url"] != url_on(self._home, self.uuid):
            raise Fenced(str(found["url"]), int(found["counter"]))

    def _candidates(self) -> list[tuple[str, str]]:
        """Nodes that are up and reachable from other machines; the first one depends on the job, to spread copies."""
        try:
            found = nodes_that_are_up(self._settings)
        except StoreError as error:
            self._blind = f"the database cannot be read here ({error.message}): set `database` in mesh.toml"
            return []
        first = int(self.uuid[:8], 16) % len(found) if found else 0
        for name, _ in found[:1]:
            address_of(self._settings, name)  # makes later connections use this login processor's certificate
        return found[first:] + found[:first]

    def _feed(self, client: Client, node: str) -> None:
        self._send_copy(client)
        self._register(node)
        self._tell(op="standing", node=node)
        commands = Commands(self._path)
        while not self._ended:
            self._receive(_ANSWERS_S if commands.pending else FED_S / 5)
            commands.begin(self._pass_on(client))  # sent even if empty: it shows the standby that the owner is alive
            for number, answer in commands.answers():
                client.call({"op": "answered", "uuid": self.uuid, "number": number, "answer": answer}, FED_S)
            if commands.elsewhere and not self._ended:
                self._register("")
                client.call({"op": "drop", "uuid": self.uuid})
                return  # the owner starts another process of the standby, which finds the nodes that are up now
            if self._asked:
                login, self._asked = self._asked, ""
                reason = why_not(self._settings, login, self._home)
                self._leaves_to = "" if reason else login
                self._tell(op="leaves", login=login, reason=reason)
        self._pass_on(client)
        told = summary(self._path)
        # The copy of a job that has moved stays for a day: it answers those who saw the job leave.
        if told.has_ended and not told.counter:
            client.call({"op": "drop", "uuid": self.uuid})
            self._register("")
        if told.has_ended:
            self._leaves_to = ""

    def _send_copy(self, client: Client) -> None:
        aside = f"{self._path}{PART}{os.getpid()}"
        try:
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
            copy(self._path, aside)
            what = {"uuid": self.uuid, "counter": summary(self._path).counter}
            client.call({"op": "copy", **what, "size": os.stat(aside).st_size, "sender": self._home})
            digest = hashlib.sha256()
            with open(aside, "rb") as file:
                while data := file.read(_PIECE):
                    digest.update(data)
                    client.send(frame(FILE, data))
            client.call({"op": "copied", **what, "digest": digest.hexdigest()}, _COPY_S)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(aside)

    def _pass_on(self, client: Client) -> list[dict[str, Any]]:
        """Send the commits of the owner; returns the commands for it that were left there."""
        data = bytes(self._commits)
        self._commits.clear()
        for at in range(0, len(data), _PIECE):
            client.send(frame(FILE, data[at : at + _PIECE]))
        told = client.call({"op": "commits", "uuid": self.uuid, "size": len(data)}, FED_S)
        self._have = int(told["commits"])
        if data:
            self._tell(op="have", commits=told["commits"])
        return list(told.get("commands", ()))

    def _tell(self, **message: Any) -> None:
        with contextlib.suppress(OSError):
            self.owner.sendall(control(message))

    def _receive(self, seconds: float) -> None:
        """Receive data of the owner, waiting at most ``seconds``."""
        if self._ended or not ready(self.owner.fileno(), seconds=seconds):
            return
        try:
            data = self.owner.recv(1 << 20)
        except OSError:
            data = b""
        self._ended = not data
        for kind, payload in self._decoder.feed(data):
            if kind == FILE:
                self._partly += payload
            elif (message := decode(payload)).get("op") == "commit":
                self._commits += self._partly
                self._partly.clear()
            elif message.get("op") == "leave":
                self._asked = str(message.get("login"))

    def replace_lost_owner(self) -> None:
        """Start another owner if this process saw the owner exit without recording an end, a suspension or a move: it
        was killed."""
        with contextlib.suppress(ConsoleError, StateError, OSError):
            if not self._ended or self._leaves_to or summary(self._path).state != RUNNING:
                return
            time.sleep(max(0.0, self._began + _LEAST_S - time.monotonic()))  # one that fails at its start, not at once
            start_owner(self._path)

    def await_end(self) -> None:
        """Wait until the owner has released the object."""
        while not self._ended:
            self._receive(FED_S)


class Commands:
    """Commands from other hosts for the owner of the job at ``path``; it may take as long as it likes to answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._answers: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self.pending = 0
        self.elsewhere = False  # the node is drained: the copy is to be on another one

    def begin(self, commands: list[dict[str, Any]]) -> None:
        """Pass commands on to the owner."""
        for one in commands:
            if one.get("command") == ELSEWHERE:
                self.elsewhere = True
            elif one.get("command") in COMMANDS:  # whatever the node says
                self.pending += 1
                threading.Thread(target=self._ask, args=(one,), daemon=True).start()

    def answers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The answers that have come, each with the number of its command."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._answers.get_nowait()
                self.pending -= 1

    def _ask(self, one: dict[str, Any]) -> None:
        try:
            answer = ask(self._path, str(one["command"]), **one.get("members", {}))
        except ConsoleError as error:
            answer = {"error": error.message, "hint": error.hint, "gone": isinstance(error, NoOwner)}
        except (TypeError, ValueError, WireError) as error:
            answer = {"error": str(error)}
        self._answers.put((str(one.get("number")), {key: answer[key] for key in answer if key != "re"}))


def bring(settings: Settings, uuid: str) -> str:
    """Fetch a job's object, from its standby if the owner is lost with its node or disk; returns its path. Raises
    ConsoleError."""
    home = login_name(settings)
    holder = Holder(directory_of(settings.state_dir), home)
    try:
        found = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
        node, counter = _node_of(found), int(found["counter"])
        if found["standby"]:
            address = address_of(settings, found["standby"], found["addresses"])
            with connect(address) as client:
                if client.call({"op": "standing", "uuid": uuid})["fed"]:
                    raise ConsoleError(
                        f"the owner of job {uuid} lives: it feeds the standby {found['standby']}", "mesh job show",
                        exit_status=1,
                    )  # fmt: skip
            take = {"op": "state_takeover", "uuid": uuid, "node": node, "counter": counter, "uid": os.geteuid()}
            found = ask_cpa(settings, {**take, "witness": node == home})
            node, counter = _node_of(found), int(found["counter"])
        elif node == home:
            raise ConsoleError(f"job {uuid} is not on this host any more, and had no standby", "mesh job list")
        address = address_of(settings, node, found["addresses"])
        with connect(address) as client:
            if uuid not in client.call({"op": "held"})["jobs"]:  # the node may not know yet that its copy is the object
                client.call({"op": "promote", "uuid": uuid, "counter": counter})
        moved = fetch(holder, uuid, address, node)
        with contextlib.suppress(AgentError, ConsoleError):
            report(settings, uuid, node, home, moved)  # if this fails, the node still knows where the object is
    except (AgentError, StateError) as error:
        raise ConsoleError(error.message, error.hint or "mesh job show", exit_status=1) from None
    return holder.path(uuid)


def there_or_brought(settings: Settings, uuid: str) -> str:
    """Return the path of a job to continue here; fetch it unless this login processor has it. Raises ConsoleError."""
    home = login_name(settings)
    path = Holder(directory_of(settings.state_dir), home).path(uuid)

    def is_ours() -> bool:
        # Ask the tracker, because a file on this host may be left by a fenced owner.
        if not os.path.exists(path):
            return False
        try:
            return bool(ask_cpa(settings, {"op": "state_locate", "uuid": uuid})["url"] == url_on(home, uuid))
        except AgentError:
            return False

    try:
        return path if is_ours() else bring(settings, uuid)
    except ConsoleError:
        if is_ours():
            return path
        raise


def _node_of(found: dict[str, Any]) -> str:
    return str(found["url"]).removeprefix("redmesh://").partition("/")[0]
