"""The message tables: for every service its operations, their keys and the types of the keys.

docs/protocol.md explains these tables, and tests run them. Unknown keys are ignored, unknown operations refused, so
that the protocol numbers N and N-1 work together.
"""

from __future__ import annotations

from agents.wire.control import Message
from agents.wire.errors import AgentError, WireError
from agents.wire.renames import NEW_NAMES, new_names

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Types = Dict[str, Tuple[type, ...]]
else:
    Types = dict

PROTOCOL = 2
OLDEST = 1  # the oldest protocol number that this version supports

ROLES = frozenset(
    ("launcher", "parent", "child", "cpa", "rca", "pct", "keeper", "cleanup", "observer", "admin", "yod", "object")
)

_int, _str, _list, _dict, _bool = (int,), (str,), (list,), (dict,), (bool,)
_num = (int, float)
_none = type(None)


class Shape:
    """The required and optional keys of a message, with their types."""

    __slots__ = ("optional", "required")

    def __init__(self, required: Types, optional: Types) -> None:
        self.required, self.optional = required, optional


def _shape(optional: Optional[Types] = None, **required: Tuple[type, ...]) -> Shape:
    return Shape(required, optional or {})


HELLO = _shape({"build": _str, "name": _str, "credential": _str, "mac": _str}, protocol=_int, role=_str)

#: The content of a ``granted`` message, and of each entry of its ``placed``.
POST_BACK = _shape({"error": _dict, "place": _str}, post_back=_str, sequence=_int, missing=_int, placed=_list)
PLACED = _shape(launcher=_int, cookie=_str)

