"""A rank that speaks PMI-1 by hand: what it says stands in its arguments, what it is told goes to stdout."""

import os
import socket
import sys
import time

sock = socket.socket(fileno=int(os.environ["PMI_FD"]))
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
lines = sock.makefile("rw", newline="\n")


def ask(text: str) -> str:
    lines.write(text + "\n")
    lines.flush()
    return lines.readline().strip()


def init() -> None:
    assert ask("cmd=init pmi_version=1 pmi_subversion=1").endswith("rc=0")


def kvs() -> str:
    return ask("cmd=get_my_kvsname").partition("kvsname=")[2]


def value_of(answer: str) -> str:
    return answer.partition("value=")[2]


what = sys.argv[1]
if what == "fences":
    init()
    name, length, fences = kvs(), int(sys.argv[2]), int(sys.argv[3])
    for fence in range(fences):
        assert ask(f"cmd=put kvsname={name} key=k{rank} value={fence}-{rank}-{'x' * length}") == "cmd=put_result rc=0"
        assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
        for other in range(size):
            assert value_of(ask(f"cmd=get kvsname={name} key=k{other}")) == f"{fence}-{other}-{'x' * length}"
        assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    ask("cmd=finalize")
elif what == "names":
    init()
    if rank == size - 1:
        assert "rc=0" in ask("cmd=publish_name service=ocean port=tag#0$host$one two")
        assert "rc=-1" in ask("cmd=publish_name service=ocean port=other")
    assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    assert ask("cmd=lookup_name service=ocean").endswith("port=tag#0$host$one two")
    assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    if rank == 0:
        assert "rc=0" in ask("cmd=unpublish_name service=ocean")
    assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    assert "rc=-1" in ask("cmd=lookup_name service=ocean")
    ask("cmd=finalize")
elif what == "segment":  # as MPICH 5, which names the memory that its ranks share after PMI's name (FNV-1a)
    init()
    number = 2166136261
    for byte in kvs().encode():
        number = (number ^ byte) * 16777619 % 2**32
    path = f"/dev/shm/mpich_shm_{number:x}_0"
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    assert ask("cmd=barrier_in") == "cmd=barrier_out rc=0"
    print(path, flush=True)
    if sys.argv[2:] == ["abort"]:
        lines.write("cmd=abort exitcode=7\n")
        lines.flush()
    time.sleep(60)
elif what == "memory":  # as MPICH 5, whose ranks on one machine meet in its memory instead of a fence
    if rank != 1:
        init()
        print("waits", flush=True)
        time.sleep(60)
    time.sleep(0.5)
elif what == "spawn":
    init()
    if rank == 0:
        lines.write("mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\nendcmd\n")
        lines.flush()
        print(lines.readline().strip())
    ask("cmd=finalize")
elif what == "nonsense":
    if rank == 0:
        lines.write("GET / HTTP/1.0\n")
        lines.flush()
    time.sleep(60)
elif what == "absent":
    # the last rank, on the last node, ends when the others stand in the fence
    if rank < size - 1:
        init()
        print("waits", flush=True)
        ask("cmd=barrier_in")
elif what == "lost":
    init()
    print("waits", flush=True)
    time.sleep(60)
