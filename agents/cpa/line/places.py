"""Where a request's processors are posted back: its connection, a Unix socket, a node's PCT, or an HTTPS URL."""

import os
from collections.abc import Collection
from typing import NamedTuple

from agents.wire.errors import AgentError

CONNECTION = "connection"
LONGEST = 255  # bytes; the width of the column


class Place(NamedTuple):
    """A place outside of the request's connection. ``node`` is empty for a socket on the login processor."""

    kind: str  # socket, node or url
    node: str
    path: str  # of the Unix socket; for a URL the part behind the host
    origin: str = ""  # https://HOST:PORT


def read_place(text: str) -> Place:
    """Parse ``unix:PATH``, ``node:NAME:PATH`` or ``https://HOST[:PORT]/PATH``. Raises AgentError."""
    if len(text.encode("utf-8", "replace")) > LONGEST:
        raise AgentError(f"request: post_back has at most {LONGEST} bytes", code="invalid")
    kind, _, rest = text.partition(":")
    if kind == "https":
        origin, path = _split_url(text)
        return Place("url", "", path, origin)
    node = ""
    if kind == "node":
        node, _, rest = rest.partition(":")
    if (kind != "unix" and not node) or not rest.startswith("/") or "\0" in rest or os.path.normpath(rest) != rest:
        raise AgentError(
            f"request: nothing can be posted back to {text[:80]!r}",
            "post_back is connection, unix:/PATH, node:NAME:/PATH or https://HOST/PATH",
            code="invalid",
        )
    return Place("node" if node else "socket", node, rest)


def read_origin(text: str) -> str:
    """An entry of the site's allow-list, ``https://HOST[:PORT]``, in the form that ``Place.origin`` has. Raises
    AgentError."""
    origin, path = _split_url(text)
    if path != "/":
        raise AgentError(f"{text[:80]!r} has a path", "https://HOST or https://HOST:PORT is one", code="invalid")
    return origin


def check_place(text: str, *, here: bool, allowed: Collection[str]) -> None:
    """Raise AgentError unless something may be posted back there.

    ``here``: the requester is a process of this login processor. ``allowed``: what ``read_origin`` returned for each
    entry of the site's allow-list.
    """
    if text == CONNECTION:
        return
    place = read_place(text)
    if place.kind == "socket" and not here:
        raise AgentError(
            "request: unix:PATH is for processes on this login processor",
            "node:NAME:PATH is a socket on a node",
            code="invalid",
        )
    if place.kind == "url" and place.origin not in allowed:
        raise AgentError(
            f"request: {place.origin} is not in post_back_urls of this mesh",
            "ask the administrator, or use another post_back",
            code="denied",
        )


def _split_url(text: str) -> tuple[str, str]:
    """``https://HOST:PORT`` and the rest of a URL; strict, because two readers of a URL must not see two hosts."""
    scheme, _, rest = text.partition("://")
    host_port, slash, path = rest.partition("/")
    host, colon, port = host_port.partition(":")
    port_ok = not colon or (port.isascii() and port.isdigit() and 0 < int(port) < 65536 and port[0] != "0")
    name_ok = host.isascii() and all(label.replace("-", "a").isalnum() for label in host.split("."))
    path_ok = path.isascii() and path.isprintable() and not set(' "<>\\^`{|}#') & set(path)
    if scheme != "https" or not (host and name_ok and port_ok and path_ok):
        raise AgentError(
            f"{text[:80]!r} is no URL for post-backs",
            "https://HOST[:PORT]/PATH is one: no user, no password, no fragment, no IPv6 address",
            code="invalid",
        )
    return f"https://{host.lower()}:{int(port or 443)}", slash + path if slash else "/"
