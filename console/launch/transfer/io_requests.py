"""Descriptions of ranks' file requests for -d io and -d iomore."""

from __future__ import annotations

from agents.pct.files.remote_io import (  # fmt: skip
    ATTRIBUTES,
    CHANGES,
    CLOSE,
    CREATE_FILE,
    LINK,
    LIST,
    MAKE,
    OPEN,
    OPEN_FILE,
    OWN,
    PLACE,
    READ_AT,
    READ_DIRECTORY,
    READ_FILE,
    READ_LINK,
    REMOVE,
    RENAME,
    REQUEST,
    SET_ATTRIBUTES,
    STAGE_IN,
    STAGE_OUT,
    STAT,
    TRUNCATE,
    WRITE_AT,
    WRITE_FILE,
)
from agents.wire.control import decode
from agents.wire.errors import WireError
from redmesh.sanitise import clean
from redmesh.text import counted

_NAMED = {OPEN: "open", STAT: "stat", LIST: "list", STAGE_IN: "stage in", STAGE_OUT: "stage out"}
_DATA = {READ_AT: "read", WRITE_AT: "write"}
_MOUNTED = {
    OPEN_FILE: "open", CREATE_FILE: "create", MAKE: "make", REMOVE: "remove", RENAME: "rename", LINK: "link",
    READ_DIRECTORY: "list", READ_LINK: "read link", SET_ATTRIBUTES: "change", ATTRIBUTES: "look at",
}  # fmt: skip


def described(payload: bytes) -> tuple[str, bool]:
    """Return a description of a file request ("" for other requests), and whether only ``iomore`` prints it."""
    if len(payload) < 8 + REQUEST.size:
        return "", False
    channel = int.from_bytes(payload[4:8], "big")
    op, _number, offset, length = REQUEST.unpack_from(payload, 8)
    data = payload[8 + REQUEST.size :]
    if op in (READ_FILE, WRITE_FILE):
        return f"mount: {'read' if op == READ_FILE else 'write'} {counted(length, 'byte')} at {offset}", True
    if op in _MOUNTED:
        named = data[PLACE.size + (CHANGES.size if op == SET_ATTRIBUTES else 0) :].split(b"\0")
        path = " as ".join(clean(name.decode("utf-8", "backslashreplace")) or "." for name in named)
        return f"mount: {_MOUNTED[op]} {path}", op == ATTRIBUTES
    who = "staging" if channel >= OWN else f"file {channel}"
    if op in _DATA:
        return f"{who}: {_DATA[op]} {counted(length or len(data), 'byte')} at {offset}", True
    if op in _NAMED:
        try:
            asked = decode(data) if data else {}
        except WireError:
            return "", False
        path = f" {clean(str(asked['path']))}" if "path" in asked else ""
        mode = f" ({clean(str(asked['mode']))})" if "mode" in asked else ""
        return f"{who}: {_NAMED[op]}{path}{mode}", not path
    names = {CLOSE: "close", TRUNCATE: f"truncate to {offset}"}
    return (f"{who}: {names[op]}", False) if op in names else ("", False)
