"""The state machine of one rank's PMI connection, for both versions: it returns what to send, ask and report.

The client's first bytes tell the version (agents/pct/mpi/pmi1.py, pmi2.py have the syntax). The process manager's side
of both is the same: keys, fences, names, an end.
"""

from __future__ import annotations

from agents.link.lean import Enum
from agents.pct.mpi.pmi1 import Pmi1
from agents.pct.mpi.pmi2 import Pmi2
from agents.pct.mpi.pmi_syntax import PmiError, Request, Verb

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, Union

    from agents.pct.mpi.fences import Exchange

    Action = Tuple[Any, ...]
    _Entry = Tuple[Callable[["Client", Request], "State"], Tuple["State", ...]]


MAPPING = "PMI_process_mapping"


class State(Enum):
    """The PMI state of a rank."""

    SILENT = "silent"  # it has sent nothing, as most programs
    INITIALISED = "initialised"
    FENCED = "fenced"  # waits in a fence
    ASKING = "asking"  # waits for an answer from the tree
    FINALISED = "finalised"
    ABORTED = "aborted"


S = State
_ON = (S.INITIALISED,)


class Do(Enum):
    """An action for a rank."""

    SEND = "send"  # bytes
    ENTER = "enter"  # enter the fence
    ASK = "ask"  # ask the tree's root: what, name, value
    ABORT = "abort"  # exit status, message
    NOTE = "note"  # a text for people


class World:
    """The values that are equal for every rank of this node."""

    def __init__(self, size: int, kvsname: str, mapping: str, exchange: "Exchange", served: int = 0) -> None:
        self.size, self.kvsname, self.mapping, self.exchange = size, kvsname, mapping, exchange
        self.served = served  # 1 or 2: only that version; 0: both


