"""A client that asks a daemon much faster than it reads: ``python unread.py SOCKET slow|exits|hangs-up``.

``slow`` waits until nothing more is taken from it, then reads all answers and says whether they are right. The others
leave without them, when they have read a line: ``hangs-up`` keeps its socket until its standard input ends. What a
daemon reads at once is a multiple of a request's size, so that no frame is unfinished. Standard library only.
"""

import json
import socket
import struct
import sys
import threading
import time

ASKS = 60_000
HEADER = struct.Struct("!BI")


def frame(message: dict[str, object]) -> bytes:
    payload = json.dumps(message).encode()
    return HEADER.pack(0, len(payload)) + payload


def main(path: str, variant: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    stream = sock.makefile("rb")
    sock.sendall(frame({"op": "hello", "protocol": 2, "role": "launcher", "name": ""}))
    sent = 0

    def ask() -> None:
        nonlocal sent
        try:
            for number in range(1, ASKS + 1):
                sock.sendall(frame({"op": "nonsense", "id": number, "x": "x" * (88 - len(str(number)))}))
                sent = number
        except OSError:
            pass

    threading.Thread(target=ask, daemon=True).start()
    before = -1
    while before != sent < ASKS:  # until the sockets' buffers are full
        before = sent
        time.sleep(1.0)
    print("stuck" if sent < ASKS else "never stuck", flush=True)
    sys.stdin.readline()
    if variant == "slow":
        answers = [json.loads(stream.read(HEADER.unpack(stream.read(HEADER.size))[1])) for _ in range(1 + ASKS)]
        print([one.get("re") for one in answers[1:]] == list(range(1, ASKS + 1)), flush=True)
    elif variant == "hangs-up":
        sock.shutdown(socket.SHUT_RDWR)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
