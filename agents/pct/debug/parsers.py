"""Parsers for the output of tools that print stack traces; one for each tool. No I/O.

Imported only when a rank has died of a signal.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from agents.pct.debug.sources import Sources
    from agents.pct.debug.stack_tree import Call


class Frame(NamedTuple):
    """A call. ``where`` is ``file:line`` (empty without debug information), ``module`` the file that contains it."""

    function: str
    where: str = ""
    module: str = ""
    address: int = 0

    def __str__(self) -> str:
        place = self.where or self.module
        return (self.function or f"0x{self.address:x}") + (
            f" at {place}" if self.where else f" in {place}" * bool(place)
        )


class Thread(NamedTuple):
    """The calls of one thread, innermost first."""

    tid: int
    frames: List[Frame]
    name: str = ""


class Backtrace(NamedTuple):
    """Where a process stood. ``tool`` took it; ``note`` says what is missing and what to do about that."""

    pid: int
    tool: str
    threads: List[Thread]
    note: str = ""

    def as_message(self) -> Dict[str, Any]:
        """What goes up the tree: lists and numbers only."""
        threads = [[thread.tid, thread.name, [list(frame) for frame in thread.frames]] for thread in self.threads]
        return {"pid": self.pid, "tool": self.tool, "note": self.note, "threads": threads}

    @classmethod
    def from_message(cls, message: Dict[str, Any]) -> "Backtrace":
        """The inverse. KeyError, TypeError or ValueError for what is none."""
        threads = [
            Thread(int(tid), [Frame(str(f), str(w), str(m), int(a)) for f, w, m, a in frames], str(name))
            for tid, name, frames in message["threads"]
        ]
        return cls(int(message["pid"]), str(message["tool"]), threads, str(message["note"]))

    def lines(self) -> List[str]:
        """Lines for people. Names come from the program, so sanitise them before printing to a terminal."""
        out = []
        for thread in self.threads:
            if len(self.threads) > 1:
                out.append(f"thread {thread.tid}" + (f" ({thread.name})" if thread.name else "") + ":")
            out += [f"#{number:<2} {frame}" for number, frame in enumerate(thread.frames)]
        return out + ([self.note] if self.note else [])


# Format: "#1 0x000055dfed2da235 main - /opt/bin/crash"; the function or the module may be missing.
_EU_FRAME = re.compile(r"#\d+ +0x([0-9a-f]+)(?: - 1)?(?: (?!- )(.+?))?(?: - (/.*|\[.*\]))?$")
_EU_THREAD = re.compile(r"TID (\d+):$")
_EU_SOURCE = re.compile(r"    (\S.*?:\d+)(?::\d+)?$")


def parse_eu_stack(text: str) -> List[Thread]:
    """Parse the output of ``eu-stack -m -s``."""
    threads: List[Thread] = []
    for line in text.splitlines():
        head = _EU_THREAD.match(line)
        if head:
            threads.append(Thread(int(head.group(1)), []))
            continue
        frames = threads[-1].frames if threads else None
        frame = _EU_FRAME.match(line)
        if frames is None:
            continue
        if frame:
            address, function, module = frame.groups()
            frames.append(Frame(function or "", "", module or "", int(address, 16)))
            continue
        source = _EU_SOURCE.match(line)
        if source and frames:
            frames[-1] = frames[-1]._replace(where=source.group(1))
    return [thread for thread in threads if thread.frames]


_GDB_THREAD = re.compile(r"Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (\d+)\)?(?: \"(.*)\")?\)")
_GDB_FRAME = re.compile(r"#\d+ +(?:0x([0-9a-f]+) in )?(.+)$")
_GDB_PLACE = re.compile(r"(.*\)) (at|from) (.+?)$")


def parse_gdb(text: str) -> List[Thread]:
    """Parse the output of gdb's ``thread apply all backtrace``, by thread id."""
    threads: List[Thread] = []
    for line in text.splitlines():
        head = _GDB_THREAD.match(line)
        if head:
            threads.append(Thread(int(head.group(1)), [], head.group(2) or ""))
            continue
        frame = _GDB_FRAME.match(line)
        if frame and threads:
            threads[-1].frames.append(_gdb_frame(frame.group(1), frame.group(2)))
    return sorted((thread for thread in threads if thread.frames), key=lambda thread: thread.tid)


