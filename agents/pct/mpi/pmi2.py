"""The syntax of PMI-2: six digits of length, then ``cmd=…;key=value;``. No I/O (MPICH, Slurm)."""

from __future__ import annotations

from agents.pct.mpi.pmi_syntax import PmiError, Request, Verb

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Iterator

_HEAD, FRAME_MAX = 6, 80 << 10

_VERBS = {
    "fullinit": Verb.FULLINIT, "job-getid": Verb.JOBID, "info-getjobattr": Verb.GET_JOB,
    "info-getnodeattr": Verb.GET_NODE, "info-putnodeattr": Verb.PUT_NODE, "kvs-put": Verb.PUT, "kvs-get": Verb.GET,
    "kvs-fence": Verb.FENCE, "name-publish": Verb.PUBLISH, "name-unpublish": Verb.UNPUBLISH,
    "name-lookup": Verb.LOOKUP, "spawn": Verb.SPAWN, "abort": Verb.ABORT, "finalize": Verb.FINALIZE,
}  # fmt: skip
_NAMES = {verb: name for name, verb in _VERBS.items()}


class Pmi2:
    """A client's conversation after its ``cmd=init`` line."""

    version = 2

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Request]:
        """The complete requests, one by one. Raises PmiError at an invalid one, after those before it."""
        self._rest += data
        while len(self._rest) >= _HEAD:
            digits = self._rest[:_HEAD].strip()
            if not digits.isdigit() or int(digits) > FRAME_MAX:
                raise PmiError(f"no length of a PMI-2 command: {self._rest[:_HEAD]!r}")
            end = _HEAD + int(digits)
            if end > len(self._rest):
                return
            frame, self._rest = self._rest[_HEAD:end], self._rest[end:]
            yield _request(frame.decode("latin-1"))

    def take_rest(self) -> bytes:
        """The unused bytes."""
        rest, self._rest = self._rest, b""
        return rest

    def initialised(self, rank: int, size: int, appnum: int) -> bytes:
        """The reply to ``fullinit``."""
        return _frame(
            {
                "cmd": "fullinit-response", "pmi-version": "2", "pmi-subversion": "0", "rank": str(rank),
                "size": str(size), "appnum": str(appnum), "debugged": "FALSE", "pmiverbose": "FALSE", "rc": "0",
            }
        )  # fmt: skip

    def answer(self, request: Request, value: str = "", *, found: bool = True, why: str = "") -> bytes:
        """The reply to ``request`` with ``value``, or with the reason why there is none."""
        verb, code = request.verb, "0"
        members = {"cmd": f"{_NAMES[verb]}-response"}
        if "thrid" in request.members:
            members["thrid"] = request.members["thrid"]
        if verb is Verb.JOBID:
            members["jobid"] = value
        elif verb in (Verb.GET, Verb.GET_JOB, Verb.GET_NODE, Verb.LOOKUP):
            members["found"] = "TRUE" if found else "FALSE"
            if found:
                members["value"] = value
            if verb is Verb.LOOKUP and found:
                members["port"] = value
        elif not found:
            code = "-1"
        members["rc"] = code
        if why and code != "0":
            members["errmsg"] = why
        return _frame(members)


def _request(text: str) -> Request:
    members: Dict[str, str] = {}
    # A semicolon inside a value is doubled.
    for word in text.replace(";;", "\0").split(";"):
        name, equals, value = word.partition("=")
        if equals:
            members[name] = value.replace("\0", ";")
    cmd = members.get("cmd", "")
    if cmd not in _VERBS:
        raise PmiError(f"an unknown command: {text[:60]!r}")
    return Request(_VERBS[cmd], members)


def _frame(members: Dict[str, str]) -> bytes:
    text = "".join(f"{name}={value.replace(';', ';;')};" for name, value in members.items()).encode(
        "latin-1", "replace"
    )
    return b"%6d" % len(text) + text
