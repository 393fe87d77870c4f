"""Delivers post-backs for a CPA, in a process beside it: a slow receiver must not stop the CPA's event loop.

``python -P -m redmesh deliver`` has a socket to its CPA as standard input. It ends when the CPA closes the socket.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from typing import Any, NoReturn

from agents.link import trust
from agents.link.client import Client
from agents.linux import prctl
from agents.linux.ready import ready
from agents.pct.node.post_backs import hand_over
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, Decoder
from agents.wire.messages import check_hello, hello
from redmesh.version import VERSION

SOCKET_S = 5.0  # for connecting to a URL, and then for each read
NODE_S = 15.0  # for a node's PCT, which gives up after 12 s
URL_S = 10.0  # for everything, however slowly the receiver answers
ATTEMPT_S = 25.0  # for an attempt of any kind
LOOK_S = 1.0  # between looks at deliveries that have ended or take too long


def main(_arguments: list[str]) -> int:
    """Deliver until the CPA closes its end; returns the exit status.

    Each delivery has a process of its own, which in system mode becomes the requester (agents/pct/node/post_backs.py).
    A user who stops it, or whose file system never answers, delays nobody else.
    """
    if os.environ.get("CPA_STATE"):
        trust.use_login(os.environ.get("CPA_MESH", ""), os.environ["CPA_STATE"])
    line = socket.socket(fileno=os.dup(0))
    line.sendall(control(hello("cpa")))
    decoder, greeted = Decoder(), False
    under_way: dict[int, float] = {}  # a child's pid, and when it is killed
    while True:
        woken = ready(line.fileno(), seconds=LOOK_S if under_way else None)
        _reap(under_way)
        if not woken:
            continue
        data = line.recv(256 << 10)
        if not data:
            return 0
        for kind, payload in decoder.feed(data):
            assert kind == CONTROL
            message = decode(payload)
            if not greeted:
                check_hello(message)
                greeted = True
                continue
            parent, pid = os.getpid(), os.fork()
            if not pid:
                _work(line, message, parent)
            under_way[pid] = time.monotonic() + ATTEMPT_S


def _reap(under_way: dict[int, float]) -> None:
    for pid, until in list(under_way.items()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del under_way[pid]
        elif time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)


def _work(line: socket.socket, message: Message, parent: int) -> NoReturn:
    """The whole life of a child: it delivers, and answers the CPA by one write, which nothing can divide.

    It dies with its parent, which limits its time, until it becomes another user: the kernel forgets it then.
    """
    prctl.die_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    reply: Message = {"re": message["id"]}
    try:
        deliver(message)
    except AgentError as error:
        reply["error"] = error.as_message()
    except (OSError, http.client.HTTPException, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reply["error"] = AgentError(told, code="not_delivered").as_message()
    finally:
        try:
            line.sendall(control(reply))
        finally:
            os._exit(0)


def deliver(message: Message) -> None:
    """Deliver one post-back; returns when its receiver has acknowledged it. Raises AgentError, OSError, HTTPException
    or ValueError."""
    post_back: dict[str, Any] = message["post_back"]
    if message["kind"] == "url":
        _post(message["origin"], message["path"], message.get("ca", ""), post_back)
    elif message["kind"] == "node":
        with Client(message["address"], "cpa", NODE_S) as client:
            client.call({"op": "post_back", "uid": message["uid"], "path": message["path"], "post_back": post_back})
    else:
        hand_over(message["path"], message["uid"], post_back, "cpa", os.uname().nodename)


def without_secrets(post_back: Message) -> Message:
    """A post-back for a URL: the requester gets the cookie by ``collect``, from a CPA."""
    placed = [
        {
            "launcher": one["launcher"],
            "pending_s": one["pending_s"],
            "nodes": [{"name": node["name"], "processors": node["processors"]} for node in one["nodes"]],
        }
        for one in post_back["placed"]
    ]
    shown: Message = {key: post_back[key] for key in ("post_back", "sequence", "missing", "error") if key in post_back}
    return {**shown, "placed": placed}


def _post(origin: str, path: str, ca_file: str, post_back: Message) -> None:
    # http.client follows no redirects and uses no proxies, and nothing here adds credentials.
    host, _, port = origin.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cafile=ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    connection = http.client.HTTPSConnection(host, int(port), timeout=SOCKET_S, context=context)
    # A receiver that sends a byte now and then never lets the time-out of a single read pass.
    limit = threading.Timer(URL_S, lambda: connection.sock and connection.sock.shutdown(socket.SHUT_RDWR))
    limit.daemon = True
    limit.start()
    try:
        body = json.dumps(without_secrets(post_back)).encode()
        key = f"{post_back['post_back']}.{post_back['sequence']}"
        headers = {"Content-Type": "application/json", "User-Agent": f"redmesh/{VERSION}", "Idempotency-Key": key}
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    except ssl.SSLCertVerificationError as error:
        raise AgentError(
            f"{origin}: its certificate is refused: {error.verify_message}", code="not_delivered"
        ) from None
    finally:
        limit.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise AgentError(f"{origin} answered with status {status}", code="not_delivered")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
