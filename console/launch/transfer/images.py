"""Sends programs and libraries to the nodes: reads each once, announces it by digest, and streams it to the root.

Small files follow their announcement down the tree; nodes fetch larger ones from each other
(agents/pct/images/broadcast.py). If a node has no room, one copy is put into the parallel file system.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import stat
import sys
import time

from agents.linux import processes
from agents.pct.images.chunks import PIECE, piece
from agents.pct.images.digests import Digests
from agents.pct.images.fetch import SENDING
from agents.pct.images.ram_disk import RAM_DISK
from agents.pct.images.store import ImageError
from agents.pct.ranks.process_tracking import system_life
from agents.wire.control import control
from agents.wire.errors import AgentError
from console.launch.plan import identity
from redmesh.byte_text import from_system
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from agents.link.link import Link
    from agents.link.loop import Loop
    from console.launch.options.request import Request
    from console.launch.plan import Plan

    Fail = Callable[[str, str, str, int, str], None]

#: Files up to this size in total are sent down the tree to every node; larger ones are copied from node to node.
SMALL = 1 << 20
PARALLEL_FILE_SYSTEM = "/enfs/tmp"
_SAY_AFTER_S = 2.0  # seconds of reading or sending before a message says so
_SAY_EVERY_S = 5.0  # between progress messages
_LARGE = 256 << 20  # takes 0.2 s to read; smaller files are read while the nodes start the launch


class Travelling:
    """A file to be sent."""

    __slots__ = ("digest", "identity", "library", "name", "path", "placed", "size")

    def __init__(self, path: str, name: str, library: bool) -> None:
        self.path, self.name, self.library = path, name, library
        self.identity = identity(os.fsencode(path))
        self.digest, self.size, self.placed = "", 0, ""


class Images:
    """The files that nodes are sent."""

    def __init__(
        self,
        loop: Loop,
        request: Request,
        plan: Plan,
        root: Link,
        say: Callable[[str], None],
        fail: Fail,
    ) -> None:
        self._loop, self._request, self._plan = loop, request, plan
        self._root, self._say, self._fail = root, say, fail
        self._files: list[Travelling] = []
        self._announced = False
        self._reading: Generator[float, None, None] | None = None
        self._read_since, self._told_reading = time.monotonic(), False
        self._sending: list[tuple[int, int, int]] = []  # number, descriptor, offset
        self._say_at = math.inf  # when to print the progress; monotonic
        self._folder = ""

    def announce(self) -> None:
        """Announce the files to the tree, once; small ones are sent right after."""
        if self._announced:
            return
        self._announced = True
        self._read_since = time.monotonic()
        self._reading = self._read()
        self._read_more()

    @property
    def reads(self) -> bool:
        """True while files are being read, which is done in slices between which yod serves other events."""
        return self._reading is not None

    def _read(self) -> Generator[float, None, None]:
        self._files = self._wanted()
        known = digests()
        for file in self._files:
            file.digest, file.size = yield from known.steps(file.path)

    def _read_more(self) -> None:
        if self._reading is None:
            return  # the launch is over
        try:
            wait_s = next(self._reading)
        except StopIteration:
            self._reading = None
            self._tell_tree()
        except ImageError as error:
            self._reading = None
            self._refuse(error.message, error.hint)
        except OSError as error:
            self._reading = None
            self._refuse(f"{error.filename}: {error.strerror}", "a program that travels must be readable here")
        else:
            if not self._told_reading and time.monotonic() - self._read_since > _SAY_AFTER_S:
                self._told_reading = True
                self._say(f"reading {', '.join(file.name for file in self._files if not file.digest)}, which travels")
            self._loop.after(wait_s, self._read_more)

    def _tell_tree(self) -> None:
        push = sum(file.size for file in self._files) <= SMALL
        self._root.send_raw(control(self._announcement(push)))
        if push:
            for number in range(len(self._files)):
                self.send(number)

    def _announcement(self, push: bool) -> dict[str, Any]:
        far = any(not node.address.startswith("/") for node in self._plan.nodes)
        return {
            "op": "images",
            **({"addresses": [node.address for node in self._plan.nodes]} if far and not push else {}),
            "push": push,
            "share": self._request.transfer.bcast_share,
            "in_place": self._request.transfer.bcast == "auto",
            "names": [] if push else [node.name for node in self._plan.nodes],
            "images": [
                {
                    "path": os.fsencode(file.path).decode("latin-1"),
                    "name": from_system(file.name),  # the copy's name; its path has the rest
                    "digest": file.digest,
                    "size": file.size,
                    "library": file.library,
                }
                for file in self._files
            ],
        }

    def _wanted(self) -> list[Travelling]:
        files = [Travelling(path, os.path.basename(path), False) for path in programs(self._request)]
        if not self._request.transfer.bcast_libs:
            return files
        from console.launch.elf import needed

        environ = {os.fsdecode(name): os.fsdecode(value) for name, value in self._request.program.environ.items()}
        known: dict[str, str] = {}
        for program in list(files):
            found = needed(program.path, environ)
            for name in found.missing:
                self._say(f"{program.name} needs {name}, which is not here; the nodes may have it")
            for name, path in found.shipped:
                if known.setdefault(name, path) == path:
                    files.append(Travelling(path, name, True))
                else:
                    self._say(f"two libraries are called {name}: {known[name]} travels, {path} does not")
        return list({(file.path, file.name): file for file in files}.values())

    def _refuse(self, message: str, hint: str) -> None:
        # Called by the loop later, because the state machine may be handling an event now.
        self._loop.after(0, lambda: self._fail(self._plan.nodes[0].name, message, hint, 125, "launch"))

    # To the root

    def send(self, number: int) -> None:
        """Send a file that the root requested, as fast as the link accepts it."""
        if not 0 <= number < len(self._files):
            return
        try:
            fd = os.open(self._files[number].path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._refuse(f"{error.filename}: {error.strerror}", "")
            return
        self._sending.append((number, fd, 0))
        self._say_at = min(self._say_at, time.monotonic() + _SAY_AFTER_S)
        self.push()

    def push(self) -> None:
        """Send more, if the link accepts it."""
        while self._sending and self._root.out_bytes < SENDING and self._root.sock is not None:
            number, fd, offset = self._sending[0]
            data = os.pread(fd, min(PIECE, self._files[number].size - offset), offset)
            if data:
                self._sending[0] = (number, fd, offset + len(data))
                self._root.send_parts(*piece(number, offset, data))
                self._say_how_far(self._files[number], offset + len(data))
            else:
                os.close(fd)
                del self._sending[0]
                self._check(self._files[number])

    def _say_how_far(self, file: Travelling, sent: int) -> None:
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + _SAY_EVERY_S
            self._say(f"sending {file.name}: {sent >> 20} of {file.size >> 20} MiB")

    def _check(self, file: Travelling) -> None:
        if identity(os.fsencode(file.path)) != file.identity:
            self._refuse(f"{file.path} has changed while it was sent", "launch again when it is whole")

    # Copies in the parallel file system

    def no_room(self, node: str, number: int, message: str) -> None:
        """Put a file into the parallel file system because a node has no room; nodes that wait for it read it there."""
        if not 0 <= number < len(self._files):
            return
        file, where = self._files[number], os.environ.get("PARALLEL_FILE_SYSTEM") or PARALLEL_FILE_SYSTEM
        if not file.placed:
            try:
                file.placed = self._place(file, where)
            except OSError as error:
                self._refuse(
                    f"{node}: {message}; nor can it go by the parallel file system: {error.filename}: {error.strerror}",
                    "make room there, or let PARALLEL_FILE_SYSTEM name a directory that every node has",
                )
                return
            self._say(f"{node}: {message}: {file.name} goes by the parallel file system, {where}")
            self._root.send_raw(
                control({"op": "image_at", "number": number, "path": os.fsencode(file.placed).decode("latin-1")})
            )

    def _place(self, file: Travelling, where: str) -> str:
        sweep(where)
        if not self._folder:
            pid = os.getpid()
            folder = os.path.join(where, f"{_prefix()}{pid}-{processes.start_time(pid)}")
            os.mkdir(folder, 0o700)
            self._folder = folder
        path = os.path.join(self._folder, file.name)
        if os.path.exists(path):
            os.mkdir(path := os.path.join(self._folder, str(len(os.listdir(self._folder)))), 0o700)
            path = os.path.join(path, file.name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500)
        with open(file.path, "rb") as source, open(fd, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        return path

    def close(self) -> None:
        """Stop reading and sending, and remove the copies from the parallel file system."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        for _number, fd, _offset in self._sending:
            os.close(fd)
        self._sending.clear()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def programs(request: Request) -> list[str]:
    """The programs of a request, each once."""
    return list(dict.fromkeys(map(os.fsdecode, request.program.paths)))


