"""The PMI server of a node: a descriptor for every rank, messages in the tree, and variables for a rendezvous.

Every rank gets one end of a socket pair (PMI_FD); most never use it. pmi.py interprets requests, and fences.py gathers
keys; this module has the descriptors and the messages.
"""

from __future__ import annotations

import os

from agents.link.lean import socket
from agents.link.loop import READ
from agents.pct.mpi.fences import CHUNK, Exchange, TooMuch
from agents.pct.mpi.name_service import NameService
from agents.pct.mpi.pmi import Client, Do, World
from agents.pct.mpi.pmi_syntax import PmiError
from agents.pct.mpi.process_mapping import host_of, mapping
from agents.wire.control import control
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from agents.pct.errors import LoadFailed
    from agents.pct.launch.context import LaunchContext
    from agents.pct.launch.tree import Child
    from agents.pct.mpi.mpich_memory import MpichMemory
    from agents.pct.mpi.pmix_bridge import Pmix
    from agents.pct.ranks.ranks import Rank
    from agents.wire.control import Message

#: The supported values of ``--mpi``, with the version that each allows (0: both).
_SERVED = {"auto": 0, "pmi1": 1, "pmi2": 2}
#: Seconds after GO at which the root checks whether rank 0 runs an MPI that has found no process manager.
LOOKS_S = (0.3, 1.0)
#: Seconds for which other ranks may still run after one exited with 0 between MPI_Init and MPI_Finalize.
UNFINISHED_S = 2.0
#: Seconds after which the other ranks are told of the exit of a rank that never used PMI; most launches are over by
#: then.
ABSENT_S = 1.0
_ALONE = (b"/libmpi.so.40", b"/libopen-rte.so", b"/libprrte.so")
_MPICH = (b"/libmpich.so", b"/libmpi.so.12")


