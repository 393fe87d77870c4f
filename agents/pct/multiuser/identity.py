"""The user of a launch in system mode: the launch child acts as that user, and can return to root.

Real and effective uid are the user's; only the saved uid is 0. So every file is opened with the user's rights, and an
exec gives up the saved uid too (execve(2) copies the effective uid to it), for ranks, debuggers and helpers alike. With
a saved uid of 0, the user can neither trace this process nor read its memory.
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import stat

from agents.pct.errors import LoadFailed
from agents.pct.images.ram_disk import user_directory
from redmesh.sanitise import clean

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, TypeVar

    from agents.wire.caller_groups import CallerGroups

    Result = TypeVar("Result")

_SHOWN = 6  # groups that a line names
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class User:
    """A user on this node: ``gid`` is the primary group, ``groups`` are the supplementary ones.

    ``account_gid`` is the primary group of the account, whatever group a launch has.
    """

    __slots__ = ("account_gid", "gid", "groups", "name", "uid")

    def __init__(self, uid: int, gid: int, name: str, groups: List[int]) -> None:
        self.uid, self.gid, self.name, self.groups = uid, gid, name, groups
        self.account_gid = gid

    def take(self, caller: CallerGroups) -> str:
        """Have the groups of a launch's caller, as far as this account is in them; returns a line for people about
        those that it is not in, or ""."""
        own = {self.gid, *self.groups}
        refused = sorted(caller.all() - own)
        self.groups = [group for group in caller.others if group in own]
        if caller.gid in own:
            self.gid = caller.gid
        if not refused:
            return ""
        primary = f"; the primary group of these ranks is {_group_name(self.gid)}" if caller.gid not in own else ""
        names = ", ".join(map(_group_name, refused[:_SHOWN]))
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        word = "groups" if len(refused) > 1 else "group"
        return (
            f"ranks are not in {word} {names}{more}, as yod is: "
            f"the user database there does not have {self.name} in {'them' if len(refused) > 1 else 'it'}{primary}"
        )

    def become(self) -> None:
        """Act as this user from now on. Raises LoadFailed if any part of it fails."""
        try:
            os.setresuid(0, 0, 0)
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            _drop_inheritable()
            os.setresuid(self.uid, self.uid, 0)
        except OSError as error:
            raise LoadFailed(f"cannot become uid {self.uid}: {error.strerror}", "node") from None
        # Verify the result: unchecked failures of these calls have caused root exploits elsewhere.
        there = os.getresuid(), os.getresgid(), sorted(os.getgroups())
        if there != ((self.uid, self.uid, 0), (self.gid,) * 3, sorted(set(self.groups))):
            raise LoadFailed(f"could not become uid {self.uid}: {there}", "node")

    def become_for_good(self) -> None:
        """Become this user without a way back. Raises LoadFailed if any part of it fails."""
        self.become()
        try:
            os.setresuid(0, 0, 0)
            os.setresuid(self.uid, self.uid, self.uid)
        except OSError as error:
            raise LoadFailed(f"cannot become uid {self.uid}: {error.strerror}", "node") from None
        if os.getresuid() != (self.uid,) * 3:
            raise LoadFailed(f"could not become uid {self.uid}: {os.getresuid()}", "node")

    def as_root(self, work: "Callable[[], Result]") -> "Result":
        """Call ``work`` as root, then become the user again. The process exits if that fails."""
        os.setresuid(-1, 0, -1)
        try:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            os.setgroups([])
            return work()
        finally:
            try:
                self.become()
            # a caller that handled this would continue as root; the PCT cleans up after a dead launch child
            except LoadFailed:
                os._exit(70)

    def make_place(self, place: str) -> None:
        """Create the user's directory in the RAM disk or another place (agents/pct/images/ram_disk.py), as root,
        because nobody else may take its name. Raises OSError."""
        path = user_directory(place, self.uid)
        for _ in range(3):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                found = os.lstat(path)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == self.uid:
                    return
                if found.st_uid == 0 and stat.S_ISDIR(found.st_mode):
                    _give(path, self.uid, self.account_gid)  # we were killed between the two calls below
                    return
                # it belongs to another user, in a directory open to all
                os.rename(path, f"{path}.{os.urandom(4).hex()}")
                continue
            _give(path, self.uid, self.account_gid)
            return


def _group_name(group: int) -> str:
    try:
        return f"{clean(grp.getgrgid(group).gr_name)} ({group})"
    except KeyError:
        return str(group)


def _give(path: str, uid: int, gid: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == 0:
            os.fchown(fd, uid, gid)
    finally:
        os.close(fd)


def _drop_inheritable() -> None:
    # Ambient and inheritable capabilities would survive an exec; while a saved uid is 0 the kernel keeps them.
    if _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 and ctypes.get_errno() != 22:
        raise OSError(ctypes.get_errno(), "ambient capabilities stay")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    if _libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be read")
    data[2] = data[5] = 0
    if _libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "inheritable capabilities stay")


def look_up(uid: int, node: str, *, root_allowed: bool = False) -> User:
    """The user with that uid in this node's name service. Raises LoadFailed."""
    if uid == 0 and not root_allowed:
        raise LoadFailed(
            f"{node}: launches of root are refused", "program", hint="allow_root in the configuration permits them"
        )
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise LoadFailed(f"{node}: there is no user with uid {uid} here", "node") from None
    return User(uid, entry.pw_gid, entry.pw_name, sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
