"""Sends a tool that a node lacks (py-spy) from yod's machine down the tree, in pieces."""

from __future__ import annotations

import base64
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop

_PIECE = 192 << 10
_BETWEEN_S = 0.002  # lets output and exits pass between the pieces
_LARGEST = 64 << 20


class ToolTransfer:
    """Sends tools by ``down(message)``. Only tools in ``paths``, which observers named, are sent."""

    def __init__(self, loop: Loop, down: Callable[[dict[str, Any]], None]) -> None:
        self._loop, self._down = loop, down
        self.paths: dict[str, str] = {}
        self._under_way: set[str] = set()

    def wanted(self, name: str) -> None:
        """Send the tool ``name``, which a node lacks."""
        if name in self._under_way:
            return
        path = self.paths.get(name, "")
        try:
            data = _read(path)
        except OSError as error:
            self._fail(name, f"{name} beside yod cannot be read: {error.strerror}")
            return
        if not data:
            self._fail(name, f"there is no {name} beside yod")
            return
        import hashlib

        self._under_way.add(name)
        self._send(name, data, hashlib.sha256(data).hexdigest(), 0)

    def _send(self, name: str, data: bytes, digest: str, offset: int) -> None:
        piece = base64.b64encode(data[offset : offset + _PIECE]).decode("ascii")
        self._down({"op": "tool", "name": name, "size": len(data), "digest": digest, "offset": offset, "data": piece})
        if offset + _PIECE < len(data):
            self._loop.after(_BETWEEN_S, lambda: self._send(name, data, digest, offset + _PIECE))
        else:
            self._under_way.discard(name)

    def _fail(self, name: str, why: str) -> None:
        self._down({"op": "tool", "name": name, "size": 0, "digest": "", "offset": 0, "data": "", "error": why})


def _read(path: str) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        # Nodes will run the file as this user, so other users must not be able to write it.
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022 or found.st_size > _LARGEST:
            return b""
        return file.read()
