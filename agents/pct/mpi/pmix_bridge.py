"""A launch child's side of PMIx: it starts or finds the machine's server, and carries fences over the tree.

The server is a separate process (agents/pmix), one for each launch and machine, shared by all PCTs there; the launch
child of the machine's first rank starts it. The data of a PMIx fence is one value for each machine in the tree's
exchange (agents/pct/mpi/fences.py). Fence 0 is no rank's: it completes when all machines have connected.
"""

from __future__ import annotations

import base64
import gc
import os
import shutil
import signal
import socket
import time

from agents.link.link import Link
from agents.link.sockets import connect_now
from agents.link.sockets import own_directory as own_socket_directory
from agents.linux import ending, prctl
from agents.pct.errors import LoadFailed
from agents.pct.images.store import ImageError, in_ram_disk, launch_directory, own_place
from agents.pct.launch.paths import pmix_directory
from agents.pct.mpi.fences import VALUE_MAX
from agents.pct.mpi.process_mapping import first_rank, host_of
from agents.wire.control import control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.messages import PMIX_SAYS, check

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Protocol

    from agents.pct.launch.context import LaunchContext
    from agents.pct.mpi.fences import Exchange
    from agents.wire.control import Message

    class Pmi(Protocol):
        """The part of the PMI server (pmi_server.py) that PMIx needs."""

        @property
        def exchange(self) -> Exchange: ...

        def settle(self) -> None: ...

        def abort(self, rank: int, status: Optional[int], text: str) -> None: ...

        def ask(self, rank: int, what: str, name: str, value: str) -> None: ...

        def to_child_of(self, message: Message) -> bool: ...


# The directory in the RAM disk for the shared memory of Open MPI's ranks. By default Open MPI uses /dev/shm, where the
# memory of a killed rank stays until the next boot. This directory is removed when the ranks have ended, or by the PCT
# if the launch child itself was killed (agents/pct/images/store.py).


#: Parameters for this directory: for messages (Open MPI 4, 5) and for windows (both).
PARAMETERS = (
    "btl_vader_backing_directory", "btl_sm_backing_directory", "osc_sm_backing_directory",
    "osc_rdma_backing_directory",
)  # fmt: skip
_OWN_FILE = ".openmpi/mca-params.conf"
_LONGEST = 1 << 20


class SharedMemory:
    """The directory of one launch child; ``name`` says whose it is, for people."""

    def __init__(self, name: str) -> None:
        self._directory = ""
        self._name = name

    def variables(self, environments: List[Dict[bytes, bytes]]) -> Dict[str, str]:
        """Variables for Open MPI, except those set by the user: the ranks' ``environments``, the first one for all."""
        told = _told_in_file(os.fsdecode(environments[0].get(b"HOME", b"")))
        names = [
            name for name in PARAMETERS
            if name not in told and not any(f"OMPI_MCA_{name}".encode() in one for one in environments)
        ]  # fmt: skip
        if not names:
            return {}
        try:
            self._directory, _instead = in_ram_disk(self._make)
        except ImageError:
            return {}  # no usable place: continue without it
        return {f"OMPI_MCA_{name}": self._directory for name in names}

    def _make(self, place: str) -> str:
        path = launch_directory(self._name, place)
        own_place(path)
        return path

    def remove(self) -> None:
        """The ranks have ended."""
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""


def _told_in_file(home: str) -> str:
    try:
        fd = os.open(os.path.join(home, _OWN_FILE), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, encoding="utf-8", errors="replace") as file:
        try:
            lines = file.read(_LONGEST).splitlines()
        except OSError:
            return ""
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


#: Places in a rank's environment that are reserved for the server's variables.
SLOTS = 48
#: Seconds in which the machine's server must answer.
START_S = 20.0
_AGAIN_S = 0.005
#: Seconds, after the server's end, in which ranks that have not finalised may exit.
GONE_S = 2.0
_CHUNK = VALUE_MAX // 4 * 3  # bytes of one value in base64
_NOT_FOUND = -46
#: Open MPI 4 connects to a PMIx server only under a launcher that it knows; IBM's jsrun is one that starts ranks as we
#: do.
_KNOWN_LAUNCHER = {"JSM_JSRUN_PORT": "1"}
#: Set by Open MPI 4's mpiexec on a host with more ranks than processors; the second is for version 5.
OVERSUBSCRIBED = ("mpi_oversubscribe", "mpi_yield_when_idle")


