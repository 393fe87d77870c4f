"""The PMIx server of a launch on one machine, between libpmix and the launch children of that machine.

The first launch child starts it and holds ``line``; the server exits when that closes. The others connect to the socket
in its directory. docs/protocol.md, "PMIx", has the messages.
"""

from __future__ import annotations

import base64
import os
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from agents.link.acceptor import Acceptor
from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.link.sockets import listen
from agents.pmix.job import Job, facts, host_name, node_list, rank_list
from agents.pmix.library import DUPLICATE, NOT_FOUND, NOT_SUPPORTED, SUCCESS, Library, NoLibrary
from agents.wire.control import Message, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL
from agents.wire.messages import PMIX, check

HINT = "install a PMIx server library there (Debian: libpmix2), or use MPICH; --mpi=none starts every rank by itself"
#: Data in one message; the data of a fence takes as many as needed.
CHUNK = 4 << 20


class PmixServer:
    """Serves until ``line`` ends."""

    def __init__(self, job: Job, libraries: "List[str]", line: Any) -> None:
        self._job = job
        self._loop = Loop()
        self._events: Deque[Tuple[Any, ...]] = deque()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._loop.watch(self._wake, READ, self._on_wake)
        self._links: Dict[int, Tuple[Link, Set[int]]] = {}
        self._environment: Dict[str, str] = {}
        self._names: Dict[int, Tuple[str, int, str]] = {}  # ticket -> the name that a rank asked for
        self._spawn_refused = False
        self._fence = 0  # the ticket of the fence that waits
        self._coming = b""
        self._leader = self._accept(line)
        try:
            self._library = self._begin(libraries)
        except NoLibrary as error:
            self._leader.send({"op": "failed", "message": error.message, "hint": HINT})
            self._leader.close(flush=True)
            raise
        self._socket = listen(os.path.join(job.directory, "sock"))
        self._acceptor = Acceptor(self._loop, self._socket, self._on_connection)

    def run(self) -> None:
        """Serve until the launch child that started this has exited."""
        self._loop.run()
        self._library.end()

    def _begin(self, libraries: "List[str]") -> Library:
        job = self._job
        library = self._first(libraries)
        library.begin(job.directory, host_name(job.here))
        node_map = library.generate("PMIx_generate_regex", node_list(job))
        proc_map = library.generate("PMIx_generate_ppn", rank_list(job))
        library.register_job(job.nspace, len(job.local), facts(job, node_map, proc_map))
        for rank in job.local:
            library.register_rank(job.nspace, rank)
        self._environment = library.environment(job.nspace, job.local[0])
        self._environment.pop("PMIX_RANK", None)
        return library

    def _first(self, libraries: "List[str]") -> Library:
        why = ""
        for path in libraries:
            if "/" in path and not os.path.exists(path):
                continue
            try:
                return Library(path, self._tell)
            except NoLibrary as error:
                why = error.message
        raise NoLibrary(why or "no libpmix is there")

    # The library's requests come on a thread of its own.

    def _tell(self, event: "Tuple[Any, ...]") -> None:
        self._events.append(event)
        try:
            os.write(self._waker, b".")
        except BlockingIOError:
            pass  # it is already awake

    def _on_wake(self, _events: int) -> None:
        os.read(self._wake, 65536)
        while self._events:
            what, *rest = self._events.popleft()
            getattr(self, f"_asked_{what}")(*rest)

    def _asked_connected(self, rank: int) -> None:
        self._to_host_of(rank, {"op": "connected", "rank": rank})

    # A rank may exit right after either message, and its exit must not be seen before the message.

    def _asked_finalized(self, ticket: int, rank: int) -> None:
        if not self._to_host_of(rank, {"op": "finalized", "rank": rank, "ticket": ticket}):
            self._library.done(ticket)

    def _asked_abort(self, ticket: int, rank: int, status: int, text: str) -> None:
        told = {"op": "aborted", "rank": rank, "status": status & 0xFF, "message": text[:500], "ticket": ticket}
        if not self._to_host_of(rank, told):
            self._library.done(ticket)

    def _asked_fence(self, ticket: int, ranks: "List[int]", data: bytes) -> None:
        whole = not ranks or len(set(ranks)) == self._job.size
        if not whole or self._fence:
            self._library.answer(ticket, NOT_SUPPORTED)
            text = "a PMIx fence of some of the ranks across machines is not supported"
            self._leader.send({"op": "noted", "message": text})
            return
        self._fence = ticket
        for link, _ in list(self._links.values()):
            if link is not self._leader:
                link.send({"op": "fenced", "data": "", "more": False})
        self._send_data("fenced", data)

    def _asked_name(self, ticket: int, rank: int, what: str, name: str, value: str) -> None:
        told = {"op": "ask", "ticket": ticket, "rank": rank, "what": what, "name": name, "value": value}
        self._names[ticket] = what, rank, name
        if not self._to_host_of(rank, told):
            self._answer_name(ticket, False, "")

    def _answer_name(self, ticket: int, found: bool, value: str) -> None:
        what, rank, name = self._names.pop(ticket, ("", 0, ""))
        if what == "lookup":
            self._library.looked_up(ticket, rank, name, value if found else None)
        elif what:
            wrong = DUPLICATE if what == "publish" else NOT_FOUND
            self._library.published(ticket, SUCCESS if found else wrong)

    def _asked_spawn(self, rank: int) -> None:
        if self._spawn_refused:  # Open MPI 5 asks once for every rank of the communicator
            return
        self._spawn_refused = True
        text = f"rank {rank} asked for more processes (MPI_Comm_spawn): yod starts all at once, with -sz"
        self._leader.send({"op": "noted", "message": text})

    def _asked_modex(self, ticket: int, rank: int) -> None:
        if rank >= self._job.size:  # the job's own data are here already
            self._library.answer(ticket, NOT_FOUND)
            return
        self._leader.send({"op": "wanted", "ticket": ticket, "rank": rank})

    def _asked_given(self, link: Link, ticket: int, code: int, data: bytes) -> None:
        text = base64.b64encode(data).decode("ascii")
        link.send({"op": "given", "ticket": ticket, "code": code, "data": text})

    def _send_data(self, op: str, data: bytes) -> None:
        for start in range(0, max(1, len(data)), CHUNK):
            part = data[start : start + CHUNK]
            more = start + CHUNK < len(data)
            self._leader.send({"op": op, "data": base64.b64encode(part).decode("ascii"), "more": more})

    def _to_host_of(self, rank: int, message: Message) -> bool:
        for link, ranks in list(self._links.values()):
            if rank in ranks:
                link.send(message)
                return True
        return False

    # Messages of launch children

    def _on_connection(self, sock: Any, _address: object) -> None:
        self._accept(sock)

    def _accept(self, sock: Any) -> Link:
        link = Link(self._loop, sock, self._on_frame, self._on_end)
        self._links[id(link)] = (link, set())
        return link

    def _on_frame(self, link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where a message was expected")
        message = decode(payload)
        try:
            op = check(PMIX, message)
        except AgentError as error:
            raise WireError(error.message) from None
        if op == "serve":
            self._links[id(link)][1].update(message["ranks"])
            link.send({"op": "environment", "variables": self._environment})
        elif op == "released":
            self._released(message)
        elif op == "answer":
            self._answer_name(message["ticket"], message["found"], message["value"])
        elif op == "noticed":
            self._library.done(message["ticket"])
        elif op == "found":
            self._library.answer(message["ticket"], message["code"], base64.b64decode(message["data"]))
        else:
            ticket = message["ticket"]
            self._library.ask_rank(
                self._job.nspace, message["rank"], lambda code, data: self._tell(("given", link, ticket, code, data))
            )

    def _released(self, message: Message) -> None:
        self._coming += base64.b64decode(message["data"])
        if message.get("more", False) or not self._fence:
            return
        ticket, self._fence = self._fence, 0
        data, self._coming = self._coming, b""
        self._library.answer(ticket, SUCCESS, data)

    def _on_end(self, link: Link, _reason: str) -> None:
        self._links.pop(id(link), None)
        if link is self._leader:
            self._loop.stop()


def read_job(told: "Dict[str, Any]") -> "Tuple[Job, List[str]]":
    """Parse the launch child's description of the launch, and where libpmix may be."""
    job = Job(
        str(told["nspace"]), int(told["size"]), [list(map(int, run)) for run in told["hosts"]], int(told["here"]),
        [int(first) for first in told["firsts"]], str(told["directory"]),
    )  # fmt: skip
    return job, [str(path) for path in told["libraries"]]


def serve(told: "Dict[str, Any]", line: Any) -> Optional[str]:
    """Serve one launch; returns the error that prevented it."""
    job, libraries = read_job(told)
    try:
        PmixServer(job, libraries, line).run()
    except AgentError as error:
        return error.message
    return None
