"""Every operation of a CPA: check rights, translate the request into one transaction, and its result into a reply.

The shape of requests has already been checked (agents/wire/messages.py); the contents of lists are checked here.
"""

import functools
import gc
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agents.cpa.credentials import Asker, Issuing
from agents.cpa.permissions import Denied, Rights, account_name, uid_of, user_name
from agents.cpa.placement import registry as placement
from agents.cpa.placement.registry import Choosing
from agents.cpa.task_request import shape_of, size_of
from agents.wire.caller_groups import CallerGroups
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.heartbeat import is_place
from db.allocation import allocate, finish, full_texts, limits, partitions, waiting_requests
from db.allocation.free import Machine, Placed, as_messages
from db.allocation.types import PENDING_S, Allocation, Choose, Demand
from db.allocation.waiting_requests import PlaceInLine, Waiter
from db.errors import Invalid
from db.jobs import locations
from db.machine import nodes as machine
from db.machine import nodes_bulk, rcas, reservations
from db.store.store import Store
from db.views import daemon_reads, history
from redmesh.sanitise import clean
from redmesh.state import is_uuid

MAX_COMMAND = 4096  # characters of a command line that are stored
MAX_REASON = 500
MAX_NAME = 255
MAX_BOOT_ID = 64
LOADING_S = 300.0
LONGEST_PENDING_S = 3700.0  # for a launch that sleeps before its start (yod -sleep)
#: Keys of an allocate that name nodes or processors.
NAMING = ("wanted", "exclude", "most", "segments")
MAX_ID = 1 << 63  # of a launcher


class Answer(NamedTuple):
    """A reply, how to undo the operation if the requester is gone, and whether processors became free."""

    message: Message
    undo: Callable[[], object] | None = None
    released: bool = False