#: Requests to a CPA. ``id`` numbers a request on its connection; the reply repeats the number as ``re``.
CPA: Dict[str, Shape] = {
    "allocate": _shape(
        {
            "size": (int, _none),
            "wanted": (dict, _none),
            "exclude": (dict, _none),
            "cpus_per_task": _int,
            "overcommit": _bool,
            "partition": (int, _none),
            "cookie": (str, _none),
            "placement": _str,
            "wait_s": _num,
            "notices": _bool,
            "resources": _dict,
            "nodes": _int,
            "most": _dict,
            "per_task": _dict,
            "segments": _list,
            "preemptible": _bool,
            "pending_s": _num,
            "time_s": (int, float, _none),
            "gives_back": _bool,
            "grows": _int,
        },
        key=_str,
        login=_str,
        pid=_int,
        pid_started=_int,
        command=_str,
    ),
    "request": _shape(
        {
            "partial": _bool,
            "post_back": _str,
            "time_s": (int, float, _none),
            "wait_s": _num,
            "job": _str,
            "wanted": (dict, _none),
            "exclude": (dict, _none),
            "cpus_per_task": _int,
            "overcommit": _bool,
            "partition": (int, _none),
            "cookie": (str, _none),
            "placement": _str,
            "resources": _dict,
            "nodes": _int,
            "most": _dict,
            "per_task": _dict,
            "preemptible": _bool,
            "pending_s": _num,
        },
        uuid=_str,
        count=_int,
        login=_str,
        pid=_int,
        pid_started=_int,
        command=_str,
    ),
    "posted": _shape(uuid=_str, sequence=_int),
    "collect": _shape(uuid=_str, sequence=_int),
    "cancel": _shape(uuid=_str),
    "free": _shape(launcher=_int, cookie=_str),
    "granted": _shape(uid=_int, post_back=_dict),
    "would_allocate": _shape(
        {
            "size": (int, _none),
            "wanted": (dict, _none),
            "exclude": (dict, _none),
            "cpus_per_task": _int,
            "overcommit": _bool,
            "partition": (int, _none),
            "cookie": (str, _none),
            "placement": _str,
            "resources": _dict,
            "nodes": _int,
            "most": _dict,
            "per_task": _dict,
            "segments": _list,
            "login": _str,
        }
    ),
    "credential": _shape(launcher=_int, cookie=_str, common=_str),
    "loading": _shape(launcher=_int, cookie=_str),
    "started": _shape({"root": _str}, launcher=_int, cookie=_str, ranks=_list),
    "moved": _shape(launcher=_int, cookie=_str, pid=_int, pid_started=_int),
    "finish": _shape(
        {"processor_error": _bool, "reason": _str, "lost": _list}, launcher=_int, cookie=_str, exit_status=_int
    ),
    "node_failed": _shape(launcher=_int, cookie=_str, node=_str, reason=_str),
    "partition_create": _shape(
        {
            "size": (int, _none),
            "wanted": (dict, _none),
            "exclude": (dict, _none),
            "user": _str,
            "placement": _str,
            "login": _str,
        },
        key=_str,
        batch_job=_str,
    ),
    "partition_destroy": _shape({"force": _bool, "login": _str}, partition=_int, cookie=_str),
    "set_mode": _shape({"login": _str}, wanted=_dict, mode=_str),
    "reserve": _shape({"user": (str, _none), "login": _str, "reason": _str}, wanted=_dict),
    "signal_launchers": _shape({"login": _str, "elsewhere": _bool}, launchers=_list, signal=_int),
    "kill_launchers": _shape({"login": _str}, launchers=_list),
    "reset": _shape({"nodes": _list, "login": _str}, launchers=_list),
    "drain": _shape({"reason": _str, "login": _str}, nodes=_list),
    "drain_later": _shape({"reason": _str, "login": _str}, nodes=_list, after_s=_num),
    "resume": _shape({"login": _str}, nodes=_list),
    "launchers_of": _shape({"waiting": _bool}, login=_str),
    "full_texts": _shape({"login": _str}, launchers=_list),
    "launcher_lost": _shape(login=_str, pid=_int, pid_started=_int, reason=_str),
    "node_up": _shape(
        {"agent": _str, "nodes": _list, "rca": _str, "shared": _str},
        node=_str,
        boot_id=_str,
        incarnation=_int,
        address=_str,
        processors=_int,
    ),
    "node_suspect": _shape({"nodes": _list, "rca": _str}, node=_str, boot_id=_str, incarnation=_int, reason=_str),
    "node_down": _shape(
        {"nodes": _list, "wipe": _bool, "rca": _str}, node=_str, boot_id=_str, incarnation=_int, reason=_str
    ),
    "nodes_out": _shape({"near": _bool}, failed_s=_num),
    "beat": _shape({"near": _bool}),
    "nodes_moved": _shape(),
    "moved_elsewhere": _shape({"tell": _bool}),
    "cpa_started": _shape(),
    "remote_nodes": _shape(login=_str),
    "rca_here": _shape(login=_str, listen=_str),
    "rca_silent": _shape({"lost": _bool, "missed": _bool}, login=_str, rca=_str, reason=_str),
    "state_register": _shape(uuid=_str, node=_str, uid=_int),
    "state_moved": _shape(uuid=_str, sender=_str, receiver=_str, counter=_int, uid=_int),
    "state_forget": _shape(uuid=_str, node=_str, uid=_int),
    "state_locate": _shape(uuid=_str),
    "state_pass": _shape({"uid": _int}, node=_str),
    "state_standby": _shape(uuid=_str, node=_str, standby=_str, counter=_int, uid=_int),
    "state_takeover": _shape({"witness": _bool, "to": _str}, uuid=_str, node=_str, counter=_int, uid=_int),
    "state_send": _shape(uuid=_str, login=_str, uid=_int),
    "state_stay": _shape(uuid=_str, login=_str, uid=_int),
    "state_on": _shape(login=_str),
    "set_switches": _shape({"closed": _list, "drain": _bool, "wipe_both": _bool}, open=_list),
    "idle": _shape(),
    "vouch": _shape({"pid_started": _int, "groups": _str}, pid=_int, uid=_int, gid=_int),
    "mesh_down": _shape(boot_id=_str, reason=_str),
}