def read_large(request: Request) -> None:
    """Compute the digests of large programs that will certainly be sent, before processors are requested.

    This takes seconds. Later, yod could not answer nodes meanwhile, and handshakes would time out.
    """
    try:
        if all(os.stat(path).st_size < _LARGE for path in request.program.paths):
            return
        known, say_at = digests(), time.monotonic() + _SAY_AFTER_S
        for path in programs(request):
            for wait_s in known.steps(path):
                time.sleep(wait_s)  # another process computes this digest
                if time.monotonic() > say_at and not (request.stdio.quiet or request.stdio.batch):
                    say_at = math.inf
                    print(f"yod: reading {clean(os.path.basename(path))}, which travels", file=sys.stderr)
    except (OSError, AgentError):
        pass  # reported when the program is sent


def digests() -> Digests:
    """The cache of digests of files on this machine."""
    try:
        return Digests(RAM_DISK)
    except ImageError:
        return Digests()  # without a RAM disk there is no cache: each launch computes the digests


def _prefix() -> str:
    # Machines and containers may have the same name, and a pid identifies a process only in one boot and pid namespace.
    life = hashlib.sha256(system_life().encode("ascii")).hexdigest()[:16]
    return f"redmesh-{os.geteuid()}-{os.uname().nodename}-{life}-"


def sweep(where: str) -> list[str]:
    """Remove directories in the parallel file system whose yod (of this user, boot and pid namespace) has exited.

    Returns their names.
    """
    prefix = _prefix()
    removed = []
    for name in os.listdir(where):
        pid, _, started = name.removeprefix(prefix).partition("-")
        path = os.path.join(where, name)
        if not name.startswith(prefix) or not (pid.isdigit() and started.isdigit()):
            continue
        if not processes.alive(int(pid), int(started)) and stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(name)
    return removed
