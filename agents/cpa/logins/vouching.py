"""Whose requests an RCA of another login processor brings (agents/cpa/logins/listener.py): it says so once for each
connection."""

from agents.link.sockets import Peer
from agents.wire.control import Message
from agents.wire.errors import AgentError, Refusal

VOUCH = "vouch"


def vouched(peer: Peer, message: Message) -> Peer:
    """Who a connection speaks for, as the RCA that brings it says. Refusal."""
    if peer.uid >= 0:
        raise Refusal("wrong_role", "whose requests these are is known already")
    uid, gid, pid = message["uid"], message["gid"], message["pid"]
    if min(uid, gid, pid) < 0:
        raise AgentError("uid, gid and pid are not a process's", code="invalid")
    return Peer(pid, uid, gid, peer.names)
