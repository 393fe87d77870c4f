"""The keys that a node shares with the login processor, each derived from the mesh's master key. No I/O.

Each node and purpose has its own key, so that a compromised node can forge for itself alone (docs/security.md). A key
file has one key on each line, as 64 hexadecimal digits. The first key is used; the others are also accepted, for as
long as a change of keys takes.
"""

from __future__ import annotations

import os

from agents.wire.errors import AgentError
from agents.wire.seal import seal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

SIZE = 32  # bytes


class NoKey(AgentError):
    """A key file cannot be used."""

    code = "no_key"


def launch_key(master: bytes, mesh: str, node: str) -> bytes:
    """The key for the launch credentials of a node."""
    return _derive(master, "launch", mesh, node)


def beat_master(master: bytes, mesh: str) -> bytes:
    """The key from which an RCA derives every node's beat key; launch keys cannot be derived from it."""
    return _derive(master, "beat", mesh)


def beat_key(beats: bytes, node: str) -> bytes:
    """The key for the beats of a node and their acknowledgements; ``beats`` is the result of :func:`beat_master`."""
    return _derive(beats, "node", node)


def rca_key(beats: bytes, login: str) -> bytes:
    """The key with which the RCA of a login processor asks other RCAs whether they run."""
    return _derive(beats, "rca", login)


def _derive(key: bytes, *parts: str) -> bytes:
    # NUL separates the parts and occurs in none of them, so different parts never give the same text.
    return seal(key, b"\0".join(part.encode("utf-8") for part in ("redmesh", *parts)))


def as_file(keys: Sequence[bytes]) -> bytes:
    """The content of a key file with these keys."""
    return b"".join(key.hex().encode("ascii") + b"\n" for key in keys)


def from_file(content: bytes, path: str) -> List[bytes]:
    """The keys in a key file, the one to use first. Raises NoKey, which names ``path``."""
    try:
        keys = [bytes.fromhex(line) for line in content.decode("ascii").split()]
    except ValueError:
        keys = []
    if not keys or any(len(key) != SIZE for key in keys):
        raise NoKey(f"{path} holds no keys", "run mesh up: it writes the node's files anew")
    return keys


def read(path: str) -> List[bytes]:
    """The keys in the file at ``path``. Raises NoKey."""
    try:
        with open(path, "rb") as file:
            return from_file(file.read(1 << 16), path)
    except OSError as error:
        raise NoKey(f"{path}: {error.strerror}", "run mesh up: it writes the node's files anew") from None


class KeyFile:
    """A key file that is read again when it has been replaced. While it is unreadable, the keys stay as they were."""

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
        """The current keys."""
        stamp = self._look()
        if stamp != self._stamp and stamp != (0, 0):
            try:
                self._keys = read(self._path)
                self._stamp = stamp
            except NoKey:
                pass  # the file is being replaced; the next read finds it complete
        return self._keys