class Client:
    """A rank. ``feed`` its bytes; call ``released`` when its fence completes, ``answered`` when the tree has
    answered."""

    def __init__(self, world: World, rank: int, appnum: int) -> None:
        self.state = State.SILENT
        self._world, self._rank, self._appnum = world, rank, appnum
        self._text: "Union[Pmi1, Pmi2]" = Pmi1()
        self._pending: "Optional[Request]" = None
        self._actions: "List[Action]" = []

    @property
    def speaking(self) -> bool:
        """True between init and finalize: an exit then breaks the program."""
        return self.state in (State.INITIALISED, State.FENCED, State.ASKING)

    def feed(self, data: bytes) -> "List[Action]":
        """The actions for received bytes. Raises PmiError for invalid PMI."""
        self._actions = []
        while data:
            before = self._text
            try:
                for request in self._text.feed(data):
                    self._handle(request)
            except PmiError:
                if self.state is not State.ABORTED:  # bytes after an abort are ignored
                    raise
                return self._actions
            data = b""
            if self._text is not before:  # frames may follow the line that announced them
                data = before.take_rest()
        return self._actions

    def _handle(self, request: Request) -> None:
        entry = self.TRANSITIONS.get((self.state, request.verb))
        if entry is None:
            raise PmiError(f"{request.verb.name.lower()} from a rank that is {self.state.value}")
        state = entry[0](self, request)
        assert state in entry[1], f"{self.state} + {request.verb} may not become {state}"
        self.state = state

    def released(self) -> bytes:
        """The fence has completed: returns the bytes to send."""
        assert self._pending is not None
        self.state = State.INITIALISED
        return self._text.answer(self._pending)

    def answered(self, value: str, *, found: bool, why: str = "") -> bytes:
        """The tree has answered: returns the bytes to send."""
        if self._pending is None or self.state is not State.ASKING:
            return b""
        self.state = State.INITIALISED
        return self._text.answer(self._pending, value, found=found, why=why)

    def _send(self, data: bytes) -> None:
        self._actions.append((Do.SEND, data))

    def _say(self, request: Request, value: str = "", *, found: bool = True, why: str = "") -> State:
        self._send(self._text.answer(request, value, found=found, why=why))
        return State.INITIALISED

    # Transitions

    def _init(self, request: Request) -> State:
        wanted = 2 if request.get("pmi_version", "1") == "2" else 1
        if self._world.served not in (0, wanted):
            self._actions.append((Do.NOTE, f"rank {self._rank} asks for PMI-{wanted}, which this launch refuses"))
            self._send(b"cmd=response_to_init pmi_version=%d pmi_subversion=0 rc=-1\n" % self._world.served)
            return State.FINALISED
        if wanted == 2:
            self._text = Pmi2()
            self._send(b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n")
        else:
            self._send(self._text.initialised(self._rank, self._world.size, self._appnum))
        return State.INITIALISED

    def _full_init(self, request: Request) -> State:
        self._send(self._text.initialised(self._rank, self._world.size, self._appnum))
        return State.INITIALISED

    def _constant(self, request: Request) -> State:
        world = self._world
        values: Dict[Verb, object] = {Verb.UNIVERSE: world.size, Verb.APPNUM: self._appnum}
        values[Verb.KVSNAME] = values[Verb.JOBID] = world.kvsname
        return self._say(request, str(values.get(request.verb, "")))

    def _put(self, request: Request) -> State:
        self._world.exchange.put(request.get("key"), request.get("value"))
        return self._say(request)

    def _get(self, request: Request) -> State:
        key = request.get("key")
        value = self._world.mapping if key == MAPPING else self._world.exchange.known.get(key)
        return self._say(request, value or "", found=value is not None, why="" if value is not None else "no_such_key")

    def _job_attribute(self, request: Request) -> State:
        key = request.get("key")
        known = {MAPPING: self._world.mapping, "universeSize": str(self._world.size)}
        return self._say(request, known.get(key, ""), found=key in known)

    def _fence(self, request: Request) -> State:
        self._pending = request
        self._actions.append((Do.ENTER,))
        return State.FENCED

    def _ask(self, request: Request) -> State:
        self._pending = request
        name = request.get("key") or request.get("name") or request.get("service")
        what = request.verb.name.lower()
        if request.verb is Verb.GET_NODE and request.get("wait").upper() == "TRUE":
            what = "await_node"
        self._actions.append((Do.ASK, what, name, request.get("value") or request.get("port")))
        return State.ASKING

    def _refuse_spawn(self, request: Request) -> State:
        text = f"rank {self._rank} asked for more processes (MPI_Comm_spawn): yod starts all at once, with -sz"
        self._actions.append((Do.NOTE, text))
        return self._say(request, found=False, why="spawn_is_not_supported")

    def _finalize(self, request: Request) -> State:
        self._send(self._text.answer(request))
        if self._text.version == 2:
            self._text = Pmi1()  # a second program begins with a line again
        return State.FINALISED

    def _abort(self, request: Request) -> State:
        text = request.get("exitcode") or request.get("exit-code")
        code = int(text) if text.lstrip("-").isdigit() and len(text) < 12 else 1
        self._actions.append((Do.ABORT, code & 0xFF or 1, (request.get("message") or request.get("msg")).strip()))
        return State.ABORTED

    def _ignore(self, _request: Request) -> State:
        # MPICH 5 may send a fence or its finalize after the abort; replying or refusing would hide the abort.
        return State.ABORTED

    #: (state, verb): (the handler, the states it may lead to). Commands come in lock-step; everything else is an error.
    TRANSITIONS: Dict[Tuple[State, Verb], _Entry] = {
        (S.SILENT, Verb.INIT): (_init, (S.INITIALISED, S.FINALISED)),
        (S.SILENT, Verb.ABORT): (_abort, (S.ABORTED,)),
        (S.FINALISED, Verb.INIT): (_init, (S.INITIALISED, S.FINALISED)),  # a second program of a script
        (S.FINALISED, Verb.ABORT): (_abort, (S.ABORTED,)),
        (S.INITIALISED, Verb.FULLINIT): (_full_init, _ON),
        (S.INITIALISED, Verb.MAXES): (_constant, _ON),
        (S.INITIALISED, Verb.UNIVERSE): (_constant, _ON),
        (S.INITIALISED, Verb.APPNUM): (_constant, _ON),
        (S.INITIALISED, Verb.KVSNAME): (_constant, _ON),
        (S.INITIALISED, Verb.JOBID): (_constant, _ON),
        (S.INITIALISED, Verb.PUT): (_put, _ON),
        (S.INITIALISED, Verb.GET): (_get, _ON),
        (S.INITIALISED, Verb.GET_JOB): (_job_attribute, _ON),
        (S.INITIALISED, Verb.FENCE): (_fence, (S.FENCED,)),
        (S.INITIALISED, Verb.PUT_NODE): (_ask, (S.ASKING,)),
        (S.INITIALISED, Verb.GET_NODE): (_ask, (S.ASKING,)),
        (S.INITIALISED, Verb.PUBLISH): (_ask, (S.ASKING,)),
        (S.INITIALISED, Verb.UNPUBLISH): (_ask, (S.ASKING,)),
        (S.INITIALISED, Verb.LOOKUP): (_ask, (S.ASKING,)),
        (S.INITIALISED, Verb.SPAWN): (_refuse_spawn, _ON),
        (S.INITIALISED, Verb.ABORT): (_abort, (S.ABORTED,)),
        (S.INITIALISED, Verb.FINALIZE): (_finalize, (S.FINALISED,)),
        (S.FENCED, Verb.ABORT): (_abort, (S.ABORTED,)),
        (S.ASKING, Verb.ABORT): (_abort, (S.ABORTED,)),
    }


Client.TRANSITIONS.update({(S.ABORTED, verb): (Client._ignore, (S.ABORTED,)) for verb in Verb})
