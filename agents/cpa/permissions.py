"""Permissions: decided from the uid that the kernel reports for the peer, never from the message."""

import pwd
import time

from agents.wire.errors import AgentError

NAME_HOLDS_S = 60.0
MOST_NAMES = 10_000
_names: dict[int, tuple[str, float]] = {}


class Denied(AgentError):
    """The requester may not do this."""

    code = "denied"


class Rights:
    """The mesh's owner, its administrators and the accounts of its batch system.

    root and the owner, who runs these daemons and owns the database, may do everything.
    """

    def __init__(self, owner: int, admins: frozenset[str], batch_accounts: frozenset[str]) -> None:
        self._owner = owner
        self._admins = admins
        self._batch_accounts = batch_accounts

    def is_owner(self, uid: int) -> bool:
        """True if ``uid`` is root or runs this mesh."""
        return uid in (0, self._owner)

    def is_admin(self, uid: int) -> bool:
        """True if ``uid`` administers the mesh."""
        return self.is_owner(uid) or user_name(uid) in self._admins

    def is_batch(self, uid: int) -> bool:
        """True if ``uid`` is the batch system."""
        return self.is_admin(uid) or user_name(uid) in self._batch_accounts

    def need_daemon(self, uid: int, op: str) -> None:
        """Raise Denied unless one of the mesh's own daemons asks."""
        if not self.is_owner(uid):
            raise Denied(f"{op} is for the mesh's own daemons, not for {user_name(uid)}")

    def need_admin(self, uid: int, op: str) -> None:
        """Raise Denied unless an administrator asks."""
        if not self.is_admin(uid):
            raise Denied(
                f"{op} is for administrators, and {user_name(uid)} is none",
                "ask one, or have the account named in the configuration (admins)",
            )

    def need_batch(self, uid: int, op: str) -> None:
        """Raise Denied unless the batch system asks."""
        if not self.is_batch(uid):
            raise Denied(
                f"{op} is for the batch system, and {user_name(uid)} is not its account",
                "have the account named in the configuration (batch_accounts)",
            )


def user_name(uid: int) -> str:
    """The account's name, or its number if it has none. Looked up again every minute (a directory may be remote)."""
    name, until = _names.get(uid, ("", 0.0))
    now = time.monotonic()
    if now >= until:
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        if len(_names) > MOST_NAMES:
            _names.clear()
        _names[uid] = (name, now + NAME_HOLDS_S)
    return name


def account_name(user: str) -> str:
    """The account for ``user``, a name or a uid; a uid without an account stays a number. Raises AgentError."""
    try:
        uid_of(user)
    except AgentError:
        if not (user.isascii() and user.isdigit()):
            raise
        if len(user) > 10 or int(user) >= (1 << 32) - 1:
            text = f"{user[:64]} is too large for a user id (4294967294 is the largest)"
            raise AgentError(text, code="invalid") from None
        return user_name(int(user))
    return user


def uid_of(user: str) -> int:
    """The uid of an account. Raises AgentError for an unknown name."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise AgentError(f"no account is called {user[:64]!r}", code="invalid") from None
