"""The syntax of PMI-1: lines ``cmd=… key=value`` to requests, and replies to lines. No I/O (MPICH's simple PMI,
Hydra)."""

from __future__ import annotations

from agents.pct.mpi.pmi_syntax import PmiError, Request, Verb

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, Iterator, Optional

LINE_MAX = 80 << 10

_VERBS = {
    "init": Verb.INIT, "get_maxes": Verb.MAXES, "get_universe_size": Verb.UNIVERSE, "get_appnum": Verb.APPNUM,
    "get_my_kvsname": Verb.KVSNAME, "put": Verb.PUT, "get": Verb.GET, "barrier_in": Verb.FENCE, "abort": Verb.ABORT,
    "finalize": Verb.FINALIZE, "publish_name": Verb.PUBLISH, "unpublish_name": Verb.UNPUBLISH,
    "lookup_name": Verb.LOOKUP,
}  # fmt: skip
#: Keys whose value is the rest of the line, and may contain blanks.
_TAILS = {"put": " value=", "publish_name": " port=", "abort": " message="}


class Pmi1:
    """A client's conversation: ``feed`` bytes to get requests, and ``answer`` them one at a time."""

    version = 1

    def __init__(self) -> None:
        self._rest = b""
        self._spawn: Optional[Dict[str, str]] = None

    def feed(self, data: bytes) -> Iterator[Request]:
        """The complete requests, one by one. Raises PmiError at an invalid one, after those before it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX:
            raise PmiError("a line without an end")
        for number, line in enumerate(lines, 1):
            request = self._line(line.decode("latin-1"))
            if request is None:
                continue
            frames = request.verb is Verb.INIT and request.get("pmi_version") == "2"
            if frames:
                self._rest = b"\n".join([*lines[number:], self._rest])
            yield request
            if frames:
                return

    def take_rest(self) -> bytes:
        """The unused bytes, for a client that continues with PMI-2."""
        rest, self._rest = self._rest, b""
        return rest

    def _line(self, line: str) -> "Optional[Request]":
        if self._spawn is not None or line.startswith("mcmd="):
            return self._part_of_spawn(line)
        if not line:
            return None
        cmd = line[4:].split(" ", 1)[0] if line.startswith("cmd=") else ""
        verb = _VERBS.get(cmd)
        if verb is None:
            raise PmiError(f"an unknown command: {line[:60]!r}")
        tail = _TAILS.get(cmd, "")
        head, found, value = line.partition(tail) if tail else (line, "", "")
        members = dict(word.partition("=")[::2] for word in head.split())
        if found:
            members[tail[1:-1]] = value
        return Request(verb, members)

    def _part_of_spawn(self, line: str) -> "Optional[Request]":
        if self._spawn is None:
            self._spawn = {}
        elif line == "endcmd":
            members, self._spawn = self._spawn, None
            last = members.get("totspawns", "1") == members.get("spawnssofar", "1")
            return Request(Verb.SPAWN, members) if last else None
        else:
            name, _, value = line.partition("=")
            self._spawn[name] = value
        return None

    def initialised(self, rank: int, size: int, appnum: int) -> bytes:
        """The reply to the first request."""
        return b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"

    def answer(self, request: Request, value: str = "", *, found: bool = True, why: str = "") -> bytes:
        """The reply to ``request`` with ``value``, or with the reason why there is none."""
        verb, code = request.verb, "0" if found else "-1"
        told = f" msg={why.replace(' ', '_')}" if why else ""
        if verb is Verb.GET:
            line = f"get_result rc={code}{told or ' msg=success'} value={value if found else 'unknown'}"
        elif verb is Verb.LOOKUP:
            line = f"lookup_result info={'ok' if found else 'fail'} rc={code}{told} port={value}"
        else:
            line = _PLAIN[verb].format(value=value, rc=code, info="ok" if found else "fail") + told
        return f"cmd={line}\n".encode("latin-1", "replace")


_PLAIN = {
    Verb.MAXES: "maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
    Verb.UNIVERSE: "universe_size size={value}",
    Verb.APPNUM: "appnum appnum={value}",
    Verb.KVSNAME: "my_kvsname kvsname={value}",
    Verb.PUT: "put_result rc={rc}",
    Verb.FENCE: "barrier_out rc={rc}",
    Verb.FINALIZE: "finalize_ack rc={rc}",
    Verb.PUBLISH: "publish_result info={info} rc={rc}",
    Verb.UNPUBLISH: "unpublish_result info={info} rc={rc}",
    Verb.SPAWN: "spawn_result rc={rc}",
}
