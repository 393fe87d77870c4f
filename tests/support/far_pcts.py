"""Real PCTs that are reached over TLS only, and clients that connect with any certificate, credential and bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agents.link import tls
from agents.link.client import Client
from agents.link.trust import Trust
from agents.linux import processes
from agents.wire import credential as credentials
from agents.wire import keys
from agents.wire.control import control, decode, encode
from agents.wire.credential import Credential
from agents.wire.frames import COMMON, CONTROL, Decoder, frame
from agents.wire.messages import hello
from console.deploy.trust.authority import Authority, authority, identity, write_private
from tests.support.addresses import address, free_port
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, wait_until

MESH = f"{os.getpid():08x}"  # unique to this test process: processes that are left behind are found by it
UID = os.geteuid()


class FarMachine:
    """``count`` PCTs with two processors, a port and a directory each; ``close`` ends them."""

    def __init__(self, count: int = 1) -> None:
        self.directory = str(private_directory("rm-"))
        self.hint = b""  # the hint that connections send: what they are for
        self.authority: Authority = authority(f"{self.directory}/login", MESH)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        self.incarnations = dict.fromkeys((f"n{i}" for i in range(count)), 1)
        self.nodes = [{"id": i + 1, "name": f"n{i}", "processors": [2 * i, 2 * i + 1]} for i in range(count)]
        for number, node in enumerate(self.nodes):
            self._prepare(str(node["name"]), node, address(number + 2))
            self.start(str(node["name"]))
        for node in self.nodes:
            self.await_pct(str(node["name"]))

    def _prepare(self, name: str, node: dict[str, Any], host: str) -> None:
        place = f"{host}:{free_port(host)}"
        self.addresses[name] = f"tls://{place}/{name}"
        for directory in ("run", "state", "trust"):
            os.makedirs(f"{self.directory}/{name}/{directory}", mode=0o700)
        self.equip(name)
        config = {
            "mesh": MESH, "run": f"{self.directory}/{name}/run", "state": f"{self.directory}/{name}/state",
            "boot_id": "b0", "login": "", "cpas": 0, "nodes": [node], "listen": place,
            "trust": f"{self.directory}/{name}/trust",
        }  # fmt: skip
        Path(f"{self.directory}/{name}/keeper.json").write_text(json.dumps(config))

    def equip(self, name: str) -> None:
        """Write the node's certificate and keys, as the authority issues them now."""
        for file, content in self.authority.node_files(name, ["127.0.0.1"]).items():
            write_private(f"{self.directory}/{name}/trust/{file}", content)

    def start(self, name: str) -> None:
        """Start the PCT of a node."""
        command = [sys.executable, "-P", "-m", "agents.pct", "--config", f"{self.directory}/{name}/keeper.json"]
        self.processes[name] = subprocess.Popen([*command, "--node", name], start_new_session=True)

    def await_pct(self, name: str) -> None:
        """Wait until the PCT of a node answers."""

        def answers() -> bool:
            try:
                with Client(f"{self.directory}/{name}/run/{name}.sock", "admin") as client:
                    return bool(client.call({"op": "status"}))
            except Exception:
                return False

        wait_until(answers, f"{name} answers")

    def again(self, name: str) -> None:
        """Kill the PCT of a node and start another."""
        self.processes[name].kill()
        self.processes[name].wait()
        self.incarnations[name] += 1
        self.start(name)
        self.await_pct(name)

    def has_spare(self, name: str = "n0") -> bool:
        """Return whether a launch child of the node waits for another launch."""
        return any(not processes.children(pid) for pid in processes.children(self.processes[name].pid))

    def refusals(self, name: str = "n0") -> list[str]:
        """Return the reasons of the refusals that a node has logged."""
        return [line["reason"] for line in self.log(name) if line["event"] == "refused"]

    def log(self, name: str = "n0") -> list[dict[str, Any]]:
        """Return the entries of the node's log."""
        with open(f"{self.directory}/{name}/state/log/pct-{name}.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def memory(self, name: str = "n0") -> int:
        """Return the peak resident memory of the PCT in bytes (VmHWM)."""
        with open(f"/proc/{self.processes[name].pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

    def descriptors(self, name: str = "n0") -> int:
        """Return how many descriptors the PCT has open."""
        return len(os.listdir(f"/proc/{self.processes[name].pid}/fd"))

    # Clients that connect

    def own(self, name: str, pem: bytes) -> str:
        """Write a key and certificate to a file; return its path."""
        path = f"{self.directory}/{name}.pem"
        write_private(path, pem)
        return path

    def trust(self, role: str = "", name: str = "login", lasts_days: float = 10.0) -> Trust:
        """Return the trust of a peer, with a certificate for ``role`` from the mesh's CA; no role: no certificate."""
        write_private(f"{self.directory}/ca.pem", self.authority.ca_pem)
        own = ""
        if role:
            pem = self.authority.issue([identity(MESH, role, name)], [], lasts_days)
            own = self.own(f"{role}-{name}-{lasts_days}", pem)
        return Trust(MESH, f"{self.directory}/ca.pem", own)

    def visit(self, trust: Trust, node: str = "n0", hint: bytes = b"") -> tls.Secured:
        """Connect to a node and complete the TLS handshake."""
        return tls.connect(self.addresses[node], trust, PATIENCE_S, hint)

    # A launch

    def load(
        self, launcher: int, nodes: list[str] | None = None, argv: tuple[str, ...] = ("/bin/true",)
    ) -> tuple[dict[str, Any], bytes]:
        """Return a load message and the payload of its common frame, for one rank on each of ``nodes``."""
        chosen = [node for node in self.nodes if node["name"] in (nodes or ["n0"])]
        load = {
            "op": "load", "launcher": launcher, "partition": 1, "mesh": "b0", "size": len(chosen),
            "nnodes": len(chosen), "fanout": 32, "window": 1 << 20, "pending_s": 60.0, "input": "none",
            "nodes": [
                {
                    "id": node["id"], "name": node["name"], "index": at, "address": self.addresses[str(node["name"])],
                    "processors": node["processors"], "ranks": [at],
                }
                for at, node in enumerate(chosen)
            ],
        }  # fmt: skip
        segment = {"first": 0, "count": len(chosen), "path": argv[0], "argv": list(argv)}
        common = {"segments": [segment], "env": [], "cwd": "/", "umask": 18, "cpus_per_task": 1, "hold": "exec"}
        return load, encode(common)

    def credential(
        self,
        load: dict[str, Any],
        common: bytes,
        *,
        mesh: str = MESH,
        launcher: int | None = None,
        uid: int = UID,
        expires_in_s: float = 45.0,
        master: bytes | None = None,
    ) -> dict[str, Any]:
        """Return a CPA's reply to a ``credential`` request; the keyword arguments forge parts of it."""
        members = credentials.members_of(load["nodes"])
        made = Credential(
            mesh, load["launcher"] if launcher is None else launcher, uid, credentials.digest_of_members(members),
            credentials.digest_of(common), os.urandom(16).hex(), time.time() + expires_in_s,
        )  # fmt: skip
        master = master or keys.read(f"{self.authority.directory}/master.key")[0]
        macs = {
            name: credentials.mac(keys.launch_key(master, MESH, name), made.text, name, "b0", self.incarnations[name])
            for name in (str(node["name"]) for node in self.nodes)
        }
        return {"credential": made.text, "macs": macs, "members": members}

    def launch(
        self,
        load: dict[str, Any],
        common: bytes,
        shown: dict[str, Any],
        *,
        role: str = "launcher",
        trust: Trust | None = None,
        mac: str | None = None,
        node: str = "n0",
    ) -> Talk:
        """Send a launch to ``node``; return the open connection."""
        sock = self.visit(trust or self.trust(), node, self.hint)
        mac = shown["macs"].get(node, "") if mac is None else mac
        greeting = {**hello(role), "credential": shown["credential"], "mac": mac}
        sock.sendall(control(greeting) + control({**load, **shown}) + frame(COMMON, common))
        return Talk(sock)

    def close(self) -> None:
        """Terminate every PCT; raise AssertionError if processes are left."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        try:  # helper processes of a PCT exit shortly after it
            wait_until(lambda: not _living(), lambda: f"none of these processes is left: {_living()}")
        finally:
            processes.kill_all(_living())
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> FarMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _living() -> list[int]:
    return [pid for pid in processes.marked(f"{MESH}/") if processes.alive(pid)]


class Talk:
    """A connection to a PCT, and the control messages received over it."""

    def __init__(self, sock: tls.Secured) -> None:
        self.sock = sock
        self.messages: list[dict[str, Any]] = []
        self._decoder = Decoder()

    def read(self) -> bool:
        """Receive once; return False at the end of the connection."""
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            return False
        self.messages += [decode(payload) for kind, payload in self._decoder.feed(data) if kind == CONTROL]
        return bool(data)

    def until(self, *ops: str) -> dict[str, Any]:
        """Return the first message with one of ``ops``; ``error`` stands for any reply that has an error."""
        while True:
            for message in self.messages:
                if message.get("op") in ops or ("error" in ops and "error" in message):
                    self.messages.remove(message)
                    return message
            if not self.read() and not any(m.get("op") in ops or "error" in m for m in self.messages):
                raise AssertionError(f"no {ops}, only {self.messages}")

    def send(self, message: dict[str, Any]) -> None:
        """Send a control message."""
        self.sock.sendall(control(message))

    def run(self) -> list[int]:
        """Run the launch to its end; return the wait statuses by rank."""
        message = self.until("ready", "failed", "error")
        assert "ranks" in message, message
        ready = sorted(message["ranks"])
        self.send({"op": "go", "ranks": [[pid, place] for _, pid, place in ready]})
        self.until("finished")
        ended = {rank: status for m in self.messages if m.get("op") == "exits" for rank, status, _ in m["ranks"]}
        self.send({"op": "done"})
        while self.read():
            pass
        self.close()
        return [ended[rank] for rank in sorted(ended)]

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
