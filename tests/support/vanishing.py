"""A client that gets processors of a system mesh by the wire alone (docs/protocol.md), starts nothing, and exits.

``python vanishing.py RUN LOGIN VARIANT [LAUNCHER]`` says to a CPA *allocate* and *started*, prints the launcher's id,
and exits. VARIANT is what it does at the RCA: ``other-login``, ``never`` or ``unregisters``; or ``other-process``: what
it says of its process is another's, also in *moved*. With LAUNCHER it registers as that one. Uses the standard library
only.
"""

import contextlib
import json
import os
import socket
import struct
import sys

HEADER = struct.Struct("!BI")
HELLO = {"op": "hello", "protocol": 2, "role": "launcher", "name": ""}


def started(pid):
    """Return when a process began (field 22 of /proc/PID/stat)."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(") ")[2].split()[19])


class Wire:
    """A connection to the daemon at ``path``."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.stream = self.sock.makefile("rb")
        self.said = 0
        self.say(HELLO)

    def say(self, message):
        payload = json.dumps(message).encode()
        self.sock.sendall(HEADER.pack(0, len(payload)) + payload)

    def call(self, **message):
        """Return the reply to a request."""
        self.said += 1
        self.say({**message, "id": self.said})
        while True:
            reply = json.loads(self.stream.read(HEADER.unpack(self.stream.read(HEADER.size))[1]))
            if reply.get("re") == self.said:
                return reply


def main(run, login, variant, launcher="null"):
    other = 1  # it lives as long as the machine
    pid = other if variant == "other-process" else os.getpid()
    whose = {"pid": pid, "pid_started": started(pid)}
    if variant in ("other-login", "unregisters"):
        rca = Wire(f"{run}/rca.sock")
        said = {"login": "elsewhere"} if variant == "other-login" else {}
        print(rca.call(op="register", launcher=json.loads(launcher), **whose, **said), file=sys.stderr)
    cpa = Wire(f"{run}/cpa-0.sock")
    asked = {"size": 2, "login": login, "command": "nothing", **whose}
    got = cpa.call(op="allocate", key=os.urandom(16).hex(), **asked)
    mine = {"launcher": got["launcher"], "cookie": got["cookie"]}
    print(cpa.call(op="started", ranks=got["nodes"][0]["processors"], root="", **mine), file=sys.stderr)
    if variant == "other-process":
        print(cpa.call(op="moved", **mine, **whose), file=sys.stderr)
    if variant == "unregisters":
        print(rca.call(op="unregister"), file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        print(got["launcher"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