class Operations:
    """The operations on one database. Each takes the caller's uid and the request."""

    def __init__(
        self, store: Store, rights: Rights, default_placement: str = placement.DEFAULT, login: str = ""
    ) -> None:
        self.store, self.rights, self.default_placement, self.login = store, rights, default_placement, login
        self.machine = Machine()
        self._geometry: placement.Geometry = None
        self._described: tuple[str, str | None] = ("", None)  # boot id and topology of the layout
        self._read_at = ("", 0)  # boot id and number of side changes when the topology was read
        # the reply to *nodes_out* while all nodes are up, with its time
        self._nobody_out: tuple[float, Message] | None = None
        self._frozen = ""  # the boot id whose picture is frozen for the garbage collector
        self.issuing: Issuing | None = None  # issues credentials for nodes on other machines
        self.pending_s, self.loading_s = PENDING_S, LOADING_S

    def do(self, op: str, uid: int, message: Message) -> Answer:
        """Run an operation. Raises the operation's StoreError or AgentError."""
        answer: Answer = getattr(self, "_" + op)(uid, message)
        return answer

    def nodes_of(self, processors: Sequence[int]) -> list[Placed]:
        """The nodes that these processors are on."""
        self.machine.refresh(self.store)
        return self.machine.nodes_of(processors)

    # --- launchers

    def _allocate(self, uid: int, message: Message) -> Answer:
        demand = self.demand(uid, message)
        granted = allocate.allocate(self.store, self.machine, demand, self.choose_for(message))
        return self.answer(self.reply_of(granted, demand))

    def reply_of(self, granted: Allocation, demand: Demand | None = None) -> Message:
        """The reply to a launcher with its allocation."""
        reply = {
            "launcher": granted.launcher,
            "cookie": granted.cookie,
            "partition": granted.partition,
            "mesh": self.machine.boot_id,
            "pending_s": round(granted.pending_s, 3),
            "nodes": as_messages(granted.nodes),
            **(_sizes(demand) if demand is not None else {}),
        }
        if granted.devices:
            reply["resources"] = granted.devices
        return reply

    def answer(self, reply: Message) -> Answer:
        """An allocation's answer, which is undone if the requester is gone."""
        # Undo with our cookie: if the request was repeated meanwhile, the newer cookie keeps the allocation.
        return Answer(
            reply,
            lambda: finish.finish(
                self.store, reply["launcher"], reply["cookie"], 125, reason="its client was gone before the reply"
            ),
        )

    def message_of(self, waiter: Waiter) -> Message:
        """A request of the line as an allocate message."""
        message = {**waiter.request, "key": waiter.request_key, "partition": waiter.partition}
        if waiter.place:
            message["size"] = waiter.size
        return message

    def understand(self, waiter: Waiter) -> tuple[Demand, Choose]:
        """The demand of a request of the line, inside the transaction that serves it. Raises StoreError."""
        message = self.message_of(waiter)
        try:
            return self._demand(waiter.uid, message), self.choose_for(message)
        except AgentError as error:
            raise Invalid(error.message, error.hint) from None
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(f"this request cannot be decoded: {error!r}", "ask again") from None

    def place_in_line(self, uid: int, message: Message) -> PlaceInLine | None:
        """The line in which a request waits; None without managers, or inside a batch partition."""
        return limits.place_in_line(
            self.machine,
            user_name(uid),
            message["command"][:MAX_COMMAND],
            message.get("partition"),
            grows=bool(message.get("grows")),
        )

    def place_of(self, waiter: Waiter) -> PlaceInLine:
        """The line to which a request of the pool belongs now."""
        command = str(waiter.request.get("command", ""))[:MAX_COMMAND]
        return limits.place_in_line(self.machine, waiter.user, command, grows=waiter.grows) or PlaceInLine()

    def demand(self, uid: int, message: Message) -> Demand:
        """The demand of an allocate message."""
        if any(message.get(key) for key in NAMING):
            self.machine.refresh(self.store)  # names must be known; for a number alone ``allocate`` refreshes
        return self._demand(uid, message)

    def _demand(self, uid: int, message: Message) -> Demand:
        wanted, exclude = self._without_excluded(message)
        each = message.get("cpus_per_task", 1)
        shape = shape_of(self.machine, message)
        size = size_of(self.machine, message, wanted, shape)
        if size < 1 or each < 1:
            raise AgentError("size and cpus_per_task are at least 1", code="invalid")
        return Demand(
            request_key=_key(message),
            uid=uid,
            user=user_name(uid),
            login=message["login"],
            pid=message["pid"],
            pid_started=message["pid_started"],
            command=message["command"][:MAX_COMMAND],
            size=size * each,
            at_least=1 if message.get("overcommit") else 0,
            wanted=wanted,
            exclude=exclude,
            partition=message.get("partition"),
            cookie=message.get("cookie"),
            resources=message.get("resources", {}),
            shape=shape,
            nice=message.get("preemptible", False),
            gives_back=message.get("gives_back", False),
            grows=max(0, message.get("grows", 0)),
            time_s=message.get("time_s"),
            pending_s=min(max(self.pending_s, message.get("pending_s", 0.0)), LONGEST_PENDING_S),
        )

    def _without_excluded(self, message: Message) -> "tuple[Sequence[int] | None, Sequence[int]]":
        """The listed ids without the excluded ones, and the excluded ids.

        A request with a size and a list wants that many of the list; ids in it that do not exist are then left out.
        """
        size = message.get("size")
        enough = size * message.get("cpus_per_task", 1) if size is not None else None
        wanted = self.machine.resolve(message.get("wanted"), enough)
        exclude = self.machine.resolve(message.get("exclude")) or ()
        if wanted is not None and exclude:
            out = set(exclude)
            wanted = [one for one in wanted if one not in out]
            if not wanted:
                raise AgentError("every processor listed is excluded too", "list others", code="invalid")
        return wanted, exclude

    def _would_allocate(self, uid: int, message: Message) -> Answer:
        """A dry run of a launch: decided like an allocation, but nothing is allocated."""
        whoever = {
            "key": os.urandom(16).hex(),
            "login": message.get("login") or self.login,
            "pid": 1,
            "pid_started": 0,
            "command": "",
        }
        demand = self.demand(uid, {**message, **whoever})
        nodes, devices = allocate.consider(self.store, self.machine, demand, self.choose_for(message))
        reply: Message = {"nodes": as_messages(nodes), **_sizes(demand)}
        if devices:
            reply["resources"] = devices
        return Answer(reply)

    def choose_for(self, message: Message) -> Choose:
        """The placement that an allocate names, on this machine."""
        name = message.get("placement", placement.DEFAULT)
        name = self.default_placement if name == placement.DEFAULT else name
        return Choosing(placement.find(name), self._topology)

    def _topology(self) -> placement.Geometry:
        boot_id, regrouped = self.machine.boot_id, self.machine.regrouped
        if self._read_at != (boot_id, regrouped):
            text = daemon_reads.topology(self.store)
            if self._described != (boot_id, text):  # keep the curves of the layout
                self._geometry = placement.geometry(text, self.machine.members())
                self._described = boot_id, text
            self._read_at = boot_id, regrouped
        return self._geometry

    def credential(self, uid: int, message: Message, groups: CallerGroups | None) -> Answer:
        """The credential for a pending launch of ``uid``, whose process has these ``groups``."""
        if self.issuing is None:
            raise AgentError("this mesh has no keys", code="no_key")
        asker = Asker(uid, self.rights.is_owner(uid), groups)
        return Answer(self.issuing.issue(self.store, self.machine, message, asker))

    def _loading(self, _uid: int, message: Message) -> Answer:
        finish.loading(self.store, message["launcher"], message["cookie"], self.loading_s)
        return Answer({"loading_s": self.loading_s})

    def _started(self, _uid: int, message: Message) -> Answer:
        ranks = message["ranks"]
        if not all(type(each) is int for each in ranks):
            raise AgentError("started: ranks are ids of processors", code="invalid")
        root = message.get("root", "")[:MAX_NAME]
        finish.started(self.store, message["launcher"], message["cookie"], ranks, root, self.machine)
        return Answer({})

    def _moved(self, uid: int, message: Message) -> Answer:
        launcher, cookie = message["launcher"], message["cookie"]
        finish.moved(self.store, launcher, cookie, uid, message["pid"], message["pid_started"])
        return Answer({})

    def _finish(self, _uid: int, message: Message) -> Answer:
        finish.finish(
            self.store,
            message["launcher"],
            message["cookie"],
            message["exit_status"] & 0xFF,
            message.get("processor_error", False),
            message.get("reason", "")[:MAX_REASON],
            self.machine,
        )
        return Answer({}, released=True)

    def _free(self, uid: int, message: Message) -> Answer:
        return self._finish(uid, {**message, "exit_status": 0})

    def _node_failed(self, _uid: int, message: Message) -> Answer:
        node, launcher = message["node"], message["launcher"]
        live = finish.check_live(self.store, launcher, message["cookie"])
        if node not in {placed.name for placed in self.nodes_of(live.processors)}:
            raise Denied(f"launcher {launcher} has no processors on {node[:80]}, so it cannot report that node")
        machine.node_failed(self.store, node, launcher, message["reason"][:MAX_REASON])
        return Answer({})

    def _launchers_of(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "launchers_of")
        # Waiting processes are asked for every few seconds, and thousands may run.
        found = [] if message.get("waiting") else finish.launchers_of(self.store, message["login"])
        waiting = waiting_requests.processes_of(self.store, message["login"])
        # A process with pid 0 is hidden in a pid namespace: the RCA could only believe that it has exited.
        return Answer(
            {
                "launchers": [
                    {"launcher": live.launcher, "pid": live.pid, "pid_started": live.pid_started}
                    for live in found
                    if live.pid
                ],
                "waiting": [{"pid": pid, "pid_started": pid_started} for pid, pid_started in waiting if pid],
            }
        )

    def _full_texts(self, uid: int, message: Message) -> Answer:
        """Commands with their arguments, and reasons, that viewers do not read: to the user of a launch, or to root."""
        ids = message["launchers"]
        if len(ids) > full_texts.MOST_LAUNCHERS or not all(type(one) is int and 0 < one < MAX_ID for one in ids):
            most = full_texts.MOST_LAUNCHERS
            raise AgentError(f"full_texts: launchers are ids, at most {most}", code="invalid")
        owner = None if self.rights.is_owner(uid) else uid
        found = full_texts.read(self.store, ids, message["login"], owner)
        return Answer({"launchers": [one._asdict() for one in found]})

    def hide_stored(self, after: int) -> int | None:
        """Hide what viewers read of launchers above the id ``after``; returns the id to go on after, None at the
        end."""
        return full_texts.hide_stored(self.store, after)

    # --- the batch system and administrators

    def _partition_create(self, uid: int, message: Message) -> Answer:
        self.rights.need_batch(uid, "partition_create")
        user = message.get("user") or user_name(uid)
        self.machine.refresh(self.store)
        wanted, exclude = self._without_excluded(message)
        size = message.get("size")
        if len(message["batch_job"]) > MAX_NAME:
            raise AgentError(f"a batch job's id has at most {MAX_NAME} characters", code="invalid")
        made = partitions.create(
            self.store,
            self.machine,
            partitions.PartitionDemand(
                request_key=_key(message),
                batch_job=message["batch_job"],
                user=user,
                uid=uid_of(user),
                size=len(wanted or ()) if size is None else size,
                wanted=wanted,
                exclude=exclude,
                login=message.get("login", self.login),
            ),
            self.choose_for(message),
        )
        reply = {
            "partition": made.partition,
            "admin_cookie": made.admin_cookie,
            "allocation_cookie": made.allocation_cookie,
            "nodes": as_messages(made.nodes),
        }
        return Answer(reply, lambda: partitions.destroy(self.store, made.partition, made.admin_cookie))

    def _partition_destroy(self, uid: int, message: Message) -> Answer:
        partition = message["partition"]
        partitions.destroy(self.store, partition, self.administration(uid, message), message.get("force", False))
        return Answer({}, released=True)

    def administration(self, uid: int, message: Message) -> str | None:
        """The administration cookie of a request; None for an administrator, who needs none."""
        cookie: str = message["cookie"]
        return None if not cookie and self.rights.is_admin(uid) else cookie

    def _set_mode(self, uid: int, message: Message) -> Answer:
        self.rights.need_admin(uid, "set_mode")
        reservations.set_mode(self.store, self._listed(message), message["mode"], user_name(uid))
        return Answer({}, released=True)

    def _reserve(self, uid: int, message: Message) -> Answer:
        self.rights.need_admin(uid, "reserve")
        user = message.get("user")
        if user is not None:
            user = account_name(user)
        reason = message.get("reason", "")[:MAX_REASON]
        reservations.reserve(self.store, self._listed(message), user, user_name(uid), reason)
        return Answer({}, released=True)

    def _drain(self, uid: int, message: Message) -> Answer:
        self.rights.need_admin(uid, "drain")
        names, by = _names(message), user_name(uid)
        reason = message.get("reason", "")[:MAX_REASON]
        since = time.strftime("%Y-%m-%d %H:%M")
        told = f"{reason} ({by}, {since})" if reason else f"taken out by {by}, {since}"
        return Answer({"nodes": nodes_bulk.drain(self.store, names, told, by)})

    def _drain_later(self, uid: int, message: Message) -> Answer:
        self.rights.need_admin(uid, "drain_later")
        names, by = _names(message), user_name(uid)
        reason = message.get("reason", "")[:MAX_REASON]
        told = f"{reason} ({by})" if reason else f"announced by {by}"
        taken, drain_at = nodes_bulk.drain_later(self.store, names, max(0.0, float(message["after_s"])), told)
        return Answer({"nodes": taken, "drain_at": drain_at}, released=True)

    def _resume(self, uid: int, message: Message) -> Answer:
        self.rights.need_admin(uid, "resume")
        return Answer({"nodes": nodes_bulk.resume(self.store, _names(message), user_name(uid))}, released=True)

    def _listed(self, message: Message) -> list[int]:
        self.machine.refresh(self.store)
        ids = self.machine.resolve(message["wanted"])
        if not ids:
            raise AgentError(f"{message['op']} needs at least one processor or node", code="invalid")
        return ids

    # --- the mesh's daemons

    def _node_up(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "node_up")
        boot_id, address, agent = message["boot_id"], message["address"], message.get("agent", "")
        if len(boot_id) > MAX_BOOT_ID or len(address) > MAX_NAME or len(agent) > MAX_BOOT_ID:
            raise AgentError("node_up: boot_id, address or agent is too long", code="invalid")
        if "nodes" in message:
            nodes_bulk.nodes_up(self.store, _names(message), boot_id, message["incarnation"], address, agent)
        else:
            life = (boot_id, message["incarnation"])
            shared = clean(message.get("shared", ""))[:MAX_REASON]
            machine.node_up(self.store, message["node"], *life, address, agent, message.get("rca", ""), shared)
        return Answer({}, released=True)

    def _node_suspect(self, uid: int, message: Message) -> Answer:
        return self._node_event(uid, message, machine.node_suspect, nodes_bulk.nodes_suspect)

    def _node_down(self, uid: int, message: Message) -> Answer:
        tell = functools.partial(machine.node_down, wipe=True) if message.get("wipe") else machine.node_down
        return self._node_event(uid, message, tell, nodes_bulk.nodes_down)

    def _nodes_out(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "nodes_out")
        if not message.get("near"):
            return Answer(daemon_reads.nodes_out(self.store, message["failed_s"])._asdict())
        now = time.monotonic()
        if self._nobody_out is None:
            reply = daemon_reads.nodes_out(self.store, message["failed_s"])._asdict()
            self.machine.refresh(self.store)
            if not self.machine.all_up():
                return Answer(reply)
            self._nobody_out = now, reply
        read_at, reply = self._nobody_out
        return Answer({**reply, "now": reply["now"] + now - read_at})

    def _beat(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "beat")
        return Answer({} if message.get("near") else {"now": float(self.store.read(daemon_reads.clock.bind())[0][0])})

    def nodes_moved(self) -> None:
        """Another CPA of this login processor, or this one, changed the state of a node."""
        self._nobody_out = None

    def _remote_nodes(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "remote_nodes")
        return Answer(rcas.far_nodes(self.store, message["login"])._asdict())

    def _rca_here(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "rca_here")
        if not is_place(message["listen"]):
            raise AgentError("rca_here: every node is to be told of it, and this is not a HOST:PORT", code="invalid")
        rcas.here(self.store, message["login"], message["listen"])
        return Answer({})

    def _rca_silent(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "rca_silent")
        tell = rcas.lost if message.get("lost") else rcas.missed if message.get("missed") else rcas.silent
        taken = tell(self.store, message["rca"], message["reason"][:MAX_REASON], message["login"])
        if taken and message.get("lost"):
            # Our RCA has them continue here. The login processor whose RCA tells may have no CPA of its own.
            locations.leave_lost(self.store, message["rca"], self.login or message["login"])
            self.store.on_nodes_moved()
        return Answer({"taken": taken})

    def _node_event(
        self, uid: int, message: Message, tell: Callable[..., Any], tell_many: Callable[..., Any]
    ) -> Answer:
        self.rights.need_daemon(uid, message["op"])
        if "nodes" in message:
            life, reason = (message["boot_id"], message["incarnation"]), message["reason"][:MAX_REASON]
            tell_many(self.store, _names(message), *life, reason)
            return Answer({})
        node, known = message["node"], daemon_reads.Life(message["boot_id"], message["incarnation"])
        if known.incarnation == 0:
            # The RCA has just started, and the node's PCT never contacted it.
            known = daemon_reads.present_life(self.store, node)
        reason = message["reason"][:MAX_REASON]
        tell(self.store, node, known.boot_id, known.incarnation, reason, message.get("rca", ""))
        return Answer({})

    # --- locations of state objects

    def _state_register(self, uid: int, message: Message) -> Answer:
        uuid, node, owner = self._of_job(uid, message, "node")
        return Answer({"news": locations.register(self.store, uuid, node, owner)})

    def _state_moved(self, uid: int, message: Message) -> Answer:
        uuid, sender, owner = self._of_job(uid, message, "sender")
        moved = locations.report_move(self.store, uuid, sender, message["receiver"], message["counter"], owner)
        return Answer({"news": moved})

    def _state_forget(self, uid: int, message: Message) -> Answer:
        return Answer({"news": locations.forget(self.store, *self._of_job(uid, message, "node"))})

    def _state_locate(self, uid: int, message: Message) -> Answer:
        found = locations.locate(self.store, message["uuid"]) if is_uuid(message["uuid"]) else None
        # do not reveal even the existence of others' jobs
        if found is None or not (uid == found.uid or self.rights.is_admin(uid)):
            raise AgentError(f"no job {message['uuid'][:60]} is known here", "mesh job list", code="invalid")
        return Answer(self._place(found))

    def _state_pass(self, uid: int, message: Message) -> Answer:
        """A pass for the objects of the caller, or a daemon's for those of the user ``uid``, on one node."""
        owner = message.get("uid", uid)
        if owner != uid:
            self.rights.need_daemon(uid, "a pass for another user's objects")
        if self.issuing is None:
            raise AgentError("this mesh has no keys", code="no_key")
        return Answer(self.issuing.object_pass(self.store, owner, message["node"]))

    def _state_standby(self, uid: int, message: Message) -> Answer:
        uuid, node, owner = self._of_job(uid, message, "node")
        locations.register(self.store, uuid, node, owner)
        found = locations.stand_by(self.store, uuid, node, message["counter"], owner, message["standby"])
        if found is None or found.uid != owner:
            raise AgentError(f"no job {uuid} is known here", "mesh job list", code="invalid")
        return Answer(self._place(found))

    def _state_takeover(self, uid: int, message: Message) -> Answer:
        uuid, node, owner = self._of_job(uid, message, "node")
        witness = node if message.get("witness") else ""
        found = locations.take_over(self.store, uuid, message["counter"], owner, witness, message.get("to", ""))
        if found is None:
            raise AgentError(
                f"job {uuid} stays where it is: its node is not down, or it has no standby", "mesh job show",
                code="state",
            )  # fmt: skip
        if found.goes_to:
            self.store.on_nodes_moved()
        return Answer(self._place(found))

    def _state_send(self, uid: int, message: Message) -> Answer:
        uuid, login, owner = self._of_job(uid, message, "login")
        if locations.send(self.store, uuid, owner, login):
            self.store.on_nodes_moved()
            return Answer({})
        found = locations.locate(self.store, uuid)
        if found is None or found.uid != owner or not found.standby:
            raise AgentError(
                f"job {uuid} cannot move: it has no standby, whose copy would become the object",
                "a job gets one after 3 s where another host is up; mesh job log names it", code="state",
            )  # fmt: skip
        if locations.node_in(found.url) == login:
            raise AgentError(f"job {uuid} is on {login} already", "mesh job show", code="state")
        raise AgentError(
            f"{login[:80]} is no login processor that is up: a job's owner starts launches, which nodes cannot",
            "mesh status lists the login processors", code="state",
        )  # fmt: skip

    def _state_stay(self, uid: int, message: Message) -> Answer:
        uuid, login, owner = self._of_job(uid, message, "login")
        return Answer({"news": locations.stay(self.store, uuid, owner, login)})

    def _state_on(self, uid: int, message: Message) -> Answer:
        """The jobs with a standby whose owners are on a login processor: the caller's, or for an administrator all."""
        self.machine.refresh(self.store)
        if not self.machine.knows(message["login"]):
            return Answer({"jobs": []})
        found = locations.with_standby_on(self.store, message["login"])
        every = self.rights.is_admin(uid)
        return Answer({"jobs": [[uuid, owner] for uuid, owner in found if every or owner == uid]})

    def _place(self, found: locations.Location) -> Message:
        names = [name for name in (locations.node_in(found.url), found.standby) if name]
        if not all(map(self.machine.address_of, names)):
            self.machine.refresh(self.store)  # otherwise answer from memory, at no cost to the database
        addresses = {name: self.machine.address_of(name) for name in names}
        told = {"url": found.url, "counter": found.counter, "proxied": found.proxied, "standby": found.standby}
        told["goes_to"] = found.goes_to
        if found.goes_to:
            told["lost"] = locations.is_down(self.store, locations.node_in(found.url))
        return {**told, "addresses": {name: address for name, address in addresses.items() if address}}

    def _of_job(self, uid: int, message: Message, node: str) -> tuple[str, str, int]:
        """A job's UUID, the reporting node and the job's uid. Users report for themselves, daemons for all."""
        if message["uid"] != uid:
            self.rights.need_daemon(uid, "a report on another user's job")
        if not is_uuid(message["uuid"]):
            raise AgentError(f"{message['uuid'][:60]!r} is not the UUID of a job", code="invalid")
        return message["uuid"], message[node], message["uid"]

    def _idle(self, uid: int, _message: Message) -> Answer:
        self.rights.need_daemon(uid, "idle")
        return Answer(daemon_reads.idleness(self.store)._asdict())

    def _mesh_down(self, uid: int, message: Message) -> Answer:
        self.rights.need_daemon(uid, "mesh_down")
        machine.shut_down(self.store, str(message["boot_id"]), str(message["reason"])[:MAX_REASON])
        return Answer({})

    # --- the timer

    def expire(self) -> tuple[list[Waiter], float | None]:
        """End launchers and requests whose time is over.

        Returns the requests that waited too long, and the seconds until the next deadline; None if there is none.
        """
        self.machine.refresh(self.store)
        drain_at = self.machine.next_drain()
        if drain_at is not None and drain_at <= self.machine.now:
            nodes_bulk.drain_due(self.store)
            self.machine.refresh(self.store)
            drain_at = self.machine.next_drain()
        if self.machine.drains():  # querying the database would mean reading every node
            nodes_bulk.settle_drained(self.store)
        times = self.store.read_together(
            [waiting_requests.next_deadline.bind(), finish.next_expiry.bind(), daemon_reads.clock.bind()]
        )
        deadline, expiry, now = (rows[0][0] for rows in times)
        late: list[Waiter] = []
        if deadline is not None and deadline <= now:
            late = waiting_requests.drop_late(self.store)
        if expiry is not None and expiry <= now:
            finish.expire_pending(self.store)
        dues = [at - now for at in (deadline, expiry, drain_at) if at is not None]
        return late, max(0.0, min(dues)) if dues else None

    def keep_ready(self) -> None:
        """Prepare what placements need before a request waits for it: with 100,000 processors that takes seconds."""
        geometry = self._topology()
        if geometry is not None:
            geometry.curve()
        if self._frozen != self.machine.boot_id:
            # Tens of thousands of permanent objects: the garbage collector would scan them while a request waits.
            self._frozen = self.machine.boot_id
            gc.collect()
            gc.freeze()

    def trim(self, days: float, rows: int) -> bool:
        """Delete some of the old history in a small step; returns whether there is more."""
        return history.trim(self.store, days, rows, steps=1) >= history.AT_ONCE


def _sizes(demand: Demand) -> Message:
    """The part of a reply with the number of ranks of each line of a load file."""
    lines = demand.shape.segments if demand.shape is not None else ()
    return {"segments": [line.tasks for line in lines]} if lines else {}


def _names(message: Message) -> list[str]:
    names: list[str] = message["nodes"]
    if not names or not all(isinstance(name, str) for name in names):
        raise AgentError(f"{message['op']} needs the names of nodes", code="invalid")
    return names


def _key(message: Message) -> str:
    key: str = message["key"]
    if len(key) != 32 or not set(key) <= set("0123456789abcdef"):
        raise AgentError("a request key is 32 hexadecimal digits", code="invalid")
    return key
