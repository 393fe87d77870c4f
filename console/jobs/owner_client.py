"""Sends requests to the owner of a job, over the socket beside the job's state object."""

from __future__ import annotations

import time
from typing import Any

from agents.job.start import ERRORS, SOCKET, beside
from agents.link.sockets import connect
from agents.wire.control import control, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, Decoder
from console.errors import ConsoleError
from redmesh.state import owned

#: Seconds for an owner to start, and to answer.
_BEGIN_S, _ANSWER_S = 15.0, 60.0
_LOOK_S = 0.05


class NoOwner(ConsoleError):
    """No process owns the job now."""

    exit_status = 1


def ask(path: str, op: str, **members: Any) -> dict[str, Any]:
    """Send the request ``op`` to the owner; return its answer. Raises NoOwner, or ConsoleError if it refuses."""
    answer = _exchange(path, {"op": op, "id": 1, **members}, _ANSWER_S)
    if not answer:
        _await_exit(path)
        raise NoOwner(f"the owner of {path} has exited", "mesh job resume goes on with the job")
    if "error" in answer:
        hint = str(answer.get("hint") or "mesh job show tells the job's state")
        raise ConsoleError(str(answer["error"]), hint, exit_status=1)
    return answer


def await_end(path: str) -> None:
    """Wait until the owner has finished the job or has exited. Raises NoOwner if the job has no owner."""
    _exchange(path, {"op": "wait", "id": 1}, None)


def _await_exit(path: str) -> None:
    deadline = time.monotonic() + _BEGIN_S
    while owned(path) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)  # poll: the owner is another session's process, whose end is seen by its lock


def _exchange(path: str, message: dict[str, Any], limit_s: float | None) -> dict[str, Any]:
    sock = _connected(path)
    try:
        sock.settimeout(limit_s)
        sock.sendall(control(message))
        decoder = Decoder()
        while True:
            data = sock.recv(65536)
            if not data:
                return {}
            for kind, payload in decoder.feed(data):
                if kind == CONTROL:
                    return decode(payload)
    except TimeoutError:
        raise ConsoleError(
            f"the owner of job {path} has not answered for {limit_s:g} s", "kill -CONT where it is stopped"
        ) from None
    except OSError:
        return {}  # the owner has exited
    finally:
        sock.close()


def _connected(path: str) -> Any:
    deadline = time.monotonic() + _BEGIN_S
    while True:
        try:
            return connect(beside(path, SOCKET), 5.0)
        except (OSError, AgentError):
            if not owned(path) or time.monotonic() > deadline:
                raise NoOwner(f"no process owns {path} now", "mesh job resume goes on with the job") from None
            time.sleep(_LOOK_S)  # an owner is starting or ending


def last_words(path: str) -> str:
    """The last 2,000 characters that the job's owners wrote to standard error; "" for none."""
    try:
        with open(beside(path, ERRORS), errors="replace") as file:
            return file.read()[-2000:].strip()
    except OSError:
        return ""
