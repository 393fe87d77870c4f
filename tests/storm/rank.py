"""What every rank of the storm runs: it takes a slot of its node, says that it began, waits, and says that it ended.

Arguments: the launch's token, the directory that all nodes share, the slots of a node, seconds, the manner.

A slot is a lock that the rank and everything that it forks hold for as long as they live. A node has as many slots as
processors, so a rank that finds none free shares a processor with another launch.
"""

import fcntl
import json
import os
import signal
import sys
import time

STRAY_S = 1200.0  # a stray that nobody kills ends by itself, so that a storm that is killed leaves nothing for ever


def write(path: str, content: dict[str, object]) -> None:
    """Write a file of JSON, whole or not at all."""
    with open(path + ".new", "w") as file:
        json.dump(content, file)
    os.rename(path + ".new", path)


def take_slot(directory: str, node: str, slots: int, token: str) -> int:
    """Lock a free slot of the node; -1, and a file in ``twice``, when there is none."""
    holders = []
    for slot in range(slots):
        fd = os.open(f"{directory}/slots/{node}.{slot}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holders.append(os.pread(fd, 200, 0).decode())
            os.close(fd)
            continue
        os.ftruncate(fd, 0)
        os.pwrite(fd, token.encode(), 0)
        os.set_inheritable(fd, True)
        return slot
    write(f"{directory}/twice/{token}", {"node": node, "holders": holders, "at": time.time()})
    return -1


def leave_stray(token: str) -> None:
    """Fork a process that has its own session, no parent of ours, and an empty environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            silent = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(silent, fd)
            os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, token, "stray"], {})
        os._exit(0)
    os.wait()


def main(words: list[str]) -> int:
    token = words[0]
    if words[1] == "stray":
        time.sleep(STRAY_S)
        return 0
    directory, slots, seconds, manner = words[1], int(words[2]), float(words[3]), words[4]
    if manner == "cleared" and "YOD_RANK" in os.environ:
        identity = [os.environ["YOD_RANK"], os.environ["YOD_NODE"], os.environ["YOD_LAUNCHER_ID"]]
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, *words, *identity], {})
    named = words[5:] or [os.environ[name] for name in ("YOD_RANK", "YOD_NODE", "YOD_LAUNCHER_ID")]
    rank, node, launcher = named
    if manner == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    slot = take_slot(directory, node, slots, f"{token}.{rank}")
    if manner == "stray":
        leave_stray(token)
    begun = f"{directory}/launches/{token}.{rank}.begun"
    write(begun, {"node": node, "slot": slot, "launcher": int(launcher), "at": time.time()})
    print(f"{token} {rank} begins", flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not os.path.exists(f"{directory}/launches/{token}.stop"):
        time.sleep(0.1)
    print(f"{token} {rank} ends", flush=True)
    write(f"{directory}/launches/{token}.{rank}.ended", {"at": time.time()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