def _gdb_frame(address: Optional[str], rest: str) -> Frame:
    placed = _GDB_PLACE.match(rest)
    call, kind, where = placed.groups() if placed else (rest, "", "")
    function = _without_arguments(call)
    return Frame(
        "" if function == "??" else function,
        where if kind == "at" else "",
        where if kind == "from" else "",
        int(address or "0", 16),
    )


def _without_arguments(call: str) -> str:
    # "std::function<int (int)>::operator() (this=...)": the arguments are the last parentheses, after a blank.
    if not call.endswith(")"):
        return call
    depth = 0
    for at in range(len(call) - 1, -1, -1):
        depth += (call[at] == ")") - (call[at] == "(")
        if not depth:
            return call[:at].rstrip() if call[at - 1 : at] == " " else call
    return call


_SPY_THREAD = re.compile(r"Thread (?:0x)?([0-9A-Fa-f]+)(?: \([^)]*\))?(?:: \"(.*)\")?$")
_SPY_FRAME = re.compile(r"    (\S.*) \((.+:\d+)\)$")


def parse_py_spy(text: str) -> List[Thread]:
    """Parse the Python threads in the output of ``py-spy dump``."""
    threads: List[Thread] = []
    for line in text.splitlines():
        head = _SPY_THREAD.match(line)
        if head:
            tid = head.group(1)
            threads.append(Thread(int(tid) if tid.isdigit() else int(tid, 16), [], head.group(2) or ""))
            continue
        frame = _SPY_FRAME.match(line)
        if frame and threads:
            threads[-1].frames.append(Frame(frame.group(1), frame.group(2)))
    return [thread for thread in threads if thread.frames]


class Mapping(NamedTuple):
    """A line of /proc/PID/maps."""

    start: int
    end: int
    offset: int
    path: str


