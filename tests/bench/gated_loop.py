"""The floor: N processes forked, held by a gate, released, exec'd and reaped by one bare Python process.

    python tests/bench/gated_loop.py 1024 /bin/true

Gate as FINDINGS has it: a go pipe and an error pipe, both close-on-exec, 64 in flight.
"""

import os
import sys


def main(count: int, program: str) -> None:
    """Start ``count`` processes, all of them held before the first is let go."""
    started = []
    for _ in range(count):
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        error_read, error_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(go_write)
            if os.read(go_read, 1):
                os.execv(program, [program])
            os._exit(126)
        os.close(go_read)
        os.close(error_write)
        started.append((pid, go_write, error_read))
    for _, go, _ in started:
        os.write(go, b"g")
        os.close(go)
    for pid, _, error in started:
        os.read(error, 1)
        os.close(error)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
