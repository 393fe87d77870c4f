"""What the tools that take stack traces print, read into frames. Pure; one parser a tool.

Imported only when a rank has died of a signal.
"""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple


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
