"""Groups of yod's caller that its ranks do not have, and the reverse.

On this machine ranks have the groups of their PCT, elsewhere those that each node's database gives the user. In system
mode they have the caller's, and a node says which ones its database does not give the user.
"""

from __future__ import annotations

import os

from agents.link.peer_groups import groups_of_peer
from agents.wire.caller_groups import MOST, of_members
from agents.wire.errors import WireError
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from agents.link.lean import socket

_SHOWN = 6


def difference(sock: socket.socket | None, members: Any = ()) -> str:
    """A line for people about the groups of ranks; "" if they are yod's, as far as that is known.

    ``sock``: a connection to a PCT of this machine; None if the ranks are on others. ``members``: those of the reply
    to *credential*.
    """
    primary = os.getegid()
    own = {primary, *os.getgroups()}
    if sock is None:
        try:
            travel = of_members(members)
        except WireError:  # a later CPA has another form for them
            return ""
        return _too_many(own - travel.all()) if travel is not None else _of_account(primary)
    pct = groups_of_peer(sock)
    if pct is None or len(pct.others) == MOST:  # Linux before 4.13, or perhaps more groups
        return ""
    theirs, ranks = pct.gid, pct.all()
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


def _too_many(left: Collection[int]) -> str:
    return f"ranks are not in {_names(left)}, as yod is: a launch takes along {MOST} groups at most" if left else ""


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
