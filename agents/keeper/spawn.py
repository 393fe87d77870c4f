"""Starts daemons: CPA and RCA by exec, PCTs by forking the keeper, whose memory they share."""

from __future__ import annotations

import os

from agents.link.lean import signal
from agents.linux import ending
from agents.linux.batch_signals import ROWS
from agents.pct.node.daemon import serve
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, NoReturn

    from redmesh.settings.keeper_file import KeeperFile

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
#: Bytes of a file that are searched for its last line, and the longest part of the line that is reported.
_TAIL, _LONGEST = 4096, 300


def spawn_program(arguments: List[str], errors: str) -> int:
    """Start the daemon ``arguments`` in its own session with stderr in the file ``errors``. Returns its pid.

    Only the login processor's keeper does this: Python 3.9 and 3.10, which nodes may have, do not know ``-P``.
    """
    from redmesh.start_command import start_command  # not part of the agents' archive on nodes

    command = [*start_command(arguments[0]), *arguments[1:]]
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, errors, _APPEND, 0o600),
        ],
        setsid=True,
        # until it expects them (agents/linux/ending.py)
        setsigmask=[row.number for row in ROWS] if ending.in_job() else [],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP],
    )


def fork_pct(file: KeeperFile, node: str, errors: str, let_go: Callable[[], None]) -> int:
    """Fork the PCT of ``node``; ``let_go`` releases the keeper's resources in it. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        _be_pct(file, node, errors, let_go)
    return pid


def _be_pct(file: KeeperFile, node: str, errors: str, let_go: Callable[[], None]) -> NoReturn:
    status = 70
    try:
        # Until its own loop handles them: the keeper's handler would swallow a request to end.
        if ending.in_job():
            ending.block()
        else:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
        let_go()
        os.setsid()
        detach_stdio(errors)
        serve(file, node)
        status = 0
    except AgentError as error:
        _say(f"{node}: {error.message}")
        status = error.exit_status
    except Exception as error:
        _say(f"{node}: {error!r}")
    finally:
        os._exit(status)


def _say(text: str) -> None:
    os.write(2, f"pct {text}\n".encode("utf-8", "backslashreplace"))


def detach_stdio(errors: str) -> None:
    """Redirect stdin and stdout to /dev/null, and stderr to the file ``errors``."""
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(errors, _APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    for fd in (null, log):
        if fd > 2:
            os.close(fd)


def size_of(errors: str) -> int:
    """The size of the file ``errors``."""
    try:
        return os.stat(errors).st_size
    except OSError:
        return 0


def last_words(errors: str, since: int, name: str = "") -> str:
    """The last line of the file ``errors`` after the offset ``since``; with ``name``, the last line of that node's
    PCT."""
    try:
        with open(errors, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    before = f"pct {name}: " if name else ""
    said = [line[len(before) :].strip() for line in lines if line.startswith(before) and line.strip()]
    return said[-1][:_LONGEST] if said else ""
