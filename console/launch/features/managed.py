"""``--parent=rank``: the batch system starts every rank itself (agents/pct/ranks/starter.py becomes the rank)."""

from __future__ import annotations

import os
import secrets

from agents.linux.batch_signals import Reach
from agents.managers import registry
from agents.pct.ranks.managed import TOKEN_BYTES, command
from console.errors import ConsoleError
from console.launch.features.feature import Feature
from console.launch.states import Event, State
from redmesh.managers import ManagerError
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

_BEFORE_GO = frozenset((State.LOADING, State.CONFIRMING))
_READ = 1  # EPOLLIN
_MOST = 4096


class ManagedParent(Feature):
    """Has the batch system start the ranks: through one client here, or one on each node if it can."""

    def __init__(self, manager: Any, hosts: dict[str, str], reach: str) -> None:
        """``hosts``: node name → the manager's name of its host. ``reach``: which processes it signals (Reach)."""
        self._manager, self._hosts, self._reach = manager, hosts, reach
        self._clients: list[subprocess.Popen[bytes]] = []
        self._said: dict[int, str] = {}
        self._went = False

    def before_load(self) -> None:
        """Put the ranks' credentials into the load, and start the ranks unless the nodes do it."""
        self._end_clients()
        plan, run = self.context.plan, self.context.request.run
        assert plan is not None and run is not None
        missing = [node.name for node in plan.nodes if node.name not in self._hosts]
        if missing:
            raise ConsoleError(f"{missing[0]} is not a host of this job", "--parent=daemon")
        try:
            if hasattr(self._manager, "check_ranks"):
                self._manager.check_ranks(os.environ, [self._hosts[node.name] for node in plan.nodes])
        except ManagerError as error:
            raise ConsoleError(error.message, error.hint) from None
        name, token = secrets.token_hex(8), secrets.token_hex(TOKEN_BYTES // 2)
        module = self._manager.__name__.rpartition(".")
        # Every node has the built-in managers; a third-party plug-in is only on this machine.
        calls = self._manager.distributed and module[0] == "agents.managers" and module[2] in registry.OURS
        run.message["parent"] = {
            "name": name, "token": token, "manager": module[2] if calls else "",
            "supervisor": getattr(self._manager, "supervisor", ""),
            "command": command(), "hosts": {node.name: self._hosts[node.name] for node in plan.nodes},
        }  # fmt: skip
        if calls:
            return
        counts = [(self._hosts[node.name], len(node.ranks)) for node in plan.nodes]
        try:
            self._spawn(counts, f"{name} {token}")
        except ManagerError as error:
            raise ConsoleError(error.message, error.hint) from None

    def before_go(self) -> None:
        """Note that GO was sent: from now on a client exits when the last of its ranks has exited."""
        self._went = True
        for client in self._clients:
            if hasattr(self._manager, "settled") and client.poll() is None:
                self._manager.settled(client)

    def _spawn(self, counts: list[tuple[str, int]], proof: str) -> None:
        manager = self._manager
        variable = getattr(manager, "host_variable", "")
        if hasattr(manager, "spawn_ranks"):
            where = f"${variable}" if variable else counts[0][0]
            env = {"REDMESH_STARTER": f"{proof} {where}"}
            if self._reach == Reach.GROUP and hasattr(manager, "signals_reach"):
                # A rank has a session of its own, so what is sent to the group of the first task does not reach it.
                env["REDMESH_STARTER_STAYS"] = "1"
            each = dict(counts)
            parts = manager.groups(os.environ, list(each)) if hasattr(manager, "groups") else [list(each)]
            for part in parts:
                self._keep(manager.spawn_ranks(os.environ, [(host, each[host]) for host in part], command(), env))
            return
        for host, count in counts:
            for _ in range(count):
                self._keep(manager.spawn(os.environ, host, command(), {"REDMESH_STARTER": f"{proof} {host}"}))

    def _keep(self, client: subprocess.Popen[bytes]) -> None:
        self._clients.append(client)
        if client.stdin is not None:
            client.stdin.close()
        if client.stderr is not None:
            fd = client.stderr.fileno()
            os.set_blocking(fd, False)
            self.context.loop.watch(fd, _READ, lambda _events: self._on_said(client, fd))

    def _on_said(self, client: subprocess.Popen[bytes], fd: int) -> None:
        try:
            data = os.read(fd, _MOST)
        except OSError:
            data = b""
        lines = clean(data.decode("utf-8", "replace")).strip().splitlines()
        if lines:
            self._said[fd] = lines[-1][:300]
        if data:
            return
        self.context.loop.unwatch(fd)
        # The client closed its output, so it exits: before GO this is an error, because no rank can have ended.
        self.context.loop.after(0.05, lambda: self._on_client_ended(client, fd))

    def _on_client_ended(self, client: subprocess.Popen[bytes], fd: int) -> None:
        status = client.poll()
        if status is None or client not in self._clients or self.context.launch.state not in _BEFORE_GO:
            return
        said = self._said.get(fd, f"status {status}")
        root = self.context.launch.ranks.root_name
        told = f"the batch system's client ended before the ranks began: {said}"
        self.context.handle(Event.FAILED, root, told, "mesh manager check; --parent=daemon does without", 125, "launch")

    def _end_clients(self) -> None:
        for client in self._clients:
            for pipe in (client.stdout, client.stderr):
                if pipe is not None:
                    try:
                        self.context.loop.unwatch(pipe.fileno())
                    except (KeyError, OSError, ValueError):
                        pass  # it was not watched, or its exit was handled
            if client.poll() is None and not self._went:
                client.terminate()
        self._clients = []

    def close(self) -> None:
        """Terminate clients whose ranks never started; the others exit with the last of their ranks."""
        self._end_clients()
