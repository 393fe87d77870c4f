"""What the tools print about one process, as the calls of a merged tree, outermost first. Pure."""

from __future__ import annotations

import os

from agents.pct.stacks import Frame, Thread

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from agents.pct.merged import Call

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
    """What ``eu-addr2line -a -f -C -i`` prints: the calls at each address, innermost first."""
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
        where = ":".join(line.split(":")[:2])
        here.append(Frame("" if function == "??" else function, "" if where.startswith("??") else where))
        function = ""
    return found


def native(thread: Thread, lines: "Dict[int, List[Frame]]", begin: "Dict[str, int]") -> "List[Call]":
    """The calls of one thread; ``lines`` has what is known of an address beyond its function."""
    found: "List[Call]" = []
    for frame in _inside(thread.frames):
        told = [each for each in lines.get(frame.address, ()) if each.where]
        for each in reversed(told) if told else (frame,):
            function = _name(each) or _name(frame)
            found.append((function or _unknown(frame, begin), *_place(each, frame), "c"))
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


def python(frames: "List[Dict[str, Any]]") -> "List[Call]":
    """The calls of one thread as ``py-spy dump --json`` has them. KeyError, TypeError, ValueError for none."""
    return [
        (str(frame["name"]), str(frame.get("short_filename") or frame["filename"]), int(frame["line"] or 0), "python")
        for frame in reversed(frames)
    ]


def mixed(own: "List[Call]", below: "List[Call]") -> "List[Call]":
    """A Python thread's calls, then those of C that its innermost one made."""
    evaluates = [at for at, call in enumerate(below) if call[0] == _EVALUATES]
    if not evaluates:
        return own
    at = evaluates[-1] + 1
    while at < len(below) and (below[at][1].startswith(_INTERPRETER) or below[at][0].startswith(_GLUE)):
        at += 1
    return own + below[at:]
