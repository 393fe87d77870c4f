"""Ranks' requests for files in words, for -d io and -d iomore."""

from __future__ import annotations

from agents.pct.files.remote_io import (  # fmt: skip
    CLOSE,
    LIST,
    OPEN,
    OWN,
    READ_AT,
    REQUEST,
    STAGE_IN,
    STAGE_OUT,
    STAT,
    TRUNCATE,
    WRITE_AT,
)
from agents.wire.control import decode
from agents.wire.errors import WireError
from redmesh.sanitise import clean
from redmesh.text import counted

_NAMED = {OPEN: "open", STAT: "stat", LIST: "list", STAGE_IN: "stage in", STAGE_OUT: "stage out"}
_DATA = {READ_AT: "read", WRITE_AT: "write"}


def described(payload: bytes) -> tuple[str, bool]:
    """A request in words, and whether it is one of the many that move data. Empty for what is no rank's request."""
    if len(payload) < 8 + REQUEST.size:
        return "", False
    channel = int.from_bytes(payload[4:8], "big")
    op, _number, offset, length = REQUEST.unpack_from(payload, 8)
    data = payload[8 + REQUEST.size :]
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
