"""Groups of yod's caller that its ranks do not have, and the reverse.

On this machine ranks have the groups of their PCT, elsewhere those that each node's database gives the user.
"""

from __future__ import annotations

import os

from agents.link.lean import socket
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_SO_PEERGROUPS = 59  # asm-generic/socket.h
_MOST = 256  # groups that Python's getsockopt has room for
_SHOWN = 6


def difference(sock: socket.socket | None) -> str:
    """A line for people about the groups of ranks; "" if they are yod's, as far as that is known.

    ``sock``: a connection to a PCT of this machine; None if the ranks are on others.
    """
    primary = os.getegid()
    own = {primary, *os.getgroups()}
    if sock is None:
        return _of_account(primary)
    try:
        theirs = int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[8:], "little")
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST)
    except OSError:  # more groups, or Linux before 4.13
        return ""
    ranks = {theirs, *(int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))}
    why = "ranks have the groups of the shell that started the mesh"
    if own - ranks:
        return (
            f"ranks are not in {_names(own - ranks)}, as yod is: {why} (mesh down; mesh up starts it with this one's)"
        )
    if ranks - own:
        return f"ranks are in {_names(ranks - own)}, and yod is not: {why}"
    if theirs != primary:
        return f"the primary group of ranks is {_name(theirs)}, yod's is {_name(primary)}: {why}"
    return ""


def _of_account(primary: int) -> str:
    import pwd  # a look-up may ask LDAP

    try:
        account = pwd.getpwuid(os.getuid()).pw_gid
    except KeyError:
        return ""
    if account == primary:
        return ""
    told = f"the primary group here is {_name(primary)} (newgrp, sg), that of this account {_name(account)}"
    return f"{told}: ranks have the groups that each node's own database gives the user"


def _names(groups: Collection[int]) -> str:
    names = [_name(group) for group in sorted(groups)[:_SHOWN]]
    more = f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    return f"group{'s' if len(groups) > 1 else ''} {', '.join(names)}{more}"


def _name(group: int) -> str:
    import grp

    try:
        return clean(grp.getgrgid(group).gr_name)
    except KeyError:
        return str(group)
