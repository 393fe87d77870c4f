"""Which login processor a request comes from; requests may not reach another side of the machine (row A10).

A peer on a Unix socket is on this login processor, whatever it says; a daemon of another one shows a certificate. A
host may stand for several login processors (service nodes whose PCTs listen here, or a simulated machine). A request
there may say from which one it comes.
"""

from collections.abc import Iterable

from agents.cpa.logins.processes import MAX_PID
from agents.cpa.permissions import Denied
from agents.wire import caller_groups
from agents.wire.address import Peer
from agents.wire.control import Message
from agents.wire.errors import AgentError, Refusal
from db.allocation import finish
from db.allocation.free import Machine
from db.errors import Invalid
from db.store.store import Store

#: Operations that come from a login processor and are limited to its side.
FROM_A_LOGIN = frozenset(
    ("allocate", "request", "would_allocate", "partition_create", "launchers_of", "launcher_lost")
    + ("remote_nodes", "rca_here", "rca_silent", "full_texts")
)
#: Operations on something that exists already.
REACHING = frozenset(
    ("signal_launchers", "kill_launchers", "reset", "drain", "drain_later", "resume")
    + ("set_mode", "reserve", "partition_destroy")
)


#: The message by which another login processor's RCA names the user of a connection, once for each connection.
VOUCH = "vouch"


class Logins:
    """Determines the login processor of every request. ``own`` is the CPA's, empty if unknown.

    ``granted``: another login processor granted it, and may revoke it (db.machine.rcas).
    """

    def __init__(self, own: str, store: Store, machine: Machine, *, granted: bool = False) -> None:
        self._own, self._store, self._machine = own, store, machine
        self._revocable = own if granted else ""

    def need_member(self, peer: Peer) -> None:
        """Raise Denied if this peer's login processor was revoked."""
        name = _certified(peer) or self._revocable
        if not name:
            return
        self._machine.refresh(self._store)
        if not self._machine.knows(name):
            raise _revoked(name)

    def refusal(self, peer: Peer) -> Denied | None:
        """The reason to close a connection of a revoked login processor. Otherwise it would be valid again once the
        name is granted again. Uses the picture as last refreshed."""
        name = _certified(peer)
        return _revoked(name) if name and not self._machine.knows(name) else None

    def check(self, peer: Peer, op: str, message: Message) -> None:
        """Put the true login processor into ``message``.

        Raises Denied if the message names another, or if the target is on another side; Invalid for an unknown node.
        """
        if op in FROM_A_LOGIN:
            message["login"] = self.login_of(peer, message.get("login") or "")
        elif op in REACHING:
            self._stay(self.login_of(peer, message.get("login") or ""), message)

    def login_of(self, peer: Peer, said: str) -> str:
        """The login processor of this peer. Raises Denied or Invalid."""
        own = _certified(peer) or self._own
        if said in ("", own) or not own:
            return own or said
        if not peer.names and self._plays(said):
            return said
        raise Denied(f"this is login processor {own}, not {said[:80]}", "ask on the processor that you mean")

    def is_here(self, login: str) -> bool:
        """True if ``login`` is this CPA's login processor, or one that its host stands for. Raises StoreError."""
        if login == self._own or self._revocable:
            return login == self._own
        try:
            return self._plays(login)
        except Invalid:  # it was revoked
            return False

    def _plays(self, name: str) -> bool:
        self._machine.refresh(self._store)
        return self._machine.is_here(name)

    def _stay(self, login: str, message: Message) -> None:
        machine = self._machine
        machine.refresh(self._store)
        if machine.sides() < 2 or not login:
            return
        side = machine.side_of(login)
        for what, there in self._reached(message):
            if there not in (None, side):
                raise Denied(f"{what} is on another side of the machine than {login}", "ask on that side")

    def _reached(self, message: Message) -> Iterable[tuple[str, int | None]]:
        machine = self._machine
        for launcher in message.get("launchers", ()):
            live = finish.find_live(self._store, launcher) if type(launcher) is int else None
            if live is not None:
                yield f"launcher {launcher}", machine.side_of_partition(live.partition)
        for name in message.get("nodes", ()):
            if isinstance(name, str):
                yield f"node {name[:80]}", machine.side_of(name)
        if "partition" in message:
            yield f"partition {message['partition']}", machine.side_of_partition(message["partition"])
        for one in machine.resolve(message.get("wanted")) or ():
            yield f"processor {one}", machine.side_of_processor(one)


def _revoked(name: str) -> Denied:
    told = f"{name[:80]} is not a login processor of this mesh any more"
    return Denied(told, "mesh down --force there; mesh login grant makes it one again")


def _certified(peer: Peer) -> str:
    """The name of another login processor's RCA from its certificate; empty for a peer on this one."""
    for uri in peer.names:
        role, _, name = uri.removeprefix("redmesh://").partition("/")[2].partition("/")
        if role == "rca":
            return name
    if peer.names:
        raise AgentError("no login processor's daemon", code="denied")
    return ""


def vouched(peer: Peer, message: Message) -> Peer:
    """The user that a connection acts for, as its RCA says. Raises Refusal."""
    if peer.uid >= 0:
        raise Refusal("wrong_role", "the user of these requests was named before")
    uid, gid, pid = message["uid"], message["gid"], message["pid"]
    if min(uid, gid, pid) < 0 or pid > MAX_PID:
        raise AgentError("uid, gid and pid are not a process's", code="invalid")
    groups = message.get("groups", "")
    if groups and caller_groups.read(groups).gid != gid:
        raise AgentError("groups are not those of the gid", code="invalid")
    return Peer(pid, uid, gid, peer.names, message.get("pid_started", -1), groups)