def parse_maps(text: str) -> List[Mapping]:
    """Parse /proc/PID/maps."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        start, dash, end = fields[0].partition("-") if fields else ("", "", "")
        if dash and len(fields) >= 5:
            found.append(
                Mapping(int(start, 16), int(end, 16), int(fields[2], 16), fields[5] if len(fields) > 5 else "")
            )
    return found


def parse_syscall(text: str) -> Tuple[Optional[int], int, int]:
    """Parse /proc/PID/syscall: the call's number (None: not in a call), stack pointer, program counter; 0 if
    unknown."""
    fields = text.split()
    if len(fields) < 3:
        return None, 0, 0  # the text is "running"
    number = int(fields[0])
    return (number if number >= 0 else None), int(fields[-2], 16), int(fields[-1], 16)


def place(address: int, maps: List[Mapping]) -> Frame:
    """A frame without symbols: the module, and the offset in its file, which addr2line takes."""
    for mapping in maps:
        if mapping.start <= address < mapping.end:
            offset = address - mapping.start + mapping.offset
            return Frame("", "", f"{mapping.path or 'memory without a file'}+0x{offset:x}", address)
    return Frame("", "", "no mapped memory" if address else "", address)


# Converts the tools' output about a process into calls of a merged tree, outermost first. No I/O.


#: Functions outside of a program's own code, with which every stack begins.
_OUTSIDE = frozenset(
    ("_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "clone", "clone3", "__clone",
     "__clone3", "start_thread")
)  # fmt: skip
#: The interpreter's frames between a Python call and the C function that it calls: recognised by file, or by the
#: callee.
_INTERPRETER = ("python3", "libpython3")
_GLUE = ("_Py", "Py", "cfunction_", "method_", "slot_", "builtin_", "vectorcall_", "object_vacall", "classmethoddescr")
_EVALUATES = "_PyEval_EvalFrameDefault"
_SYSTEM = ("/usr/lib", "/lib", "[")

Place = "Tuple[str, int]"  # a module, and the distance from its beginning in memory


def system(module: str) -> bool:
    """True for modules of the system or of Python, whose line numbers nobody needs and which are slow to find."""
    return module.startswith(_SYSTEM) or os.path.basename(module).startswith(_INTERPRETER)


def beginnings(maps: str, modules: "Any") -> "Dict[str, int]":
    """Where each of ``modules`` begins in memory, from /proc/PID/maps: the address of its offset 0."""
    found: "Dict[str, int]" = {}
    for module in modules:
        end = maps.find(f" {module}\n")
        if end < 0:
            continue
        fields = maps[maps.rfind("\n", 0, end) + 1 : end].split()
        first, _, _ = fields[0].partition("-")
        found[module] = int(first, 16) - int(fields[2], 16)
    return found


def parse_addr2line(text: str) -> "Dict[int, List[Frame]]":
    """Parse the output of ``eu-addr2line -a -f -C -i`` (or binutils' addr2line): the calls at each address,
    innermost first."""
    found: "Dict[int, List[Frame]]" = {}
    here: "List[Frame]" = []
    function = ""
    for line in text.splitlines():
        if line.startswith("0x") and line[2:].isalnum():
            here = found.setdefault(int(line, 16), [])
            function = ""
            continue
        if not function:
            function = line.partition(" inlined at ")[0].strip()
            continue
        where = ":".join(line.partition(" (discriminator ")[0].split(":")[:2])
        unknown = where.startswith("??") or where.endswith((":?", ":0"))
        here.append(Frame("" if function == "??" else function, "" if unknown else where))
        function = ""
    return found


def native(
    thread: Thread, lines: "Dict[int, List[Frame]]", begin: "Dict[str, int]", sources: "Optional[Sources]" = None
) -> "List[Call]":
    """The calls of one thread; ``lines`` has what is known about an address beyond its function.

    The source files of the calls are added to ``sources``.
    """
    found: "List[Call]" = []
    for frame in _inside(thread.frames):
        told = [each for each in lines.get(frame.address, ()) if each.where]
        for each in reversed(told) if told else (frame,):
            function = _name(each) or _name(frame)
            call = (function or _unknown(frame, begin), *_place(each, frame), "c")
            if sources is not None and call[2]:
                sources.add(call, each.where.rpartition(":")[0])
            found.append(call)
    return found


def _inside(frames: "List[Frame]") -> "List[Frame]":
    # If the program is stripped, frames outside of main have no names: drop everything before the last named one.
    outermost = list(reversed(frames))
    ends = [at for at, frame in enumerate(outermost[:5]) if _name(frame) in _OUTSIDE]
    return (outermost[ends[-1] + 1 :] if ends else outermost) or outermost[-1:]


def _name(frame: Frame) -> str:
    return frame.function.partition("@")[0]


def _place(each: Frame, frame: Frame) -> "Tuple[str, int]":
    file, _, line = each.where.rpartition(":")
    if file and line.isdigit():
        return os.path.basename(file), int(line)
    return os.path.basename(frame.module), 0


def _unknown(frame: Frame, begin: "Dict[str, int]") -> str:
    at = frame.address - begin.get(frame.module, frame.address)
    return f"+0x{at:x}" if at > 0 else "?"


def python(frames: "List[Dict[str, Any]]", sources: "Optional[Sources]" = None) -> "List[Call]":
    """The calls of one thread in the form of ``py-spy dump --json``. Raises KeyError, TypeError or ValueError."""
    found = []
    for frame in reversed(frames):
        file = str(frame.get("short_filename") or frame["filename"])
        call = (str(frame["name"]), file, int(frame["line"] or 0), "python")
        if sources is not None:
            sources.add(call, str(frame["filename"]))
        found.append(call)
    return found


def mixed(own: "List[Call]", below: "List[Call]") -> "List[Call]":
    """A Python thread's calls, followed by the C calls of the innermost one."""
    evaluates = [at for at, call in enumerate(below) if call[0] == _EVALUATES]
    if not evaluates:
        return own
    at = evaluates[-1] + 1
    while at < len(below) and (below[at][1].startswith(_INTERPRETER) or below[at][0].startswith(_GLUE)):
        at += 1
    return own + below[at:]
