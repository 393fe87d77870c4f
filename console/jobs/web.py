"""``mesh job serve``: jobs of this host over HTTP on loopback (agents/objects/http_query.py)."""

from __future__ import annotations

import hmac
import os
import secrets
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agents.objects.changes import wait_for_change
from agents.objects.http_query import Answer, answer, refused
from console.jobs.objects import summary, uuids
from redmesh.sanitise import clean
from redmesh.state import is_uuid, job_path

#: The longest time that a watcher may wait for a change.
_LONGEST_WAIT_S = 60.0


#: Answers a question about a job on another host. Arguments: UUID, path below the job, query, the client's ETag,
#: seconds to wait for a change.
Elsewhere = Callable[[str, str, dict[str, str], str, float], Answer]


def server(directory: str, port: int, elsewhere: Elsewhere) -> tuple[ThreadingHTTPServer, str]:
    """Make an HTTP server on loopback for the objects in ``directory`` and on other hosts (``elsewhere``).

    Returns the server, and the token that requests need. Raises OSError.
    """
    token = secrets.token_urlsafe(24)

    class Handler(_Handler):
        pass

    Handler.directory, Handler.token, Handler.elsewhere = directory, token, staticmethod(elsewhere)
    return _Server(("127.0.0.1", port), Handler), token


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of an error in one line. That a client leaves, or sends nothing, is none."""
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            print(f"mesh: a request failed: {type(error).__name__}: {clean(str(error))}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    """A connection. Other users of this machine can reach the port, but get nothing without the token."""

    directory = token = ""
    elsewhere: Elsewhere
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "redmesh", ""
    timeout = 90

    def do_GET(self) -> None:
        """Answer a GET request."""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if not self._may(query):
            self._send(refused(403, "this needs the token that mesh job serve printed", "?token=… or a Bearer header"))
            return
        parts = url.path.strip("/").split("/")
        if parts == [""]:
            self._send(self._list())
        elif parts[0] == "job" and 2 <= len(parts) <= 3 and is_uuid(parts[1]):
            self._send(self._of_job(parts[1], parts[2] if len(parts) == 3 else "", query))
        else:
            self._send(refused(404, "there is nothing at this address", "/job/UUID, and /page, /tasks, /log below it"))

    def _may(self, query: dict[str, str]) -> bool:
        # Accept only these host names: a web page whose own name resolves to 127.0.0.1 must not get answers.
        host = self.headers.get("Host", "").rpartition(":")[0]
        given = query.get("token") or self.headers.get("Authorization", "").removeprefix("Bearer ")
        return host in ("127.0.0.1", "localhost") and hmac.compare_digest(given.encode(), self.token.encode())

    def _of_job(self, uuid: str, what: str, query: dict[str, str]) -> Answer:
        path, known = job_path(self.directory, uuid), self.headers.get("If-None-Match", "")
        try:
            wait_s = min(float(query.get("wait", "0")), _LONGEST_WAIT_S)
            if not os.path.exists(path):
                return self.elsewhere(uuid, what, query, known, wait_s)
            if known and wait_s > 0:
                wait_for_change(path, known, wait_s)
        except ValueError:
            return refused(400, "wait is a number of seconds", "?wait=25")
        return answer(path, what, query, known)

    def _list(self) -> Answer:
        import json

        found = []
        for uuid in uuids(self.directory):
            try:
                told = summary(job_path(self.directory, uuid)).as_json()
            except Exception as error:
                told = {"uuid": uuid, "error": getattr(error, "message", str(error))}
            found.append(told)
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(found).encode())

    def _send(self, reply: Answer) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if reply.status != 304:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the address contains the token."""
