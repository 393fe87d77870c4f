"""libpmix through ctypes: the part of its server interface that Open MPI's programs need.

Layouts and names are those of the PMIx standard from version 3 on, whose ABI has not changed. Callbacks come on a
thread of the library; they only forward the request.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_size_t, c_uint16, c_uint32, c_void_p
from typing import Any, Callable, Dict, List, Optional, Tuple

from agents.wire.errors import AgentError

SUCCESS, DONE_ALREADY = 0, -157
NOT_FOUND, NOT_SUPPORTED, DUPLICATE = -46, -47, -53
WILDCARD = 0xFFFFFFFE
_NSPACE, _KEY = 256, 512
_BOOL, _STRING, _UINT16, _UINT32, _INFO, _ARRAY, _RANK = 1, 3, 13, 14, 24, 39, 40
#: Indices in the table of a server's functions (pmix_server_module_t), and its largest length.
CONNECTED, FINALIZED, ABORT, FENCE, MODEX, PUBLISH, LOOKUP, UNPUBLISH, SPAWN = range(9)
_MODULE = 64


class NoLibrary(AgentError):
    """libpmix is not installed, or unusable."""

    code = "pmix"


class Proc(Structure):
    """pmix_proc_t"""

    _fields_ = [("nspace", c_char * _NSPACE), ("rank", c_uint32)]


class Data(ctypes.Union):
    """The variants of a value."""

    _fields_ = [
        ("flag", ctypes.c_bool), ("string", c_char_p), ("uint16", c_uint16), ("uint32", c_uint32), ("array", c_void_p),
        ("room", c_char * 24),
    ]  # fmt: skip


class Value(Structure):
    """pmix_value_t"""

    _fields_ = [("type", c_uint16), ("data", Data)]


class Info(Structure):
    """pmix_info_t"""

    _fields_ = [("key", c_char * _KEY), ("flags", c_uint32), ("value", Value)]


class Found(Structure):
    """pmix_pdata_t"""

    _fields_ = [("proc", Proc), ("key", c_char * _KEY), ("value", Value)]


class Array(Structure):
    """pmix_data_array_t"""

    _fields_ = [("type", c_uint16), ("size", c_size_t), ("array", c_void_p)]


_OnDone = CFUNCTYPE(None, c_int, c_void_p)
_OnData = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p)
_Session = CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_void_p, c_void_p)
_Abort = CFUNCTYPE(c_int, POINTER(Proc), c_void_p, c_int, c_char_p, POINTER(Proc), c_size_t, c_void_p, c_void_p)
_Fence = CFUNCTYPE(
    c_int, POINTER(Proc), c_size_t, POINTER(Info), c_size_t, c_void_p, c_size_t, c_void_p, c_void_p
)  # fmt: skip
_Modex = CFUNCTYPE(c_int, POINTER(Proc), POINTER(Info), c_size_t, c_void_p, c_void_p)
_Spawn = CFUNCTYPE(c_int, POINTER(Proc), POINTER(Info), c_size_t, c_void_p, c_size_t, c_void_p, c_void_p)
_Publish = CFUNCTYPE(c_int, POINTER(Proc), POINTER(Info), c_size_t, c_void_p, c_void_p)
_Keys = CFUNCTYPE(c_int, POINTER(Proc), POINTER(c_char_p), POINTER(Info), c_size_t, c_void_p, c_void_p)
_OnFound = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)
_Response = CFUNCTYPE(None, c_int, c_void_p, c_size_t, c_void_p)


class Library:
    """A libpmix and its server in this process. ``tell(event)`` is called on the library's thread."""

    def __init__(self, path: str, tell: "Callable[[Tuple[Any, ...]], None]") -> None:
        try:
            self._lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            self._lib.PMIx_Error_string.restype = c_char_p
        except (OSError, AttributeError) as error:
            raise NoLibrary(f"{path} cannot be used: {error}") from None
        self._tell = tell
        self._kept: List[Any] = []  # data that the library still uses
        self._waiting: Dict[int, Any] = {}
        self._answers: List[Any] = []
        self._asked: List[Any] = []  # callbacks that the library has not called yet
        self._next = 0
        self._table = (c_void_p * _MODULE)()
        for place, kind, function in (
            (CONNECTED, _Session, self._connected), (FINALIZED, _Session, self._finalized),
            (ABORT, _Abort, self._abort), (FENCE, _Fence, self._fence), (MODEX, _Modex, self._modex),
            (SPAWN, _Spawn, self._spawn), (PUBLISH, _Publish, self._publish), (LOOKUP, _Keys, self._lookup),
            (UNPUBLISH, _Keys, self._unpublish),
        ):  # fmt: skip
            callback = kind(function)
            self._kept.append(callback)
            self._table[place] = ctypes.cast(callback, c_void_p).value

    # Calls of the library

    def begin(self, directory: str, host: str) -> None:
        """Start the server of ``host`` with files in ``directory``. Raises NoLibrary."""
        info = self._infos([("pmix.srvr.tmpdir", directory), ("pmix.sys.tmpdir", directory), ("pmix.hname", host)])
        self._check("PMIx_server_init", self._lib.PMIx_server_init(self._table, info, len(info)))

    def generate(self, function: str, text: str) -> str:
        """The result of ``PMIx_generate_regex`` or ``PMIx_generate_ppn`` for a list."""
        made = c_char_p()
        self._check(function, getattr(self._lib, function)(text.encode(), ctypes.byref(made)))
        return (made.value or b"").decode("latin-1")

    def register_job(self, nspace: str, local: int, facts: "List[Tuple[str, Any]]") -> None:
        """Register the launch; ``facts`` are keys and values, those of a rank as a nested list."""
        info = self._infos(facts)
        code = self._lib.PMIx_server_register_nspace(
            nspace.encode(), c_int(local), info, c_size_t(len(info)), None, None
        )
        self._check("PMIx_server_register_nspace", code)

    def register_rank(self, nspace: str, rank: int) -> None:
        """Register a rank of this machine, which runs as this process's user."""
        proc = Proc(nspace.encode(), rank)
        code = self._lib.PMIx_server_register_client(
            ctypes.byref(proc), c_uint32(os.getuid()), c_uint32(os.getgid()), None, None, None
        )
        self._check("PMIx_server_register_client", code)

    def environment(self, nspace: str, rank: int) -> "Dict[str, str]":
        """The variables by which ``rank`` finds this server."""
        proc = Proc(nspace.encode(), rank)
        found = POINTER(c_char_p)()
        code = self._lib.PMIx_server_setup_fork(ctypes.byref(proc), ctypes.byref(found))
        self._check("PMIx_server_setup_fork", code)
        entries: Dict[str, str] = {}
        place = 0
        while found and found[place] is not None:
            name, _, value = (found[place] or b"").decode("latin-1").partition("=")
            entries[name] = value
            place += 1
        return entries

    def answer(self, ticket: int, code: int, data: bytes = b"") -> None:
        """Answer a fence, or a request for a rank's data."""
        then, cbdata = self._waiting.pop(ticket)
        buffer = ctypes.create_string_buffer(data, len(data)) if data else None
        if then:
            _OnData(then)(code, ctypes.cast(buffer, c_void_p) if buffer else None, len(data), cbdata, None, None)
        self._answers = [*self._answers[-63:], buffer]  # the library may copy it later, on its own thread

    def done(self, ticket: int) -> None:
        """Let a rank that has announced its end continue."""
        then, cbdata = self._waiting.pop(ticket, (None, None))
        if then:
            _OnDone(then)(SUCCESS, cbdata)

    def published(self, ticket: int, code: int) -> None:
        """Answer a rank that has published a name, or withdrawn one."""
        then, cbdata = self._waiting.pop(ticket, (None, None))
        if then:
            _OnDone(then)(code, cbdata)

    def looked_up(self, ticket: int, rank: int, name: str, value: "Optional[str]") -> None:
        """Answer a look-up of a name; None: not found."""
        then, cbdata = self._waiting.pop(ticket, (None, None))
        if not then:
            return
        found = Found()
        found.key, found.proc.rank = name.encode("latin-1"), rank
        self._fill(found.value, value or "")
        self._answers = [*self._answers[-63:], found]
        told = value is not None
        _OnFound(then)(SUCCESS if told else NOT_FOUND, ctypes.addressof(found) if told else None, int(told), cbdata)

    def ask_rank(self, nspace: str, rank: int, then: "Callable[[int, bytes], None]") -> None:
        """Request the data that a local rank has put; ``then(code, data)`` is called on the library's thread."""

        def arrived(code: int, data: Optional[int], size: int, _cbdata: Optional[int]) -> None:
            then(code, ctypes.string_at(data, size) if data and size else b"")

        callback = _Response(arrived)
        self._asked = [*self._asked[-255:], callback]
        proc = Proc(nspace.encode(), rank)
        code = self._lib.PMIx_server_dmodex_request(ctypes.byref(proc), callback, None)
        if code != SUCCESS:
            then(code, b"")

    def end(self) -> None:
        """The launch is over."""
        self._lib.PMIx_server_finalize()

    def _check(self, what: str, code: int) -> None:
        if code not in (SUCCESS, DONE_ALREADY):
            why = (self._lib.PMIx_Error_string(code) or b"").decode("latin-1")
            raise NoLibrary(f"{what} says {why or code}")

    def _infos(self, facts: "List[Tuple[str, Any]]") -> "Any":
        made = (Info * len(facts))()
        for info, (key, value) in zip(made, facts):  # noqa: B905  (strict needs Python 3.10)
            info.key = key.encode()
            self._fill(info.value, value)
        self._kept.append(made)
        return made

    def _fill(self, slot: Value, value: Any) -> None:
        if isinstance(value, bool):
            slot.type, slot.data.flag = _BOOL, value
        elif isinstance(value, str):
            slot.type, slot.data.string = _STRING, value.encode("latin-1", "replace")
        elif isinstance(value, Rank):
            slot.type, slot.data.uint32 = _RANK, value.number
        elif isinstance(value, Short):
            slot.type, slot.data.uint16 = _UINT16, value.number
        elif isinstance(value, int):
            slot.type, slot.data.uint32 = _UINT32, value
        else:
            inner = self._infos(value)
            array = Array(_INFO, len(inner), ctypes.cast(inner, c_void_p))
            self._kept.append(array)
            slot.type, slot.data.array = _ARRAY, ctypes.addressof(array)

    # Requests of the library, on its own thread

    def _connected(self, proc: Any, _object: Any, _then: Any, _cbdata: Any) -> int:
        self._tell(("connected", proc.contents.rank))
        return DONE_ALREADY

    def _finalized(self, proc: Any, _object: Any, then: Any, cbdata: Any) -> int:
        self._tell(("finalized", self._take_ticket(then, cbdata), proc.contents.rank))
        return SUCCESS

    def _abort(
        self, proc: Any, _object: Any, status: int, text: Optional[bytes], _procs: Any, _count: int, then: Any, cb: Any
    ) -> int:
        told = (text or b"").decode("latin-1")
        self._tell(("abort", self._take_ticket(then, cb), proc.contents.rank, status, told))
        return SUCCESS

    def _fence(self, procs: Any, count: int, _info: Any, _ninfo: int, data: Any, size: int, then: Any, cb: Any) -> int:
        whole = count == 1 and procs[0].rank == WILDCARD
        ranks = [] if whole else [procs[place].rank for place in range(count)]
        ticket = self._take_ticket(then, cb)
        self._tell(("fence", ticket, ranks, ctypes.string_at(data, size) if data and size else b""))
        return SUCCESS

    def _modex(self, proc: Any, _info: Any, _ninfo: int, then: Any, cb: Any) -> int:
        self._tell(("modex", self._take_ticket(then, cb), proc.contents.rank))
        return SUCCESS

    def _publish(self, proc: Any, info: Any, count: int, then: Any, cb: Any) -> int:
        named = [info[place] for place in range(count) if not info[place].key.startswith(b"pmix.")]
        if len(named) != 1 or named[0].value.type != _STRING:
            return NOT_SUPPORTED  # MPI publishes one text at a time
        name, value = named[0].key, named[0].value.data.string or b""
        return self._ask(proc, "publish", name, value, then, cb)

    def _lookup(self, proc: Any, keys: Any, _info: Any, _count: int, then: Any, cb: Any) -> int:
        return self._ask(proc, "lookup", keys[0], b"", then, cb) if _one(keys) else NOT_SUPPORTED

    def _unpublish(self, proc: Any, keys: Any, _info: Any, _count: int, then: Any, cb: Any) -> int:
        return self._ask(proc, "unpublish", keys[0], b"", then, cb) if _one(keys) else NOT_SUPPORTED

    def _ask(self, proc: Any, what: str, name: bytes, value: bytes, then: Any, cb: Any) -> int:
        texts = name.decode("latin-1"), value.decode("latin-1")
        self._tell(("name", self._take_ticket(then, cb), proc.contents.rank, what, *texts))
        return SUCCESS

    def _spawn(self, proc: Any, *_: Any) -> int:
        self._tell(("spawn", proc.contents.rank))
        return NOT_SUPPORTED

    def _take_ticket(self, then: Any, cbdata: Any) -> int:
        self._next += 1
        self._waiting[self._next] = (then, cbdata)
        return self._next


def _one(keys: Any) -> bool:
    return bool(keys) and keys[0] is not None and keys[1] is None


class Rank:
    """A number that PMIx treats as a rank."""

    def __init__(self, number: int) -> None:
        self.number = number


class Short:
    """A 16-bit number."""

    def __init__(self, number: int) -> None:
        self.number = number
