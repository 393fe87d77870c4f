"""Names that are looked up beside a loop, with a server of names that takes its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.link.loop import Loop
from agents.link.resolver import Names
from agents.wire.errors import WireError
from tests.support.waiting import PATIENCE_S

#: In a network and with a resolv.conf of its own: a server that answers when the loop has ticked ten times.
SCRIPT = """
import json, os, socket, sys, threading, time
from agents.link.loop import Loop
from agents.link.resolver import Names

PATIENCE_S = float(sys.argv[1])
waits, ticked = os.pipe()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
if os.fork() == 0:
    while True:
        asked, client = server.recvfrom(512)
        end = asked.index(b"\\0", 12) + 5
        known = asked[end - 4 : end - 2] == b"\\0\\1" and b"login" in asked
        record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\1\\0\\4" + bytes((10, 9, 8, 7)) if known else b""
        os.read(waits, 1)
        flags = b"\\x81\\x80" if b"login" in asked else b"\\x81\\x83"
        head = asked[:2] + flags + b"\\0\\1" + bytes((0, bool(record))) + bytes(4)
        server.sendto(head + asked[12:end] + record, client)
loop, ticks, told = Loop(), [], []
names = Names(loop, lambda: told.append(time.monotonic()))
began = time.monotonic()
seen = []
def tick():
    ticks.append(time.monotonic())
    if len(ticks) == 10:
        os.write(ticked, bytes(100))
    seen.append([names.address("login.site:7117", socket.AF_INET), names.address("nowhere.site:7117", socket.AF_INET)])
    if len(told) and time.monotonic() - told[0] > 0.5 or time.monotonic() - began > PATIENCE_S:
        loop.stop()
    else:
        loop.after(0.02, tick)
tick()
loop.run()
before = [at for at in ticks if at < told[0]]
print(json.dumps({"first": seen[0], "last": seen[-1], "before": len(before), "told": len(told),
                  "children": [
                      open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0]
                      for pid in open("/proc/self/task/1/children").read().split()]}))
"""


def test_an_address_is_none_to_look_up() -> None:
    names = Names(Loop())
    assert names.address("127.0.0.1:7117") == (2, ("127.0.0.1", 7117))
    assert names.address("[::1]:7117") == (10, ("::1", 7117, 0, 0))
    assert names.address("127.0.0.1:7117", 10) is None, "no address of that family"
    assert not names._asking, "for which no child is forked, again and again"
    with pytest.raises(WireError):
        names.address("nothing")


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own is root's")
def test_a_slow_server_of_names_holds_up_nobody(tmp_path: Path) -> None:
    """Meanwhile the loop goes on; the answer is told once; a name that there is not is none."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:30\n")
    prepare = (
        f'ip link set lo up; mount -t proc proc /proc; mount --bind {tmp_path}/resolv.conf /etc/resolv.conf; exec "$@"'
    )
    alone = ("unshare", "-mnp", "--fork", "--kill-child", "sh", "-c", prepare, "sh")
    words = [*alone, sys.executable, "-P", "-c", SCRIPT, str(PATIENCE_S / 2)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, env=environ)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["first"] == [None, None] and told["last"] == [[2, ["10.9.8.7", 7117]], None], told
    # a loop that waited for an answer would not tick, and nobody would answer
    assert told["told"] == 1 and told["before"] >= 10, told
    assert told["children"] and "Z" not in told["children"], "who looked names up is waited for"
