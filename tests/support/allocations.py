"""The requests of a launcher that gets processors and gives them back; imports little, for small launchers."""

import os

from agents.linux.processes import start_time
from agents.wire.control import Message

#: The login processor of ``Daemons``.
LOGIN = "login1"


def allocation(size: int = 1, *, key: str = "", pid: int = 0, **more: object) -> Message:
    """Return an allocate request from this process (or from ``pid``) with a new key."""
    pid = pid or os.getpid()
    message: Message = {
        "op": "allocate",
        "key": key or os.urandom(16).hex(),
        "size": size,
        "login": LOGIN,
        "pid": pid,
        "pid_started": start_time(pid),
        "command": "test",
    }
    message.update(more)
    return message


def finish(launcher: Message, exit_status: int = 0) -> Message:
    """Return the finish request for ``launcher``, the reply to an allocate request."""
    return {
        "op": "finish",
        "launcher": launcher["launcher"],
        "cookie": launcher["cookie"],
        "exit_status": exit_status,
    }
