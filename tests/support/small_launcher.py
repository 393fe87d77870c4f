"""A minimal launcher process: registers with the RCA, allocates, and sends heartbeats until standard input ends.

``python -m tests.support.small_launcher RUN SIZE [no-register] [no-beat] [finish-by-rca]
[waits]``; prints what it got as JSON.
Like yod it looks for its RCA and a CPA again, forever, when they go.
"""

import json
import os
import select
import sys
import time
from typing import Any

from agents.link.client import Client, Unreachable
from agents.linux.processes import start_time
from tests.support.allocations import allocation

ME = {"pid": os.getpid(), "pid_started": start_time(os.getpid())}


def register(run: str, launcher: int | None) -> Client:
    while True:
        try:
            client = Client(f"{run}/rca.sock", "launcher", 2.0)
            client.call({"op": "register", "launcher": launcher, **ME})
            return client
        except Unreachable:
            time.sleep(0.1)


def allocate(run: str, request: dict[str, Any]) -> dict[str, Any]:
    cpas = 0
    while True:
        try:
            with Client(f"{run}/cpa-{cpas % 2}.sock", "launcher", 20.0) as client:
                return client.call(request)
        except Unreachable:
            cpas += 1
            time.sleep(0.05)


def main(run: str, size: str, *flags: str) -> None:
    rca = None if "no-register" in flags else register(run, None)
    wait_s = 600.0 if "waits" in flags else 0.0
    got = allocate(run, allocation(int(size), pid=os.getpid(), wait_s=wait_s))
    if rca is not None:
        rca.tell({"op": "launcher", "launcher": got["launcher"]})
    print(json.dumps({**got, **ME}), flush=True)
    seq = 0
    while not select.select([sys.stdin], [], [], 0.3)[0]:
        seq += 1
        if rca is None or "no-beat" in flags:
            continue
        try:
            rca.tell({"op": "beat", "seq": seq})
        except Unreachable:
            rca = register(run, got["launcher"])
    if rca is not None:
        if "finish-by-rca" in flags:
            finish = {"op": "finish", "launcher": got["launcher"], "cookie": got["cookie"], "exit_status": 0}
            rca.call(finish)
        rca.call({"op": "unregister"})


if __name__ == "__main__":
    main(*sys.argv[1:])
