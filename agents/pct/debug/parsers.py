"""What the tools that take stack traces print, read into frames. Pure; one parser a tool.

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
    """One call. ``where`` is ``file:line`` (empty without debug information), ``module`` the file it is from."""

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
        """For people. Unsanitised: names come from the program, so what prints them to a terminal cleans them."""
        out = []
        for thread in self.threads:
            if len(self.threads) > 1:
                out.append(f"thread {thread.tid}" + (f" ({thread.name})" if thread.name else "") + ":")
            out += [f"#{number:<2} {frame}" for number, frame in enumerate(thread.frames)]
        return out + ([self.note] if self.note else [])


# "#1  0x000055dfed2da235 main - /opt/bin/crash", the function or the module may be missing
_EU_FRAME = re.compile(r"#\d+ +0x([0-9a-f]+)(?: - 1)?(?: (?!- )(.+?))?(?: - (/.*|\[.*\]))?$")
_EU_THREAD = re.compile(r"TID (\d+):$")
_EU_SOURCE = re.compile(r"    (\S.*?:\d+)(?::\d+)?$")


def parse_eu_stack(text: str) -> List[Thread]:
    """The threads in what ``eu-stack -m -s`` prints."""
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
    """The threads in what ``thread apply all backtrace`` of gdb prints, by thread id."""
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
    # "std::function<int (int)>::operator() (this=...)": the arguments are the last parentheses, behind a blank
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
    """The Python threads in what ``py-spy dump`` prints."""
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
    """The mappings in /proc/PID/maps."""
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
    """/proc/PID/syscall: the call's number (None: in none), stack pointer, program counter; 0 where unknown."""
    fields = text.split()
    if len(fields) < 3:
        return None, 0, 0  # "running"
    number = int(fields[0])
    return (number if number >= 0 else None), int(fields[-2], 16), int(fields[-1], 16)


def place(address: int, maps: List[Mapping]) -> Frame:
    """A frame without symbols: the module and the offset in its file, which addr2line takes."""
    for mapping in maps:
        if mapping.start <= address < mapping.end:
            offset = address - mapping.start + mapping.offset
            return Frame("", "", f"{mapping.path or 'memory without a file'}+0x{offset:x}", address)
    return Frame("", "", "no mapped memory" if address else "", address)


# What the tools print about one process, as the calls of a merged tree, outermost first. Pure.


#: What every program begins with, outside of its own code.
_OUTSIDE = frozenset(
    ("_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "clone", "clone3", "__clone",
     "__clone3", "start_thread")
)  # fmt: skip
#: The interpreter between a Python call and the C function that it made: by its file, or by what it calls.
_INTERPRETER = ("python3", "libpython3")
_GLUE = ("_Py", "Py", "cfunction_", "method_", "slot_", "builtin_", "vectorcall_", "object_vacall", "classmethoddescr")
_EVALUATES = "_PyEval_EvalFrameDefault"
_SYSTEM = ("/usr/lib", "/lib", "[")

Place = "Tuple[str, int]"  # a module, and the distance from where it begins in memory


def system(module: str) -> bool:
    """Whether ``module`` is the system's or Python's: nobody wants their lines, and to find them takes long."""
    return module.startswith(_SYSTEM) or os.path.basename(module).startswith(_INTERPRETER)


def beginnings(maps: str, modules: "Any") -> "Dict[str, int]":
    """Where each of ``modules`` begins, by /proc/PID/maps: where offset 0 of it is, or would be."""
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
    """What ``eu-addr2line -a -f -C -i`` (or binutils' addr2line) prints: the calls at each address, innermost first."""
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
    """The calls of one thread; ``lines`` has what is known of an address beyond its function.

    ``sources`` is told in which files the calls are.
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
    # What is outside of main has no names where the program is stripped: what stands before the last one that has goes.
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
    """The calls of one thread as ``py-spy dump --json`` has them. KeyError, TypeError, ValueError for none."""
    found = []
    for frame in reversed(frames):
        file = str(frame.get("short_filename") or frame["filename"])
        call = (str(frame["name"]), file, int(frame["line"] or 0), "python")
        if sources is not None:
            sources.add(call, str(frame["filename"]))
        found.append(call)
    return found


def mixed(own: "List[Call]", below: "List[Call]") -> "List[Call]":
    """A Python thread's calls, then those of C that its innermost one made."""
    evaluates = [at for at, call in enumerate(below) if call[0] == _EVALUATES]
    if not evaluates:
        return own
    at = evaluates[-1] + 1
    while at < len(below) and (below[at][1].startswith(_INTERPRETER) or below[at][0].startswith(_GLUE)):
        at += 1
    return own + below[at:]