class PmiServer:
    """The PMI server of a launch on one node, and its ranks' rendezvous.

    ``note`` writes to people; ``running()``: ranks run here or below, and nothing has ended the launch.
    """

    def __init__(self, launch: LaunchContext, note: Callable[[str], None], running: Callable[[], bool]) -> None:
        self._launch, self._note, self._running = launch, note, running
        self._loop, self._load, self._program, self._tree = launch.loop, launch.load, launch.program, launch.tree
        load, program = launch.load, launch.program
        told = program.parallel
        self._kind = str(told.get("mpi", "auto"))
        self._hosts: List[Any] = list(told.get("hosts") or [[0, load.size]])
        self._master = load.master if told.get("rendezvous", True) else None
        self._fds: Dict[int, int] = {}  # rank -> our end
        self._theirs: List[int] = []
        self._clients: Dict[int, Client] = {}
        self._ended: List[int] = []
        self._world: Optional[World] = None
        self._names = NameService()
        self._over = False  # the launch was told that it cannot continue
        self._looked = False  # the check has found an MPI without a process manager
        self._missed = False  # a rank here or below exited without using PMI, and this was, or soon will be, reported
        self._absent = -1  # such a rank
        # an exit without MPI_Finalize ends the launch, even with status 0
        self._strict = bool(told.get("strict", False))
        self._unfinished = ""  # the first rank here or below that exited with 0 without MPI_Finalize, and how
        self._pmix: Optional[Pmix] = self._make_pmix() if self._kind == "pmix" else None
        self._memory: Optional[MpichMemory] = None  # memory shared by MPICH's local ranks, once one has used PMI
        self._topology = ""
        if told.get("hwloc") and not any(name.startswith(b"HWLOC_") for name in program.env):
            from agents.pct.mpi.hwloc import offered

            self._topology = offered(launch.run)

    def _make_pmix(self) -> Pmix:
        from agents.pct.mpi.pmix_bridge import Pmix

        return Pmix(self._launch, self, self._clients, self._note)

    def prepare(self, then: Callable[[], None], failed: Callable[[LoadFailed], None]) -> None:
        """Call ``then`` when everything that ranks inherit exists, otherwise ``failed``."""
        if self._pmix is not None:
            self._pmix.prepare(then, failed)
        else:
            then()

    def close(self) -> None:
        """The ranks are about to be killed, or have ended."""
        if self._pmix is not None:
            self._pmix.close()
        if self._memory is not None:
            self._memory.remove()

    @property
    def yields(self) -> bool:
        """True if waiting ranks should yield: there are more on this machine than it has processors."""
        return self._pmix is not None and self._pmix.yields

    @property
    def silent(self) -> bool:
        """True if no rank here or below has used PMI: they are not MPI programs."""
        return not self._clients and self._world is None

    # What a rank inherits

    def environment(self) -> Dict[bytes, bytes]:
        """Variables that are equal for all ranks of this node."""
        found: Dict[bytes, bytes] = {}
        local = b"%d" % len(self._load.ranks)
        if self._kind in _SERVED:
            found = {b"PMI_SIZE": b"%d" % self._load.size, b"MPI_LOCALNRANKS": local}
        if self._topology:
            found[b"HWLOC_XMLFILE"], found[b"HWLOC_THISSYSTEM"] = os.fsencode(self._topology), b"1"
        if self._master is not None:
            found[b"WORLD_SIZE"], found[b"LOCAL_WORLD_SIZE"] = b"%d" % self._load.size, local
            found[b"GROUP_RANK"] = b"%d" % self._load.place
            found[b"MASTER_ADDR"] = str(self._master[0]).encode("latin-1", "replace")
            found[b"MASTER_PORT"] = b"%d" % self._master[1]
        return found

    def names(self) -> List[bytes]:
        """The names of variables that differ from rank to rank."""
        found = [b"PMI_FD", b"PMI_RANK", b"MPI_LOCALRANKID"] if self._kind in _SERVED else []
        if self._pmix is not None:
            from agents.pct.mpi.pmix_bridge import SLOTS

            found = [b""] * SLOTS
        return found + [b"RANK", b"LOCAL_RANK"] if self._master is not None else found

    def plan(self, rank: int, local: int) -> Tuple[int, List[bytes]]:
        """The descriptor that ``rank`` keeps over its exec (or -1), and its own variables. Raises OSError."""
        entries: List[bytes] = []
        kept = -1
        if self._kind in _SERVED:
            ours, theirs = socket.socketpair()
            kept = theirs.detach()
            self._theirs.append(kept)
            fd = self._fds[rank] = ours.detach()
            os.set_blocking(fd, False)
            self._loop.watch(fd, READ, lambda _events: self._on_data(rank, fd))
            entries += (b"PMI_FD=%d" % kept, b"PMI_RANK=%d" % rank, b"MPI_LOCALRANKID=%d" % local)
        if self._pmix is not None:
            entries += self._pmix.entries(rank)
        if self._master is not None:
            entries += (b"RANK=%d" % rank, b"LOCAL_RANK=%d" % local)
        return kept, entries

    def forked(self) -> None:
        """The ranks have been forked, with their ends."""
        for fd in self._theirs:
            os.close(fd)
        self._theirs = []

    def released(self, ranks: Callable[[], List[List[int]]]) -> None:
        """GO has come. ``ranks()``: rank and pid of the living."""
        if self._tree.is_root and self._kind != "none" and self._load.size > 1:
            for delay_s in LOOKS_S:
                self._loop.after(delay_s, lambda: self._look(ranks()))

    def _look(self, living: List[List[int]]) -> None:
        rank, pid = living[0] if living else (-1, 0)
        if rank < 0 or rank in self._clients or self._looked:
            return
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                loaded = file.read()
        except OSError:
            return
        found = _MPICH if self._pmix is not None else _ALONE
        if any(name in loaded for name in found):
            self._looked = True
            has = ("MPICH", "PMI", "PMIx", "auto") if self._pmix is not None else ("Open MPI", "PMIx", "PMI", "pmix")
            self._note(
                "rank %d has loaded %s, which needs %s and was offered %s: every rank believes that it is alone;"
                " say --mpi=%s, or --mpi=none if that is meant" % (rank, *has)
            )

    # Messages of ranks

    def _on_data(self, rank: int, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(rank)
            return
        client = self._clients.get(rank)
        if client is None:
            segment = self._program.segment_of(rank)
            client = self._clients[rank] = Client(self._the_world(), rank, self._program.segments.index(segment))
            self._keep_memory()
        try:
            for action in client.feed(data):
                self._DO[action[0]](self, rank, *action[1:])
        except (PmiError, TooMuch) as error:
            self._close(rank)
            self.abort(rank, 125, f"rank {rank} on {self._load.name}: its PMI is not understood: {error}")
        if self._absent >= 0:
            self._look_for_waiting()

    def _keep_memory(self) -> None:
        if self._memory is None:
            from agents.pct.mpi.mpich_memory import MpichMemory

            load = self._load
            name = f"{load.mesh}-{load.name}-{load.launcher}-memory"
            self._memory = MpichMemory(self._name(), host_of(self._hosts, load.ranks[0]), name)

    @property
    def exchange(self) -> Exchange:
        """The fences of this launch on this node."""
        return self._the_world().exchange

    def _the_world(self) -> World:
        if self._world is None:
            children = {child.name: sorted(child.ranks) for child in self._tree.children}
            exchange = Exchange(self._load.ranks, children)
            for rank in self._ended:
                exchange.ended(rank)
            self._world = World(
                self._load.size, self._name(), mapping(self._hosts), exchange,
                _SERVED.get(self._kind, 0),
            )  # fmt: skip
        return self._world

    def _name(self) -> str:
        # MPIs derive the names of shared memory from it, and must not find the memory of a killed program.
        load = self._load
        return "_".join(["redmesh", load.mesh, str(load.launcher), *map(str, (load.master or [])[2:])])

    def _send(self, rank: int, data: bytes) -> None:
        fd = self._fds.get(rank)
        if fd is None or not data:
            return
        try:
            if os.write(fd, data) == len(data):
                return
        except BlockingIOError:
            pass
        except OSError:
            return  # it has exited, which reaping reports
        self._close(rank)
        self.abort(rank, 125, f"rank {rank} on {self._load.name} does not read what PMI answers")

    def _close(self, rank: int) -> None:
        fd = self._fds.pop(rank, None)
        if fd is not None:
            self._loop.unwatch(fd)
            os.close(fd)

    def _enter(self, rank: int) -> None:
        self.exchange.enter(rank)
        self.settle()

    def ask(self, rank: int, what: str, name: str, value: str) -> None:
        """A rank asks the tree's root about a name."""
        self._on_ask({"op": "ask", "rank": rank, "what": what, "name": name, "value": value})

    def _aborted(self, rank: int, status: int, message: str) -> None:
        more = f": {message[:500]}" if message else ""
        self.abort(rank, status, f"rank {rank} on {self._load.name} called MPI_Abort with {status}{more}")

    def _noted(self, _rank: int, text: str) -> None:
        self._note(text)

    def rank_ended(self, rank: Rank) -> None:
        """A rank has been reaped; others may wait for it in vain."""
        number = rank.number
        fd = self._fds.get(number)
        if fd is not None:
            self._on_data(number, fd)  # its last messages
        self._close(number)
        client = self._clients.get(number)
        if client is not None and client.speaking:
            status = rank.status or 0
            died = os.WIFSIGNALED(status)
            how = f"died of {_signal_name(os.WTERMSIG(status))}" if died else f"ended with {os.WEXITSTATUS(status)}"
            text = f"rank {number} on {self._load.name} {how} between MPI_Init and MPI_Finalize"
            why = self._pmix.rank_ended(number) if self._pmix is not None else ""
            if status == 0 and not self._strict:
                self._on_unfinished({"op": "absent", "rank": number, "text": text})
            else:
                self.abort(number, None, text + why)
        self._ended.append(number)
        if client is None and not self._missed and self._kind in _SERVED and self._load.size > 1:
            self._missed = True
            self._loop.after(ABSENT_S, lambda: self._on_absent({"op": "absent", "rank": number}))
        if self._world is not None:
            self._world.exchange.ended(number)
            self.settle()

    def _on_unfinished(self, message: Message) -> None:
        # A program whose ranks all exit with 0 has succeeded, whatever it left out; one whose ranks still wait has not.
        # The root waits, not the node, which may have finished the launch by then.
        if self._unfinished or self._over:
            return
        rank, text = message["rank"], message["text"]
        self._unfinished = text
        if not self._tree.is_root:
            self._tree.up.flush(control(message))
            return
        self._note(
            f"{text}; this is no error if every rank exits within {UNFINISHED_S:g} s (--mpi-strict makes it one)"
        )
        self._loop.after(UNFINISHED_S, lambda: self.abort(rank, None, text))

    # MPIs with all ranks on one machine may synchronise in shared memory, which is no fence.

    def _on_absent(self, message: Message) -> None:
        if self._over or self._absent >= 0 or not self._running():
            return
        if not self._tree.is_root:
            self._tree.up.flush(control(message))
            return
        self._take_absent(message)

    def _take_absent(self, message: Message) -> None:
        self._absent = message["rank"]
        self._tree.send_down(control(message))
        self._look_for_waiting()

    def _look_for_waiting(self) -> None:
        if any(client.speaking for client in self._clients.values()):
            self._broken([self._absent])

    # Messages in the tree

    def settle(self) -> None:
        """Check whether a fence has completed after a change."""
        if self._world is None:
            return
        exchange = self._world.exchange
        for child in self._tree.children:
            if child.over or child.ranks <= child.exited:
                exchange.child_gone(child.name)
        if not exchange.complete():
            return
        absent = exchange.absent()
        if not self._tree.is_root:
            self._tell_up(exchange, absent)
        elif absent:
            exchange.break_up()
            self._broken(absent)
        else:
            self._pass_down(exchange.number, list(exchange.fresh()))
            self._release(exchange)

    def _broken(self, absent: List[int]) -> None:
        ranks = f"rank {absent[0]}" + (f" and {len(absent) - 1} more" if len(absent) > 1 else "")
        if self._unfinished and absent[0] in self._ended:
            self.abort(absent[0], None, self._unfinished)
            return
        which = "MPI_Init" if self._world is None or not self._world.exchange.number else "a PMI fence"
        self.abort(absent[0], None, f"{ranks} ended before {which}, in which the others wait")

    def _tell_up(self, exchange: Exchange, absent: List[int]) -> None:
        puts = list(exchange.fresh())
        data = b"".join(
            control({"op": "fence", "number": exchange.number, "puts": part, "more": True}) for part in puts[:-1]
        )
        last = {"op": "fence", "number": exchange.number, "puts": puts[-1]}
        self._tree.up.flush(data + control(dict(last, absent=absent) if absent else last))

    def _pass_down(self, number: int, puts: List[List[str]]) -> None:
        if not self._tree.children:
            return
        for place, part in enumerate(puts):
            message: Message = {"op": "fenced", "number": number, "puts": part}
            if place < len(puts) - 1:
                message["more"] = True
            self._tree.send_down(control(message))

    def _release(self, exchange: Exchange) -> None:
        if self._pmix is not None:
            exchange.release()
            self._pmix.released(exchange.known)
            self.settle()
            return
        for rank in exchange.release():
            self._send(rank, self._clients[rank].released())

    def orders(self) -> Dict[str, Callable[[Message], None]]:
        return {
            "answer": lambda message: self._answer(message["rank"], message["found"], message["value"]),
            "give": self._on_pmix_order,
            "found": self._on_pmix_order,
            "absent": self._take_absent,
            "fenced": self._on_fenced,
        }

    def reports(self) -> Dict[str, Callable[[Child, Message], None]]:
        return {
            "abort": lambda _child, message: self._abort_with(message),
            "absent": self._on_child_absent,
            "wanted": self._on_pmix_report,
            "given": self._on_pmix_report,
            "ask": self._on_child_ask,
            "fence": self._on_child_fence,
        }

    def _on_pmix_order(self, message: Message) -> None:
        if self._pmix is not None:
            self._pmix.down(message)

    def _on_pmix_report(self, _child: Child, message: Message) -> None:
        if self._pmix is not None:
            self._pmix.carry(message, message["op"])

    def _on_fenced(self, message: Message) -> None:
        self._tree.send_down(control(message))
        exchange = self.exchange
        exchange.coming(message["number"], message["puts"])
        if not message.get("more", False):
            self._release(exchange)

    def _on_child_absent(self, _child: Child, message: Message) -> None:
        if "text" in message:
            self._on_unfinished(message)
        elif not self._missed:  # one report of a subtree is enough
            self._missed = True
            self._on_absent(message)

    def _on_child_ask(self, child: Child, message: Message) -> None:
        if message["rank"] not in child.ranks:
            raise WireError("a question for a rank of another subtree")
        self._on_ask(message)

    def _on_child_fence(self, child: Child, message: Message) -> None:
        exchange = self.exchange
        try:
            exchange.child_put(message["number"], message["puts"])
        except TooMuch as error:
            self.abort(min(child.ranks), 125, str(error))
            return
        if not message.get("more", False):
            exchange.child_inside(child.name, message.get("absent", []))
            self.settle()

    def child_lost(self, child: Child, reason: str) -> None:
        """A subtree is lost, so an MPI program cannot continue."""
        if self._world is not None and self._running() and not child.ranks <= child.exited:
            self.abort(min(child.ranks), None, f"lost {child.name} with ranks of an MPI program: {reason}")

    def _on_ask(self, message: Message) -> None:
        if not self._tree.is_root:
            self._tree.up.flush(control(message))
            return
        rank = message["rank"]
        host = host_of(self._hosts, rank)
        for answer in self._names.ask(rank, host, message["what"], message["name"], message["value"]):
            self._answer(*answer)

    def _answer(self, rank: int, found: bool, value: str) -> None:
        client = self._clients.get(rank)
        if client is not None and self._pmix is not None:
            self._pmix.answered(rank, found, value)
            return
        if client is not None:
            self._send(rank, client.answered(value, found=found, why="" if found else "not_found"))
            return
        self._tree.send_down(control({"op": "answer", "rank": rank, "found": found, "value": value}), [rank])

    def to_child_of(self, message: Message) -> bool:
        """Send a question to the subtree with its rank, or an answer to the one with its place; False: none."""
        for child in self._tree.children:
            places = {place for place, _ in child.nodes}
            if not child.over and (message["rank"] in child.ranks if "rank" in message else message["place"] in places):
                child.send_raw(control(message))
                return True
        return False

    def abort(self, rank: int, status: Optional[int], text: str) -> None:
        """A rank ends the launch, or makes its continuation impossible."""
        self._abort_with({"op": "abort", "node": self._load.name, "rank": rank, "exit_status": status, "message": text})

    def _abort_with(self, message: Message) -> None:
        # Report only the first cause, not what follows from it or from being ended.
        if not self._over and self._running():
            self._over = True
            self._tree.up.flush(control(message))

    _DO: Dict[Do, Any] = {Do.SEND: _send, Do.ENTER: _enter, Do.ASK: ask, Do.ABORT: _aborted, Do.NOTE: _noted}


def _signal_name(number: int) -> str:
    import signal  # its names cost each node 2 ms; a rank's death is rare

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
