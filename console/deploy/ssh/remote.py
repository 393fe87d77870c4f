"""The login processor's side of ``bootstrap.py``: requests to a host, and its answers."""

import contextlib
import json
import marshal
import secrets
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING, Any

from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import HostFailed
from redmesh.sanitise import clean

if TYPE_CHECKING:  # imports paramiko, which a mesh of a batch job does not need
    from console.deploy.ssh.connection import Connection

#: Names of Python to try after ``python3``, which is too old on some systems.
PYTHONS = ("python3", *(f"python3.{minor}" for minor in (13, 12, 11, 14, 10, 9)), "/usr/libexec/platform-python")
#: The most bytes that an account's start-up files may print before the answers.
_MOST_NOISE = 1 << 20

# FIRST has no single quotes, newlines and exclamation marks, because the account may have any shell.
FIRST = (
    "import sys;sys.version_info<(3,9) and sys.exit(97);import _frozen_importlib_external as e;w=sys.argv[1];"
    "print(chr(10)+w,e.MAGIC_NUMBER.hex(),flush=True);i=sys.stdin.buffer;k,n=i.readline().split();c=i.read(int(n));"
    'exec(compile(c,"redmesh","exec") if k==b"source" else __import__("marshal").loads(c));serve(w,i)'
)
#: What is sent to a shell that stays silent. Python answers with the word if nobody has read it on the way.
_PROBE = b'def serve(w,i):print(chr(10)+w,"unread",flush=True)'
#: Seconds in which a silent shell must end after its standard input has ended.
_LAST_S = 10.0
#: Says that the account's start-up files have run, then runs the command: they may read what is sent before.
_AFTER_START = 'echo;echo "$0";exec "$@"'
FIND_PYTHON = (
    'w=$1;b=$2;shift 2;for p in "$@";do case $p in "~/"*)p=$HOME/${p#"~/"};;esac;'
    'command -v "$p" >/dev/null 2>&1||continue;"$p" -I -S -c "$b" "$w";r=$?;'
    'case $r in 2|97|126|127)t="$t $p";;*)exit $r;;esac;done;echo;echo "$w none$t";exit 96'
)


class _Silent(HostFailed):
    """The host has sent nothing in time."""

    def __init__(self, hint: str = "is it overloaded?") -> None:
        super().__init__("timeout", "it does not answer in time", hint)


