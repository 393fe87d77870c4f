"""HTTP on a node's port, for one connection: read-only, for clients that send the token of the object."""

from __future__ import annotations

import hashlib
import hmac
import signal
import sqlite3
import time

from agents.objects.answers import LONGEST_WAIT_S, ask
from agents.objects.http_query import Answer, refused
from agents.wire.address import parse
from agents.wire.errors import AgentError
from redmesh.state import StateError, is_uuid
from redmesh.state_reader import StateReader

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

    from agents.objects.holder import Holder

_LONGEST, _GULP = 8192, 4096
_REQUEST_S = 10.0  # for the next request, so that an unknown client does not keep a process for longer
_ANSWER_S = int(LONGEST_WAIT_S) + 60  # for one reply
_REASONS = {200: "OK", 301: "Moved Permanently", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden"}


def serve(choose: "Callable[[str], Holder]", sock: Any) -> None:
    """Answer requests until the client closes; ``choose`` returns the objects of the first request. Raises OSError."""
    try:
        _serve(choose, sock)
    finally:
        signal.alarm(0)


def _serve(choose: "Callable[[str], Holder]", sock: Any) -> None:
    holder: "Optional[Holder]" = None
    data = b""
    while True:
        until = (
            time.monotonic() + _REQUEST_S
        )  # this limit holds for the whole request, so that slow clients do not extend it
        while b"\r\n\r\n" not in data:
            if (left_s := until - time.monotonic()) <= 0:
                return
            sock.settimeout(left_s)
            more = sock.recv(_GULP)
            if not more or len(data) + len(more) > _LONGEST:
                return
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        signal.alarm(_ANSWER_S)  # a user can make the files hang that a reply needs
        if holder is None:
            try:
                holder = choose(_uuid_in(head))
            except AgentError:
                told = _not_shown()
            else:
                told = answer_request(holder, head)
        else:
            told = answer_request(holder, head)
        lines = [f"HTTP/1.1 {told.status} {_REASONS.get(told.status, 'Not Found')}"]
        length = {} if told.status == 304 else {"Content-Length": str(len(told.body))}
        safe = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        lines += [f"{name}: {value}" for name, value in {**told.headers, **length, **safe}.items()]
        sock.settimeout(_REQUEST_S)
        sock.sendall("\r\n".join((*lines, "", "")).encode("latin-1", "replace") + told.body)


def answer_request(holder: Holder, head: bytes) -> Answer:
    """The reply to a request; ``head`` is the request without its empty line."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target = rest.partition(" ")[0]
    if method != "GET" or not target.startswith("/"):
        return refused(400, "a node answers GET alone", "/job/UUID, and /page, /tasks, /log below it")
    named = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    path, _, text = target.partition("?")
    query = _query(text)
    parts = path.strip("/").split("/")
    if parts[0] != "job" or not 2 <= len(parts) <= 3 or not is_uuid(parts[1]):
        return refused(404, "there is nothing at this address", "/job/UUID, and /page, /tasks, /log below it")
    token = query.pop("token", "") or headers.get("authorization", "").partition("Bearer ")[2]
    if not _may(holder, parts[1], token):
        return _not_shown()
    try:
        wait_s = min(float(query.pop("wait", "0")), LONGEST_WAIT_S)
    except ValueError:
        return refused(400, "wait is a number of seconds", "?wait=25")
    told = ask(holder, parts[1], parts[2] if len(parts) == 3 else "", query, headers.get("if-none-match", ""), wait_s)
    return _elsewhere(told, path) if told.status == 301 else told


def _uuid_in(head: bytes) -> str:
    parts = head.partition(b"?")[0].decode("latin-1").split(" ")[1:2]
    return (parts[0].split("/") + ["", "", ""])[2].strip() if parts else ""


def _not_shown() -> Answer:
    return refused(403, "this needs the token of the job", "mesh job show prints the address with it")


def _query(text: str) -> Dict[str, str]:
    """Parse ``a=1&b=2``; no value here needs an escape."""
    pairs: "Tuple[Tuple[str, str, str], ...]" = tuple(one.partition("=") for one in text.split("&") if one)
    return {name: value for name, _, value in pairs}


def _may(holder: Holder, uuid: str, token: str) -> bool:
    known = _digest_of(holder, uuid)
    return bool(known) and hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), known)


def _digest_of(holder: Holder, uuid: str) -> str:
    try:
        path = holder.answering(uuid)
        if not path:
            return holder.entry(uuid).token
        with StateReader(path) as job:
            token = job.meta("token")
        return hashlib.sha256(str(token).encode()).hexdigest() if token else ""
    except (StateError, sqlite3.Error, OSError):
        return ""


def _elsewhere(told: Answer, path: str) -> Answer:
    """A redirection to the HTTPS address of the object. It lacks the token, which the client sends again."""
    try:
        there = parse(told.headers["Location"])
    except AgentError:  # a node of the same machine has no port
        return refused(404, "the job has moved to a node that has no port", "mesh job show asks it")
    host = f"[{there.host}]" if ":" in there.host else there.host
    return Answer(301, {**told.headers, "Location": f"https://{host}:{there.port}{path}"}, told.body)
