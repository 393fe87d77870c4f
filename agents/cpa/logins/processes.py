"""The process that a request is for, and its groups: the connection's peer, as a kernel reported it, and not what the
request says.

A launch ends when its process is known to be gone. So a user who names another process, or none, would keep processors
for ever.
"""

from typing import NamedTuple

from agents.cpa.permissions import Denied
from agents.link.lean import Socket
from agents.link.peer_groups import groups_of_peer
from agents.linux.processes import alive, is_gone, start_time, start_time_of_user
from agents.wire.address import Peer
from agents.wire.caller_groups import CallerGroups, read
from agents.wire.control import Message
from agents.wire.errors import AgentError

#: Operations for which the CPA records a process.
RECORDING = frozenset(("allocate", "request", "moved"))
#: The largest pid of a Linux kernel.
MAX_PID = 1 << 22


class Process(NamedTuple):
    """A process and when it began (field 22 of /proc/PID/stat; 0: not known)."""

    pid: int
    started: int


#: A process in a pid namespace that the daemon that accepted its connection does not see. Nothing is known of it.
HIDDEN = Process(0, 0)


def said_in(message: Message) -> Process:
    """The process that a request names. Raises AgentError if no process can have these numbers."""
    said = Process(message["pid"], message["pid_started"])
    if not 0 < said.pid <= MAX_PID or said.started < 0:
        raise AgentError("pid and pid_started are not a process's", code="invalid")
    return said


def true_process(peer: Peer, said: Process, *, trusted: bool) -> Process:
    """The process that a peer's request is for. Raises Denied if it has exited.

    A peer on another login processor is the process that its RCA vouches for; an RCA of an earlier version does not say
    when it began. ``trusted``: root and the mesh's owner may name another process of this host, which must run.
    """
    if peer.pid <= 0:
        return HIDDEN
    if peer.names:
        if peer.pid_started < 0:
            return Process(peer.pid, said.started)
        if not peer.pid_started:
            raise _exited(peer)
        return Process(peer.pid, peer.pid_started)
    if trusted and alive(*said):
        return Process(said.pid, start_time(said.pid))
    started = start_time_of_user(peer.pid, peer.uid)
    if not started:
        raise _exited(peer)
    return Process(peer.pid, started)


def groups_of(peer: Peer, sock: Socket | None) -> CallerGroups | None:
    """The groups of a peer; None if the kernel there does not say, or its RCA is of an earlier version."""
    if peer.names:
        return read(peer.groups) if peer.groups else None
    return groups_of_peer(sock) if sock is not None else None


def _exited(peer: Peer) -> Denied:
    return Denied(f"process {peer.pid}, which made this connection, has exited", "connect from the process that asks")


def is_known_to_be_gone(process: Process) -> bool:
    """True if a process of this host has certainly exited. A stopped process has not."""
    return process.pid > 0 and is_gone(*process)
