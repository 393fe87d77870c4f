"""Whether the kernel killed a process of a worker for lack of memory: the node's launch child has the evidence.

Standard library only, Python 3.9. docs/protocol.md *Files*, operation 30.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resource import struct_rusage

    from agents.yodio import yodio
else:
    import yodio

_OUT_OF_MEMORY = 30  # operation (docs/protocol.md)
#: Seconds in which the launch child must answer; without an answer there is no evidence.
_ANSWER_S = 5.0


def out_of_memory(pid: int, status: int, used: struct_rusage) -> str:
    """The evidence, for people, that the kernel killed the process or its child; "" if there is none.

    ``status`` and ``used``: as wait4(2) has them. The process has been reaped, and was not killed by its worker.
    """
    itself = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    # a shell exits so after its child was killed
    if not itself and not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 128 + signal.SIGKILL):
        return ""
    try:
        channel = yodio.Channel(_ANSWER_S)
    except OSError:
        return ""
    try:
        asked = channel.send(_OUT_OF_MEMORY, used.ru_maxrss << 10, int(itself), pid.to_bytes(4, "big"))
        return channel.wait(asked)[1].decode()
    except OSError:
        return ""
    finally:
        channel.close()
