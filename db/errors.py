"""The root of the database's errors: what failed, and what to do next.

``code`` is the protocol's word for it (docs/protocol.md), ``exit_status`` what a command that dies of it ends with.
Imported by viewers, so it imports nothing.
"""

from __future__ import annotations


class StoreError(Exception):
    """The root; by itself, a fault inside this room."""

    code = "internal"
    exit_status = 125

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_message(self) -> dict[str, object]:
        """The ``error`` member of a reply."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit_status": self.exit_status}


#: What to do where no mesh has been.
NO_MESH = "start the mesh: mesh up; on another login processor of one: its configuration says where (database)"


class DatabaseUnavailable(StoreError):
    """The database does not answer, or went away; what was under way may have happened or not.

    Never repeat a change blindly after it: repeat the request under its idempotency key.
    """

    code = "database"


class DatabaseDamaged(StoreError):
    """The file of an SQLite database does not hold what SQLite wrote: a disk fault, or another program's write."""

    code = "database"


def damage(place: str, text: str) -> DatabaseDamaged | None:
    """The error for the file at ``place`` where SQLite's words ``text`` say that it is damaged; else None."""
    if "malformed" not in text and "not a database" not in text:
        return None
    return DatabaseDamaged(
        f"the system database ({place}) is damaged: {text}",
        "mesh down --force, move the file and its -wal and -shm away, mesh up makes a new one (without the history);"
        " sqlite3 FILE .recover saves what can be read",
    )


class SchemaError(StoreError):
    """There is no schema yet, or it is not the one this build knows."""

    code = "database"


class TakenBesides(StoreError):
    """Processors that were free by the books were not: somebody wrote without the lock."""


class BadUrl(StoreError):
    """A database URL that means nothing."""

    code = "invalid"
    exit_status = 2


class Invalid(StoreError):
    """The request is wrong, whatever the state of the machine."""

    code = "invalid"


class NotEnough(StoreError):
    """Fewer processors are free than asked for, or requests wait that came before (``waiting``).

    ``never``: no waiting will help, the machine is smaller than that. ``left``: what there is room for, in words.
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
    """A cookie that does not fit, or a request of somebody else's."""

    code = "denied"


class GivenUp(StoreError):
    """A node under a boot id that the mesh has given up: it has to clear itself, and to begin under another."""

    code = "given_up"


class Elsewhere(StoreError):
    """Another login processor's RCA hears the node: what this one makes of its silence is no news."""

    code = "elsewhere"


class Expired(StoreError):
    """The reservation, launcher or partition is gone."""

    code = "expired"


# What is wrong with a description of the machine.


class TopologyError(StoreError):
    """A description that cannot be one of any machine; the message names the key."""

    code = "invalid"
    exit_status = 2
