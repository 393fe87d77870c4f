"""Real PCTs without a CPA or RCA, and a raw launcher that talks to them in the tree's protocol."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agents.link.client import Client
from agents.link.sockets import connect
from agents.linux import processes
from agents.wire.control import control, decode, encode, to_text
from agents.wire.frames import COMMON, CONTROL, STDERR, STDIN, STDOUT, Decoder, frame, split_output
from agents.wire.messages import hello
from tests.support.groups import inside
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, Process, wait_until

MESH = f"{os.getpid():08x}"  # unique to this test process: processes that are left behind are found by it


class Machine:
    """``count`` PCTs with ``slots`` processors each, in a private directory; ``close`` ends them.

    ``open_files`` is the PCTs' soft limit of open descriptors; ``group`` a control group that they run in.
    """

    def __init__(
        self, count: int = 1, slots: int = 4, open_files: int | None = None, group: Path | None = None, **settings: Any
    ) -> None:
        self.directory = str(private_directory("rm-"))
        self.run = os.path.join(self.directory, "run")
        self.state = os.path.join(self.directory, "state")
        self.slots, self._open_files, self._group = slots, open_files, group
        os.mkdir(self.run, 0o700)
        os.mkdir(self.state, 0o700)
        self.nodes = [
            {"id": i + 1, "name": f"n{i}", "processors": list(range(i * slots, (i + 1) * slots))} for i in range(count)
        ]
        self.config = os.path.join(self.directory, "keeper.json")
        with open(self.config, "w", encoding="utf-8") as file:
            config = {"mesh": MESH, "run": self.run, "state": self.state, "boot_id": "b0", "login": "", "cpas": 0,
                      "nodes": self.nodes}  # fmt: skip
            json.dump({**config, **settings}, file)
        self.pcts: dict[str, subprocess.Popen[bytes]] = {}
        self.everybody: set[int] = set()
        for node in self.nodes:
            self.start(str(node["name"]))
        for node in self.nodes:
            self.await_pct(str(node["name"]))

    def start(self, name: str) -> None:
        """Start the PCT of a node."""
        command = [sys.executable, "-P", "-m", "agents.pct", "--config", self.config, "--node", name]
        if self._open_files is not None:  # set by prlimit, because this process may have more descriptors open
            command = ["prlimit", f"--nofile={self._open_files}:", *command]
        if self._group is not None:
            command = inside(self._group, *command)
        self.pcts[name] = Process(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def await_pct(self, name: str) -> None:
        """Wait until the PCT of a node answers."""
        wait_until(lambda: self.ask(name, {"op": "status"}, quiet=True), f"{name} answers")

    def address(self, name: str) -> str:
        """Return the path of the PCT's socket."""
        return os.path.join(self.run, f"{name}.sock")

    def ask(self, name: str, message: dict[str, Any], quiet: bool = False) -> dict[str, Any]:
        """Send a request to a PCT; return its reply, or with ``quiet`` an empty one if that failed."""
        try:
            with Client(self.address(name), "admin", timeout_s=PATIENCE_S) as client:
                return client.call(message)
        except Exception:
            if quiet:
                return {}
            raise

    def log(self, name: str) -> list[dict[str, Any]]:
        """Return the entries of the node's log."""
        with open(os.path.join(self.state, "log", f"pct-{name}.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def launch_children(self, name: str) -> list[int]:
        """Return the pids of launch children that are children of the node's PCT."""
        return [pid for pid in processes.children(self.pcts[name].pid) if processes.alive(pid)]

    def marked(self) -> list[int]:
        """Return the pids of living processes of any launch of this machine."""
        return [pid for pid in processes.marked(f"{MESH}/") if processes.alive(pid)]

    def leftovers(self) -> list[str]:
        """Return the names of launches' files in RUN."""
        return [name for name in os.listdir(self.run) if name.startswith("launch-")]

    def close(self) -> None:
        """End every PCT, kill remaining processes, remove the directory; AssertionError if launches left processes."""
        for pct in self.pcts.values():
            pct.terminate()
        for pct in self.pcts.values():
            try:
                pct.wait()
            except subprocess.TimeoutExpired:
                pct.kill()
                pct.wait()
        left = self.marked()
        processes.kill_all(left)
        for pid in self.adopted():
            processes.kill_all([pid])
        shutil.rmtree(self.directory, ignore_errors=True)
        assert not left, f"processes were left: {left}"

    def adopted(self) -> list[int]:
        """Return the pids of launch children that still listen in RUN."""
        found = []
        for name in os.listdir(self.run):
            if name.startswith("launch-") and name.endswith(".sock"):
                try:
                    with connect(os.path.join(self.run, name)) as sock:
                        found.append(
                            int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), "little")
                        )
                except OSError:
                    pass
        return found

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Launcher:
    """A raw launcher: sends a load to the root PCT and receives from the tree like yod, without a CPA."""

    _next = 0

    def __init__(
        self,
        machine: Machine,
        argv: list[str],
        per_node: int = 1,
        *,
        nodes: int | None = None,
        fanout: int = 32,
        window: int = 16 << 20,
        pending_s: float = 60.0,
        input: str | int = "none",
        env: dict[str, str] | None = None,
        cwd: str = "/",
        hold: str = "exec",
        grant: bool = True,
        number: int | None = None,
        path: str | None = None,
        lapses_in_s: float | None = None,
        limits: list[list[int]] | None = None,
    ) -> None:
        Launcher._next += 1
        self.number = number if number is not None else Launcher._next
        self.machine = machine
        chosen = machine.nodes[: nodes or len(machine.nodes)]
        self.nodes: list[dict[str, Any]] = [
            {
                "id": node["id"],
                "name": node["name"],
                "index": i,
                "address": machine.address(str(node["name"])),
                "processors": node["processors"],
                "ranks": list(range(i * per_node, (i + 1) * per_node)),
            }
            for i, node in enumerate(chosen)
        ]
        self.size = per_node * len(chosen)
        self.grant = grant
        self.messages: list[dict[str, Any]] = []
        self.output: dict[tuple[int, int], bytearray] = {}
        self.keep_output = True
        self.received = 0
        self._owed = 0
        load = {
            "op": "load", "launcher": self.number, "partition": 1, "mesh": MESH, "size": self.size,
            "nnodes": len(chosen), "fanout": fanout, "window": window, "pending_s": pending_s, "input": input,
            "nodes": self.nodes,
        }  # fmt: skip
        if lapses_in_s is not None:
            load["lapses_at"] = time.monotonic() + lapses_in_s
        environment = {"PATH": "/usr/bin:/bin"} if env is None else env
        common = {
            "segments": [
                {"first": 0, "count": self.size, "path": to_text(os.fsencode(path or shutil.which(argv[0]) or argv[0])),
                 "argv": [to_text(os.fsencode(a)) for a in argv]}
            ],
            "env": [to_text(os.fsencode(f"{k}={v}")) for k, v in environment.items()],
            "cwd": cwd, "umask": 0o22, "cpus_per_task": 1, "hold": hold,
        }  # fmt: skip
        if limits is not None:
            common["limits"] = limits
        self.sock = connect(self.nodes[0]["address"])
        self._decoder = Decoder()
        self.sock.sendall(control(hello("launcher")) + control(load) + frame(COMMON, encode(common)))

    def read(self, timeout_s: float = PATIENCE_S) -> bool:
        """Receive once; return False at the end of the connection."""
        self.sock.settimeout(timeout_s)
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionResetError:
            return False
        for kind, payload in self._decoder.feed(data):
            if kind == CONTROL:
                self.messages.append(decode(payload))
            elif kind in (STDOUT, STDERR):
                rank, part = split_output(payload)
                self.received += len(part)
                if self.keep_output:
                    self.output.setdefault((rank, kind), bytearray()).extend(part)
                self._owed += len(part)
        if self.grant and self._owed >= 64 << 10:
            self.give_credit()
        return bool(data)

    def give_credit(self) -> None:
        """Grant credit for the output received since the last call."""
        owed, self._owed = self._owed, 0
        if owed:
            self.send({"op": "credit", "bytes": owed})

    def until(self, *ops: str) -> dict[str, Any]:
        """Return the first message with one of ``ops`` that was not returned before."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for message in self.messages:
                if message["op"] in ops:
                    self.messages.remove(message)
                    return message
            left = deadline - time.monotonic()
            assert left > 0, f"no {ops} in time, only {self.messages}"
            assert self.read(left) or any(m["op"] in ops for m in self.messages), f"no {ops}, only {self.messages}"

    def send(self, message: dict[str, Any]) -> None:
        """Send a control message down the tree."""
        self.sock.sendall(control(message))

    def feed(self, data: bytes) -> None:
        """Send data for the standard input of ranks."""
        self.sock.sendall(frame(STDIN, data))

    def ready(self) -> list[list[int]]:
        """Wait until all ranks are held before exec; return [pid, node index] of each rank, in rank order."""
        message = self.until("ready", "failed")
        assert message["op"] == "ready", message
        by_rank = {rank: [pid, place] for rank, pid, place in message["ranks"]}
        return [by_rank[rank] for rank in range(self.size)]

    def go(self) -> list[list[int]]:
        """Wait for ``ready``, then send GO; return what :meth:`ready` returned."""
        ranks = self.ready()
        self.send({"op": "go", "ranks": ranks})
        return ranks

    def exits(self) -> dict[int, int]:
        """Return the wait statuses received so far, by rank."""
        return {rank: status for m in self.messages if m["op"] == "exits" for rank, status, _ in m["ranks"]}

    def finish(self) -> dict[int, int]:
        """Wait for ``finished``, send ``done``, read to the end; return the wait statuses by rank."""
        finished = self.until("finished")
        assert finished["unclean"] == []
        self.send({"op": "done"})
        while self.read():
            pass
        self.sock.close()
        return self.exits()

    def stdout(self, rank: int = 0) -> bytes:
        """Return what a rank has written to standard output."""
        return bytes(self.output.get((rank, STDOUT), b""))

    def stderr(self, rank: int = 0) -> bytes:
        """Return what a rank has written to standard error."""
        return bytes(self.output.get((rank, STDERR), b""))


def run(machine: Machine, argv: list[str], per_node: int = 1, **options: Any) -> tuple[dict[int, int], Launcher]:
    """Run a launch from the load to ``done``; return the wait statuses by rank, and the launcher."""
    launcher = Launcher(machine, argv, per_node, **options)
    launcher.go()
    return launcher.finish(), launcher


def kill_hard(pid: int) -> None:
    """Send SIGKILL to ``pid``."""
    os.kill(pid, signal.SIGKILL)
