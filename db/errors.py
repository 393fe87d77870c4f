"""The base class of the database's errors: what failed, and what to do next.

``code`` is the word for it in the protocol (docs/protocol.md), ``exit_status`` the exit status of a command that fails
with it. Viewers import this module, so it imports nothing.
"""

from __future__ import annotations


class StoreError(Exception):
    """The base class; by itself, an internal error of ``db``."""

    code = "internal"
    exit_status = 125

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_message(self) -> dict[str, object]:
        """The ``error`` member of a reply."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit_status": self.exit_status}


#: The hint where no mesh has been created.
NO_MESH = "start the mesh: mesh up; on another login processor of one: its configuration says where (database)"


class DatabaseUnavailable(StoreError):
    """The database does not answer, or the connection was lost; the pending change may or may not have been
    committed.

    Never repeat the change blindly: repeat the request with its idempotency key.
    """

    code = "database"


class DatabaseDamaged(StoreError):
    """The file of an SQLite database does not hold what SQLite wrote: a disk fault, or another program's write."""

    code = "database"


def damage(place: str, text: str) -> DatabaseDamaged | None:
    """The error for the file at ``place`` if SQLite's error ``text`` says that it is damaged; otherwise None."""
    if "malformed" not in text and "not a database" not in text:
        return None
    return DatabaseDamaged(
        f"the system database ({place}) is damaged: {text}",
        "mesh down --force, move the file and its -wal and -shm away, mesh up makes a new one (without the history);"
        " sqlite3 FILE .recover saves what can be read",
    )


class SchemaError(StoreError):
    """There is no schema yet, or it is not the one that this version knows."""

    code = "database"


class TakenBesides(StoreError):
    """Processors that were recorded as free were not: a process wrote without the lock."""


class BadUrl(StoreError):
    """A malformed database URL."""

    code = "invalid"
    exit_status = 2


class Invalid(StoreError):
    """The request is invalid, whatever the state of the machine."""

    code = "invalid"


class NotEnough(StoreError):
    """Fewer processors are free than requested, or earlier requests wait (``waiting``).

    ``never``: waiting cannot help, because the machine is smaller than that. ``left``: what there is room for, in
    words.
    """

    code = "unavailable"

    def __init__(
        self, message: str, hint: str = "", *, free: int = 0, waiting: int = 0, never: bool = False, left: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.free, self.left = free, left
        self.waiting = waiting
        self.never = never


class Denied(StoreError):
    """A wrong cookie, or a request of another user."""

    code = "denied"


class GivenUp(StoreError):
    """The mesh has given up this boot id of the node: the node must clear itself and begin under a new one."""

    code = "given_up"


class Elsewhere(StoreError):
    """Another login processor's RCA receives the node's heartbeats, so its silence at this RCA does not count."""

    code = "elsewhere"


class Expired(StoreError):
    """The reservation, launcher or partition is gone."""

    code = "expired"


# Errors in a description of the machine.


class TopologyError(StoreError):
    """The description cannot belong to any machine; the message names the key."""

    code = "invalid"
    exit_status = 2