class PmixRank:
    """The PMIx state of a rank. ``speaking``: an exit now breaks the program."""

    __slots__ = ("asking", "speaking")

    def __init__(self) -> None:
        self.speaking = True
        self.asking: "List[int]" = []  # tickets of questions for names, in the order of their answers


class Pmix:
    """The connection of a launch child and its machine's server. ``clients``: the state of each rank; ``note``
    writes to people."""

    def __init__(self, launch: LaunchContext, pmi: Pmi, clients: Dict[int, Any], note: Callable[[str], None]) -> None:
        self._launch, self._pmi, self._clients, self._note = launch, pmi, clients, note
        self._loop, self._load, self._program = launch.loop, launch.load, launch.program
        load, told = launch.load, launch.program.parallel
        self._hosts: "List[List[int]]" = [list(run) for run in told.get("hosts") or [[0, load.size]]]
        self._library = str(told.get("library", ""))
        self._link: "Optional[Link]" = None
        self._then: "Callable[[], None]" = _nothing
        self._failed: "Callable[[LoadFailed], None]" = _ignore
        self._began = 0.0
        self._variables: "Dict[str, str]" = {}
        self._fence = 0  # fences entered by this node's ranks; in fence 0 they connect
        self._released = 0  # completed fences
        self._data = b""
        self._pending: "List[bytes]" = []  # a fence that waits for its turn in the exchange
        self._leads = False
        self._directory = ""
        self.yields = False  # True if ranks yield while they wait
        self._memory = SharedMemory(f"{load.mesh}-{load.name}-{load.launcher}-memory")

    # Before the ranks start

    def prepare(self, then: "Callable[[], None]", failed: "Callable[[LoadFailed], None]") -> None:
        """Call ``then`` when the server has given the variables for ranks, otherwise ``failed``."""
        self._then, self._failed, self._began = then, failed, time.monotonic()
        here = host_of(self._hosts, self._load.ranks[0])
        self._leads = first_rank(self._hosts, here) in self._load.ranks
        self._directory = pmix_directory(self._launch.run, self._load.launcher, here)
        try:
            if self._leads:
                self._start(here)
            else:
                self._connect()
        except (OSError, AgentError) as error:
            self._fail(f"its PMIx server cannot be started: {error}", "")

    def _start(self, here: int) -> None:
        own_socket_directory(os.path.dirname(self._directory))
        directory = own_socket_directory(self._directory)
        job = {
            "nspace": f"redmesh_{self._load.mesh}_{self._load.launcher}", "size": self._load.size,
            "hosts": self._hosts, "here": here,
            "firsts": [segment.first for segment in self._program.segments], "directory": directory,
            "libraries": candidates(self._library, os.fsdecode(self._program.segment_of(self._load.ranks[0]).path)),
        }  # fmt: skip
        ours, theirs = socket.socketpair()
        try:
            if os.fork() == 0:
                _be_server(theirs, job)
        finally:
            theirs.close()
        self._take(ours)

    def _connect(self) -> None:
        if self._link is not None:
            return
        try:
            self._take(connect_now(os.path.join(self._directory, "sock")))
        except (OSError, AgentError):
            if time.monotonic() - self._began < START_S:
                self._loop.after(_AGAIN_S, self._connect)
            else:
                self._fail("the PMIx server of this machine does not answer", "")

    def _take(self, sock: socket.socket) -> None:
        self._link = Link(self._loop, sock, self._on_frame, self._on_end)
        self._link.send({"op": "serve", "ranks": self._load.ranks})

    def _fail(self, why: str, hint: str) -> None:
        failed, self._failed = self._failed, _ignore
        failed(LoadFailed(f"{self._load.name}: {why}", "program", hint=hint))

    def entries(self, rank: int) -> "List[bytes]":
        """The variables of a rank; always the same number."""
        entries = [f"{name}={value}".encode("latin-1") for name, value in self._variables.items()]
        entries.append(b"PMIX_RANK=%d" % rank)
        return (entries + [entries[-1]] * SLOTS)[:SLOTS]

    # Messages of the server

    def _on_frame(self, _link: Link, _kind: int, payload: bytes) -> None:
        message = decode(payload)
        try:
            op = check(PMIX_SAYS, message)
        except AgentError as error:
            raise WireError(error.message) from None
        getattr(self, f"_on_{op}")(message)

    def _on_end(self, _link: Link, reason: str) -> None:
        self._link = None
        if not self._variables:
            self._fail(f"its PMIx server ended: {reason}", "")
        elif self._speaking():
            # The server ends with the ranks of the node that started it. Other nodes' ranks are about to exit too, if
            # the program leaves out MPI_Finalize; otherwise something killed the server.
            self._loop.after(GONE_S, self._tell_gone)

    def rank_ended(self, rank: int) -> str:
        """Note that a rank has exited without having finalised; returns what is known of the cause, or ""."""
        self._clients[rank].speaking = False
        return "" if self._link is not None else ", after the PMIx server there had ended"

    def _speaking(self) -> bool:
        return any(self._clients[rank].speaking for rank in self._load.ranks if rank in self._clients)

    def _tell_gone(self) -> None:
        if self._speaking():
            self._pmi.abort(self._load.ranks[0], 125, f"the PMIx server on {self._load.name} is gone")

    def _on_environment(self, message: "Message") -> None:
        own = [one.env for one in self._program.segments if one.env is not None]
        places = self._memory.variables([self._program.env, *own])
        self._variables = {**message["variables"], **_KNOWN_LAUNCHER, **places, **self._oversubscribed()}
        self.yields = any(f"OMPI_MCA_{name}" in self._variables for name in OVERSUBSCRIBED)
        if len(self._variables) >= SLOTS:
            self._fail(f"its PMIx library wants {len(self._variables)} variables, more than there is room for", "")
            return
        self._then()

    def _oversubscribed(self) -> "Dict[str, str]":
        """Variables that Open MPI's own mpiexec sets if a host has fewer processors than ranks: waiting ranks then
        yield.

        Without them each rank busy-waits: a message of 8 bytes takes a time slice of the kernel instead of 2 us.
        """
        here = host_of(self._hosts, self._load.ranks[0])
        ranks = sum(count for host, count in self._hosts if host == here)
        environments = [self._program.env, *(one.env for one in self._program.segments if one.env is not None)]
        said = any(f"OMPI_MCA_{name}".encode() in one for name in OVERSUBSCRIBED for one in environments)
        if ranks <= len(os.sched_getaffinity(0)) or said:
            return {}
        return {f"OMPI_MCA_{name}": "1" for name in OVERSUBSCRIBED}

    def _on_failed(self, message: "Message") -> None:
        self._fail(message["message"], message.get("hint", ""))

    def _on_noted(self, message: "Message") -> None:
        self._note(message["message"])

    def _on_connected(self, message: "Message") -> None:
        rank = message["rank"]
        self._clients[rank] = PmixRank()
        self._pmi.exchange.enter(rank)
        self._pmi.settle()

    def _on_finalized(self, message: "Message") -> None:
        client = self._clients.get(message["rank"])
        if client is not None:
            client.speaking = False
        self._notice(message)

    def _on_ask(self, message: "Message") -> None:
        client = self._clients.get(message["rank"])
        if client is not None:
            client.asking.append(message["ticket"])
            self._pmi.ask(message["rank"], message["what"], message["name"], message["value"])

    def answered(self, rank: int, found: bool, value: str) -> None:
        """The tree's root has answered the first question of a rank."""
        client = self._clients[rank]
        if client.asking and self._link is not None:
            ticket = client.asking.pop(0)
            self._link.send({"op": "answer", "ticket": ticket, "found": found, "value": value})

    def _notice(self, message: "Message") -> None:
        # The rank waits for this, so its end is never seen before its last message.
        if self._link is not None:
            self._link.send({"op": "noticed", "ticket": message["ticket"]})

    def _on_aborted(self, message: "Message") -> None:
        rank, status = message["rank"], message["status"] or 1
        text = f": {message['message']}" if message["message"] not in ("", "N/A") else ""
        self._pmi.abort(rank, status, f"rank {rank} on {self._load.name} called MPI_Abort with {status}{text}")
        self._notice(message)

    def _on_fenced(self, message: "Message") -> None:
        self._data += base64.b64decode(message["data"])
        if not message.get("more", False):
            self._pending.append(self._data)
            self._data = b""
            self._enter_next()

    def _enter_next(self) -> None:
        # One machine may be in the program's first fence while ranks of another have not connected yet.
        if not self._pending or self._fence >= self._released:
            return
        data = self._pending.pop(0)
        self._fence += 1
        exchange = self._pmi.exchange
        for number, start in enumerate(range(0, len(data), _CHUNK)):
            part = base64.b64encode(data[start : start + _CHUNK]).decode("ascii")
            exchange.put(f"{self._fence}.{self._load.place}.{number}", part)
        for rank in self._load.ranks:
            exchange.enter(rank)
        self._pmi.settle()

    # Messages in the tree

    def released(self, known: "Dict[str, str]") -> None:
        """A fence of the exchange has completed."""
        number, self._released = self._released, self._released + 1
        if number and self._leads and self._link is not None:
            parts = _parts(known, number)
            for place, part in enumerate(parts or [""]):
                self._link.send({"op": "released", "data": part, "more": place < len(parts) - 1})
        self._enter_next()

    def _on_wanted(self, message: "Message") -> None:
        self.carry(dict(message, place=self._load.place), "wanted")

    def _on_given(self, message: "Message") -> None:
        place, ticket = message["ticket"] >> 32, message["ticket"] & 0xFFFFFFFF
        self.carry({"place": place, "ticket": ticket, "code": message["code"], "data": message["data"]}, "given")

    def carry(self, message: "Message", op: str) -> None:
        """A question for a rank's data, or an answer, on its way through the root."""
        if not self._launch.tree.is_root:
            self._launch.tree.up.flush(control(dict(message, op=op)))
        elif op == "wanted":
            self.down(dict(message, op="give"))
        else:
            self.down(dict(message, op="found"))

    def down(self, message: "Message") -> None:
        """A question or an answer that comes down the tree."""
        asks = message["op"] == "give"
        mine = message["rank"] in self._load.ranks if asks else message["place"] == self._load.place
        if not mine:
            if self._pmi.to_child_of(message) or not asks:
                return
            lost = {"place": message["place"], "ticket": message["ticket"], "code": _NOT_FOUND, "data": ""}
            self.carry(lost, "given")
        elif self._link is not None and asks:
            ticket = message["place"] << 32 | message["ticket"]
            self._link.send({"op": "give", "ticket": ticket, "rank": message["rank"]})
        elif self._link is not None:
            self._link.send({key: message[key] for key in ("ticket", "code", "data")} | {"op": "found"})

    def close(self) -> None:
        """The ranks have ended: end the server and remove the ranks' memory."""
        self._memory.remove()
        if self._link is not None:
            self._link.close()
            self._link = None