#: Messages to an RCA: from launchers and PCTs, and queries from any member of this mesh.
RCA: Dict[str, Shape] = {
    "register": _shape({"launcher": (int, _none), "login": _str}, pid=_int, pid_started=_int),
    "beat": _shape({"seq": _int, "load": _num, "launches": _int, "shared": _str}),
    "launcher": _shape(launcher=_int),
    "unregister": _shape(),
    "finish": _shape(
        {"processor_error": _bool, "reason": _str, "lost": _list}, launcher=_int, cookie=_str, exit_status=_int
    ),
    "register_node": _shape(
        {"agent": _str, "nodes": _list, "shared": _str},
        node=_str,
        boot_id=_str,
        incarnation=_int,
        address=_str,
        pid=_int,
        processors=_int,
    ),
    "status": _shape(),
}

#: Requests to a PCT, other than launches.
PCT: Dict[str, Shape] = {
    "status": _shape({"node": _str}),
    "kill_launch": _shape({"grace_s": _num, "reason": _str, "to": _str}, launcher=_int),
    "give_back": _shape({"pause": _bool, "to": _str}, launcher=_int, key=_str, launchers=_list, keep=_int),
    "failed": _shape({"reason": _str}, launcher=_int),
    "death": _shape(launcher=_int),
    "fetch": _shape({"launcher": _int, "node": _str}, number=_int, digest=_str, offset=_int),
    "wipe": _shape({"nodes": _list}),
    "trust": _shape(files=_dict),
    "post_back": _shape(uid=_int, path=_str, post_back=_dict),
}

#: What a CPA or a PCT asks of the process that listens where a request is posted back to.
REQUESTER: Dict[str, Shape] = {"post_back": _shape(post_back=_dict)}

#: Requests to a node about the state objects of jobs, on a connection in the role ``object``
#: (agents/objects/object_process.py). The bytes of an object follow ``offer`` in frames of kind FILE.
OBJECT: Dict[str, Shape] = {
    "offer": _shape(uuid=_str, counter=_int, size=_int, sender=_str),
    "sent": _shape(uuid=_str, counter=_int, digest=_str),
    "take": _shape({"uid": _int}, uuid=_str, counter=_int),
    "settled": _shape({"uid": _int}, uuid=_str, counter=_int),
    "move": _shape({"credential": _str, "mac": _str}, uuid=_str, node=_str, address=_str),
    "give": _shape(uuid=_str, receiver=_str),
    "confirm": _shape(uuid=_str, counter=_int),
    "answer": _shape(uuid=_str, counter=_int, taken=_bool),
    "ask": _shape({"query": _dict, "known": _str, "wait_s": _num}, uuid=_str, what=_str),
    "held": _shape(),
    "copy": _shape(uuid=_str, counter=_int, size=_int, sender=_str),
    "copied": _shape(uuid=_str, counter=_int, digest=_str),
    "commits": _shape(uuid=_str, size=_int),
    "standing": _shape(uuid=_str),
    "promote": _shape(uuid=_str, counter=_int),
    "drop": _shape(uuid=_str),
    "purge": _shape(uuid=_str),
    "command": _shape({"members": _dict}, uuid=_str, command=_str),
    "answered": _shape(uuid=_str, number=_str, answer=_dict),
    "content": _shape(uuid=_str),
}

#: Messages from a launch child to the PMIx server of its machine.
PMIX: Dict[str, Shape] = {
    "serve": _shape(ranks=_list),
    "released": _shape({"more": _bool}, data=_str),
    "found": _shape(ticket=_int, code=_int, data=_str),
    "give": _shape(ticket=_int, rank=_int),
    "noticed": _shape(ticket=_int),
    "answer": _shape(ticket=_int, found=_bool, value=_str),
}

#: Messages from the PMIx server to launch children.
PMIX_SAYS: Dict[str, Shape] = {
    "environment": _shape(variables=_dict),
    "failed": _shape({"hint": _str}, message=_str),
    "noted": _shape(message=_str),
    "ask": _shape(ticket=_int, rank=_int, what=_str, name=_str, value=_str),
    "connected": _shape(rank=_int),
    "finalized": _shape(rank=_int, ticket=_int),
    "aborted": _shape(rank=_int, status=_int, message=_str, ticket=_int),
    "fenced": _shape({"more": _bool}, data=_str),
    "wanted": _shape(ticket=_int, rank=_int),
    "given": _shape(ticket=_int, code=_int, data=_str),
}