class Remote:
    """A host that answers requests. Every method raises HostFailed."""

    def __init__(self, connection: "Connection", host: Host, timeout_s: float) -> None:
        self._connection = connection
        self._python = host.python
        self._word = secrets.token_hex(8)
        self._noise, self._unread = 0, b""
        self._said = b""  # the last line of the account's shell that was no answer; nologin says there why it ends
        names = (host.python,) if host.python else PYTHONS
        line = command_line(["sh", "-c", FIND_PYTHON, "redmesh", self._word, FIRST, *names])
        self._channel = connection.run(line, timeout_s)
        try:
            magic = self._line()
        except _Silent:
            raise self._why_silent() from None
        kind, program = _program(magic.decode("ascii", "replace"))
        self._send(f"{kind} {len(program)}\n".encode() + program)

    def ask(
        self, op: str, blobs: Mapping[str, bytes] | None = None, timeout_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request and return the host's answer; ``blobs`` are files to send."""
        if timeout_s is not None:
            self._channel.settimeout(timeout_s)
        blobs = blobs or {}
        sizes = [(name, len(content)) for name, content in blobs.items()]
        self._send(b"".join([f"{(op, options, sizes)!r}\n".encode("utf-8", "surrogateescape"), *blobs.values()]))
        return understood(self._line())

    def run(self, words: Sequence[str], given: bytes, timeout_s: float) -> tuple[int, str]:
        """Run a command on the host with ``given`` as its standard input; return its exit status and the first line of
        its standard error."""
        line = command_line(["sh", "-c", _AFTER_START, self._word, *words])
        channel = self._connection.run(line, timeout_s)
        mark, heard, said = f"\n{self._word}\n".encode(), b"", b""
        try:
            while mark not in heard and (more := channel.recv(1 << 16)):
                heard = heard[-len(mark) :] + more
            if mark in heard:
                channel.sendall(given)
            channel.shutdown_write()
            while channel.recv(1 << 16):
                pass  # output of the account's start-up files
            while len(said) < 1 << 16 and (more := channel.recv_stderr(1 << 14)):
                said += more
            status = channel.recv_exit_status()
        except OSError:  # includes TimeoutError
            raise HostFailed("timeout", "it does not answer in time", "is it overloaded?") from None
        finally:
            channel.close()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return status, clean(lines[0])[:300] if lines else ""

    def _send(self, data: bytes) -> None:
        # If the connection is broken, waiting for the answer reports that.
        with contextlib.suppress(OSError):
            self._channel.sendall(data)

    def _line(self) -> bytes:
        """Return the next answer: the rest of the next line that begins with the marker word."""
        mark = self._word.encode() + b" "
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if line.startswith(mark + b"none"):
                    raise self._no_python(line[len(mark) :])
                if line.startswith(mark):
                    return line[len(mark) :]
                self._said = line or self._said
                continue
            try:
                data = self._channel.recv(1 << 16)
            except TimeoutError:
                raise _Silent from None
            self._noise += len(data)
            if self._noise > _MOST_NOISE:
                raise HostFailed("noise", "its shell prints without end", "look at the account's start-up files")
            if not data:
                raise self._ended()
            self._unread += data

    def _why_silent(self) -> HostFailed:
        """Find out whether a start-up file of the account's shell waits for input, or the host is slow.

        Nothing has been sent so far. What a start-up file reads of this does not arrive at Python.
        """
        self._send(f"source {len(_PROBE)}\n".encode() + _PROBE)
        with contextlib.suppress(OSError):
            self._channel.shutdown_write()
            self._channel.settimeout(_LAST_S)
        try:
            self._line()
            if self._line() == b"unread":
                return _Silent("is it overloaded, or does a start-up file of its shell (~/.bashrc) take long?")
        except _Silent:
            return _Silent("is it overloaded, or does a start-up file of its shell (~/.bashrc) wait for something?")
        except HostFailed as failure:
            if failure.code != "shell":
                return failure
        return HostFailed(
            "shell",
            "a start-up file of its shell, or what it starts, reads standard input, which is the mesh's",
            "there: `[[ $- == *i* ]] || return` at the top of ~/.bashrc, or `</dev/null` behind the command that reads",
        )

    def _no_python(self, line: bytes) -> HostFailed:
        there = line.decode("utf-8", "replace").split()[1:]
        what = f"no Python is found there{f' as {self._python}' if self._python else ''}"
        if there:
            what = f"none of these is Python 3.9 or newer: {', '.join(there)}"
        return HostFailed("python", clean(what), "install one, or say `python` in mesh.toml")

    def _ended(self) -> HostFailed:
        said = b""
        with contextlib.suppress(OSError):
            self._channel.settimeout(1.0)
            while len(said) < 1 << 16 and (more := self._channel.recv_stderr(1 << 14)):
                said += more
        lines = (said.strip() or self._unread.strip() or self._said).decode("utf-8", "replace").strip().splitlines()
        told = f": {clean(lines[-1])[:200]}" if lines else ""
        hint = "does `ssh HOST true` work? An account whose shell is nologin or false cannot log in (usermod -s)"
        return HostFailed("shell", f"its shell ended without an answer{told}", hint)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def command_line(words: Sequence[str]) -> str:
    """Quote ``words`` as one command line for the account's shell."""
    return " ".join(shlex.quote(word) for word in words)


def understood(line: bytes) -> dict[str, Any]:
    """Parse a host's answer. Raises HostFailed for an error, or an invalid answer."""
    try:
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise HostFailed("noise", "its answer is not Redmesh's") from None
    if "error" in answer:
        raise HostFailed(str(answer.get("code")), clean(str(answer["error"])), clean(str(answer.get("hint", ""))))
    return answer


@cache
def _program(magic: str) -> tuple[str, bytes]:
    """``bootstrap.py``, as byte-code if the host has this Python version: compiling takes as long as Python's start."""
    source = resources.files("console.deploy.ssh").joinpath("bootstrap.py").read_bytes()
    if magic != MAGIC_NUMBER.hex():
        return "source", source
    return "code", marshal.dumps(compile(source, "redmesh", "exec", dont_inherit=True))