def candidates(hint: str, program: str) -> "List[str]":
    """Paths where libpmix may be: from the site, from yod, beside the program's own MPI, and in system directories."""
    told = os.environ.get("REDMESH_PMIX_LIBRARY")
    if told:
        return [told]
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(program)))
    near = [os.path.join(prefix, "lib", *folder, "libpmix.so.2") for folder in ((), ("openmpi",))]
    return [*([hint] if hint else []), *near, "libpmix.so.2"]


def _parts(known: "Dict[str, str]", fence: int) -> "List[str]":
    found = []
    for key in [key for key in known if key.startswith(f"{fence}.")]:
        _, place, number = key.split(".")
        found.append((int(place), int(number), known.pop(key)))
    return [part for _, _, part in sorted(found)]


def _be_server(line: socket.socket, job: "Dict[str, Any]") -> "NoReturn":
    # Forked, not executed: in system mode the user may not read our files. The server has threads and never forks.
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if not ending.is_meant():  # ranks need the server while they end; it ends with its line
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fd = line.detach()
        os.closerange(3, fd)
        os.closerange(fd + 1, 1 << 20)
        os.setresuid(os.geteuid(), os.geteuid(), os.geteuid())
        os.setresgid(os.getegid(), os.getegid(), os.getegid())
        prctl.set_name(b"redmesh-pmix")
        gc.enable()
        for name in [name for name in os.environ if name.startswith(("PMIX_", "OMPI_", "PMI_"))]:
            del os.environ[name]  # variables of the user who started the mesh, which the library would use
        from agents.pmix.server import serve

        os._exit(1 if serve(job, socket.socket(fileno=fd)) else 0)  # without waiting for libpmix's threads
    finally:
        os._exit(1)


def _nothing() -> None:
    pass


def _ignore(_error: LoadFailed) -> None:
    pass