KEEPER: Dict[str, Shape] = {"status": _shape(), "down": _shape({"force": _bool}), "job_end": _shape()}

#: Messages in the tree of a launch, from the launcher towards the ranks.
DOWN: Dict[str, Shape] = {
    "load": _shape(
        {"credential": _str, "macs": _dict, "members": _list, "master": _list, "unbuffered": _bool, "lapses_at": _num},
        launcher=_int,
        partition=_int,
        mesh=_str,
        nodes=_list,
        size=_int,
        nnodes=_int,
        fanout=_int,
        window=_int,
        pending_s=_num,
        input=(str, int),
    ),
    "go": _shape({"map": _str}, ranks=_list),
    "fenced": _shape({"more": _bool}, number=_int, puts=_list),
    "absent": _shape(rank=_int),
    "answer": _shape(rank=_int, found=_bool, value=_str),
    "give": _shape(place=_int, ticket=_int, rank=_int),
    "found": _shape(place=_int, ticket=_int, code=_int, data=_str),
    "signal": _shape({"ranks": (list, _none), "relayed": _bool}, signal=_int),
    "kill": _shape(),
    "orphaned": _shape(),
    "credit": _shape(bytes=_int),
    "eof": _shape(),
    "ping": _shape({"starved": _bool, "loading_s": _num}),
    "seek_reader": _shape(),
    "input_piece": _shape(node=_int, data=_str),
    "done": _shape(),
    "winsize": _shape(rows=_int, columns=_int),
    "stacks": _shape({"ranks": (str, _none), "which": _str, "limit_s": _num, "tools": _dict}, number=_int),
    "source": _shape(number=_int, rank=_int, path=_str, first=_int, last=_int),
    "debug": _shape({"term": _str, "tools": _dict}, session=_int, rank=_int, command=_list, rows=_int, columns=_int),
    "debug_type": _shape(session=_int, data=_str),
    "debug_size": _shape(session=_int, rows=_int, columns=_int),
    "debug_taken": _shape(session=_int, bytes=_int),
    "debug_leave": _shape(session=_int),
    "tool": _shape({"error": _str}, name=_str, size=_int, digest=_str, offset=_int, data=_str),
    "images": _shape(
        {"push": _bool, "share": _bool, "in_place": _bool, "names": _list, "addresses": _list}, images=_list
    ),
    "image_at": _shape(number=_int, path=_str),
}

#: Messages in the tree of a launch, from the ranks towards the launcher.
UP: Dict[str, Shape] = {
    "ready": _shape(ranks=_list),
    "failed": _shape(
        {"rank": (int, _none), "hint": _str, "lasting": _bool, "of_room": _bool},
        node=_str,
        message=_str,
        fault=_str,
        exit_status=_int,
    ),
    "exits": _shape(ranks=_list),
    "closed": _shape(ranks=_list),
    "lost": _shape(nodes=_list, reason=_str),
    "note": _shape(
        {"preempted_by": _dict, "out_of_memory": _dict, "stopped": _dict, "give_back": _dict},
        node=_str,
        message=_str,
    ),
    "fence": _shape({"more": _bool, "absent": _list}, number=_int, puts=_list),
    "absent": _shape({"text": _str}, rank=_int),
    "ask": _shape(rank=_int, what=_str, name=_str, value=_str),
    "wanted": _shape(place=_int, ticket=_int, rank=_int),
    "given": _shape(place=_int, ticket=_int, code=_int, data=_str),
    "abort": _shape(node=_str, rank=_int, exit_status=(int, _none), message=_str),
    "backtrace": _shape(rank=_int, node=_str, signal=_int, trace=_dict),
    "stacks": _shape({"paths": _list, "lacks": _list}, number=_int, calls=_list, missing=_list),
    "source": _shape(number=_int, node=_str, lines=_list, why=_str),
    "debug_said": _shape(session=_int, data=_str),
    "debug_over": _shape({"hint": _str}, session=_int, message=_str),
    "want_tool": _shape(name=_str),
    "credit": _shape(bytes=_int),
    "want": _shape({"number": _int}),
    "no_room": _shape(node=_str, number=_int, message=_str),
    "progress": _shape(node=_str, bytes=_int),
    "pong": _shape(),
    "reader_waits": _shape(node=_int),
    "input_rest": _shape(node=_int, data=_str),
    "silent": _shape({"back": _bool}, node=_str, seconds=_num),
    "finished": _shape({"unclean": _list}),
}

