"""Delivers post-backs for a CPA, in a process beside it: a slow receiver must not stop the CPA's event loop.

``python -P -m redmesh deliver`` has a socket to its CPA as standard input. It ends when the CPA closes the socket.
"""

import http.client
import json
import os
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agents.link import trust
from agents.link.client import Client
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL, Decoder
from agents.wire.messages import check_hello, hello
from redmesh.version import VERSION

AT_ONCE = 8
SOCKET_S = 5.0  # for connecting, and then for the reply
URL_S = 10.0  # for everything, however slowly the receiver answers


def main(_arguments: list[str]) -> int:
    """Deliver until the CPA closes its end; returns the exit status."""
    if os.environ.get("CPA_STATE"):
        trust.use_login(os.environ.get("CPA_MESH", ""), os.environ["CPA_STATE"])
    line = socket.socket(fileno=os.dup(0))
    answering = threading.Lock()

    def answer(message: Message) -> None:
        with answering:
            try:
                line.sendall(control(message))
            except OSError:
                os._exit(0)  # the CPA is gone: its successor delivers what is not confirmed

    def work(message: Message) -> None:
        try:
            deliver(message)
        except AgentError as error:
            answer({"re": message["id"], "error": error.as_message()})
        except (OSError, http.client.HTTPException, ValueError) as error:
            told = getattr(error, "strerror", None) or str(error) or type(error).__name__
            answer({"re": message["id"], "error": AgentError(told, code="not_delivered").as_message()})
        else:
            answer({"re": message["id"]})

    answer(hello("cpa"))
    pool, decoder = ThreadPoolExecutor(AT_ONCE), Decoder()
    greeted = False
    while data := line.recv(256 << 10):
        for kind, payload in decoder.feed(data):
            assert kind == CONTROL
            message = decode(payload)
            if greeted:
                pool.submit(work, message)
            else:
                check_hello(message)
                greeted = True
    os._exit(0)  # threads may still wait for receivers


def deliver(message: Message) -> None:
    """Deliver one post-back; returns when its receiver has acknowledged it. Raises AgentError, OSError, HTTPException
    or ValueError."""
    post_back: dict[str, Any] = message["post_back"]
    if message["kind"] == "url":
        _post(message["origin"], message["path"], message.get("ca", ""), post_back)
    elif message["kind"] == "node":
        with Client(message["address"], "cpa", SOCKET_S * 2) as client:
            client.call({"op": "post_back", "uid": message["uid"], "path": message["path"], "post_back": post_back})
    else:
        with Client(message["path"], "cpa", SOCKET_S, owner=message["uid"]) as client:
            client.call({"op": "post_back", "post_back": post_back})


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
