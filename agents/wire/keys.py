"""The keys that a node and the login processor share, each made from the mesh's master key. Pure.

One a node and purpose, so that a broken node can forge for itself alone (docs/security.md). A key file holds one key a
line, as 64 hexadecimal digits: the first is in force, the others are still accepted (or already) while keys change.
"""

from __future__ import annotations

import os

from agents.wire.errors import AgentError
from agents.wire.seal import seal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

SIZE = 32  # bytes


class NoKey(AgentError):
    """A key file that cannot be used."""

    code = "no_key"


def launch_key(master: bytes, mesh: str, node: str) -> bytes:
    """Under which a node is shown that a launch was granted."""
    return _derive(master, "launch", mesh, node)


def beat_master(master: bytes, mesh: str) -> bytes:
    """From which an RCA makes every node's beat key; it says nothing about launch keys."""
    return _derive(master, "beat", mesh)


def beat_key(beats: bytes, node: str) -> bytes:
    """Under which a node's beats and their acknowledgements are; ``beats`` is :func:`beat_master`'s."""
    return _derive(beats, "node", node)


def rca_key(beats: bytes, login: str) -> bytes:
    """Under which the RCA of a login processor asks the others whether they are there."""
    return _derive(beats, "rca", login)


def _derive(key: bytes, *parts: str) -> bytes:
    # NUL stands between the parts and in none of them: no two lists of parts make the same text
    return seal(key, b"\0".join(part.encode("utf-8") for part in ("redmesh", *parts)))


def as_file(keys: Sequence[bytes]) -> bytes:
    """The content of a key file."""
    return b"".join(key.hex().encode("ascii") + b"\n" for key in keys)


def from_file(content: bytes, path: str) -> List[bytes]:
    """The keys in a key file, the one in force first. NoKey naming ``path``."""
    try:
        keys = [bytes.fromhex(line) for line in content.decode("ascii").split()]
    except ValueError:
        keys = []
    if not keys or any(len(key) != SIZE for key in keys):
        raise NoKey(f"{path} holds no keys", "run mesh up: it writes the node's files anew")
    return keys


def read(path: str) -> List[bytes]:
    """The keys in the file at ``path``. NoKey."""
    try:
        with open(path, "rb") as file:
            return from_file(file.read(1 << 16), path)
    except OSError as error:
        raise NoKey(f"{path}: {error.strerror}", "run mesh up: it writes the node's files anew") from None


class KeyFile:
    """A key file that is read again when it was replaced; while it cannot be read, what it held."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = self._look()
        self._keys = read(path)

    def _look(self) -> "Tuple[int, int]":
        try:
            found = os.stat(self._path)
            return found.st_ino, found.st_mtime_ns
        except OSError:
            return 0, 0

    def read(self) -> List[bytes]:
        """The keys as they are now."""
        stamp = self._look()
        if stamp != self._stamp and stamp != (0, 0):
            try:
                self._keys = read(self._path)
                self._stamp = stamp
            except NoKey:
                pass  # half a change; the next look finds it whole
        return self._keys