#: Messages from an observer to a yod, which replies with the event stream.
YOD: Dict[str, Shape] = {
    "attach": _shape({"replay": _bool, "output": _bool}),
    "signal": _shape({"ranks": (list, _none)}, signal=_int),
    "kill": _shape(),
    "input": _shape(data=_str),
    "eof": _shape(),
    "release": _shape(),
    "stacks": _shape({"ranks": (str, _none), "which": _str, "limit_s": _num, "tools": _dict}),
    "source": _shape(rank=_int, path=_str, first=_int, last=_int),
    "procs": _shape(),
    "debug": _shape({"term": _str, "tools": _dict}, rank=_int, command=_list, rows=_int, columns=_int),
    "debug_type": _shape(data=_str),
    "debug_size": _shape(rows=_int, columns=_int),
    "debug_taken": _shape(bytes=_int),
}


def hello(role: str, name: str = "") -> Message:
    """The first message on every connection, sent by both ends."""
    return {"op": "hello", "protocol": PROTOCOL, "role": role, "name": name}


def check_hello(message: Message) -> str:
    """The role in a hello. Raises WireError if the message is not a hello, or if the protocol numbers do not match."""
    if message.get("op") != "hello":
        raise WireError("the first message on a connection must be a hello")
    try:
        _check_keys("hello", HELLO, message)
    except AgentError as error:
        raise WireError(error.message) from None
    theirs, role = message["protocol"], message["role"]
    if not OLDEST <= theirs <= PROTOCOL + 1:  # a peer that is one number ahead still supports ours
        raise WireError(
            f"the peer speaks protocol {theirs}, this build {OLDEST} to {PROTOCOL}",
            "bring both to the same version of Redmesh",
        )
    if role not in ROLES:
        raise WireError(f"no role is called {str(role)[:40]!r}")
    return str(role)


def check(table: Dict[str, Shape], message: Message) -> str:
    """Check a message against ``table``: every required key, with its type. Returns the operation.

    A message with the names of protocol 1 is renamed in place. Raises AgentError with code ``unknown_op`` or
    ``invalid``.
    """
    op = message.get("op")
    if isinstance(op, str) and op in NEW_NAMES:
        renamed = new_names(message)
        if renamed["op"] in table:
            message.clear()
            message.update(renamed)
            op = renamed["op"]
    shape = table.get(op) if isinstance(op, str) else None
    if shape is None:
        raise AgentError(f"no operation here is called {str(op)[:40]!r}", code="unknown_op")
    _check_keys(str(op), shape, message)
    return str(op)


def check_post_back(post_back: Message) -> None:
    """Check a message that a CPA posts back. Raises AgentError with code ``invalid``."""
    _check_keys("post_back", POST_BACK, post_back)
    for placed in post_back["placed"]:
        _check_type("post_back", "placed", _dict, placed)
        _check_keys("placed", PLACED, placed)


def _check_keys(op: str, shape: Shape, message: Message) -> None:
    for key, types in shape.required.items():
        if key not in message:
            raise AgentError(f"{op} needs {key!r}", code="invalid")
        _check_type(op, key, types, message[key])
    for key, types in shape.optional.items():
        if key in message:
            _check_type(op, key, types, message[key])


def _check_type(op: str, key: str, types: Tuple[type, ...], value: Any) -> None:
    # In Python a bool is an int; do not accept it as a count.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise AgentError(f"{op}: {key!r} has the wrong type", code="invalid")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise AgentError(f"{op}: {key!r} is out of range", code="invalid")
