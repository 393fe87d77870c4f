"""Finds the shared libraries of a program that nodes may not have (``--bcast-libs``).

This module parses ELF files and searches like ld.so(8), because ldd(1) may execute the file. Libraries under /usr and
/lib are expected on every node and are not sent.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

#: Directories of libraries that every machine has.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32")
CACHE = "/etc/ld.so.cache"
_MOST_OBJECTS = 4096  # a program with more libraries than this has a loop of links
_MOST_DYNAMIC = 1 << 20
_MOST_NAME = 4096

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_FLAGS_1, _DT_RUNPATH = (
    0, 1, 5, 10, 14, 15, 0x6FFFFFFB, 29,
)  # fmt: skip
_DF_1_NODEFLIB = 0x800
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


class NotElf(Exception):
    """The file is not an ELF object, or is damaged; the message has the details."""


class Elf:
    """The parts of an ELF object that ld.so uses."""

    __slots__ = ("flags", "interpreter", "machine", "needed", "rpath", "runpath", "soname")

    def __init__(self, machine: tuple[int, int, int]) -> None:
        self.machine = machine  # class, byte order, machine: only libraries of the same can be loaded
        self.interpreter = self.soname = ""
        self.needed: list[str] = []
        self.rpath: list[str] = []
        self.runpath: list[str] = []
        self.flags = 0


class Libraries:
    """The libraries of a program. ``shipped``: name and path of those to send; ``missing``: names not found."""

    __slots__ = ("missing", "shipped")

    def __init__(self) -> None:
        self.shipped: list[tuple[str, str]] = []
        self.missing: list[str] = []


def read_elf(path: str) -> Elf:
    """Parse the dynamic section of the object at ``path``. Raises NotElf or OSError."""
    with open(path, "rb") as file:
        try:
            return _read(file)
        except (struct.error, OverflowError, ValueError, OSError) as error:  # OSError: an offset beyond all files
            raise NotElf(f"{path}: damaged: {error}") from None


def _read(file: BinaryIO) -> Elf:
    ident = file.read(16)
    if len(ident) < 16 or ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise NotElf("no ELF file")
    wide, order = ident[4] == 2, "<" if ident[5] == 1 else ">"
    header = struct.Struct(order + ("HHIQQQIHHH" if wide else "HHIIIIIHHH"))
    _, machine, _, _, at, _, _, _, size, count = header.unpack(file.read(header.size))
    elf = Elf((ident[4], ident[5], machine))
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    program = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    if count and size < program.size:
        raise ValueError("its program headers are too small")
    for number in range(count):
        file.seek(at + number * size)
        fields = program.unpack(file.read(program.size))
        kind = fields[0]
        offset, address, length = (fields[2], fields[3], fields[5]) if wide else (fields[1], fields[2], fields[4])
        if kind == _PT_LOAD:
            loads.append((address, offset, length))
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
        elif kind == _PT_INTERP:
            file.seek(offset)
            elf.interpreter = os.fsdecode(file.read(min(length, _MOST_NAME)).partition(b"\0")[0])
    if dynamic:
        _read_dynamic(file, elf, loads, dynamic, struct.Struct(order + ("qQ" if wide else "iI")))
    return elf


def _read_dynamic(
    file: BinaryIO, elf: Elf, loads: list[tuple[int, int, int]], dynamic: tuple[int, int], entry: struct.Struct
) -> None:
    file.seek(dynamic[0])
    data = file.read(min(dynamic[1], _MOST_DYNAMIC))
    tags: list[tuple[int, int]] = []
    for tag, value in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        if tag == _DT_NULL:
            break
        tags.append((tag, value))
    known = dict(tags)
    if _DT_STRTAB not in known:
        return
    strings = _strings(file, loads, known[_DT_STRTAB], known.get(_DT_STRSZ, 0))

    def text(at: int) -> str:
        return os.fsdecode(strings[at : strings.find(b"\0", at)][:_MOST_NAME])

    elf.needed = [text(value) for tag, value in tags if tag == _DT_NEEDED]
    elf.soname = text(known[_DT_SONAME]) if _DT_SONAME in known else ""
    elf.runpath = text(known[_DT_RUNPATH]).split(":") if _DT_RUNPATH in known else []
    # ld.so(8): DT_RPATH counts only where there is no DT_RUNPATH
    elf.rpath = text(known[_DT_RPATH]).split(":") if _DT_RPATH in known and _DT_RUNPATH not in known else []
    elf.flags = known.get(_DT_FLAGS_1, 0)


def _strings(file: BinaryIO, loads: list[tuple[int, int, int]], address: int, size: int) -> bytes:
    for start, offset, length in loads:
        if start <= address < start + length:
            file.seek(offset + address - start)
            return file.read(min(size, length - (address - start), 64 << 20)) + b"\0"
    raise ValueError("its strings are in no segment")


def needed(program: str, environ: Mapping[str, str], cache: str = CACHE) -> Libraries:
    """Find the libraries that ``program`` and its libraries load at start; none for a script. Raises OSError."""
    found = Libraries()
    try:
        first = read_elf(program)
    except NotElf:
        return found
    search = _Search(first.machine, environ, cache)
    seen: dict[str, str] = {}
    # Breadth first, like ld.so. Each entry: path, object, and the RPATHs that it inherits.
    ahead: list[tuple[str, Elf, list[str]]] = [(program, first, [])]
    while ahead and len(seen) < _MOST_OBJECTS:
        path, elf, inherited = ahead.pop(0)
        rpaths = [_expand(entry, path, elf) for entry in elf.rpath] + inherited
        for name in elf.needed:
            if name in seen:
                continue
            where = search.find(name, path, elf, rpaths)
            seen[name] = where
            if not where:
                found.missing.append(name)
                continue
            if not is_system(where):
                found.shipped.append((os.path.basename(name), where))
            loaded = read_elf(where)
            seen.setdefault(loaded.soname, where)  # further requests for that name get this one
            ahead.append((where, loaded, rpaths))
    return found


def is_system(path: str) -> bool:
    """True if ``path`` is in a directory that every node has, after following links."""
    return os.path.realpath(path).startswith(tuple(folder + "/" for folder in SYSTEM))


class _Search:
    """The search order of ld.so: RPATHs, LD_LIBRARY_PATH, RUNPATH, ld.so.cache, the default directories."""

    def __init__(self, machine: tuple[int, int, int], environ: Mapping[str, str], cache: str) -> None:
        self._machine = machine
        text = environ.get("LD_LIBRARY_PATH", "")
        self._environment = text.replace(";", ":").split(":") if text else []
        self._cache_path = cache
        self._cache: dict[str, list[str]] | None = None

    def find(self, name: str, asker: str, elf: Elf, rpaths: list[str]) -> str:
        """The path of ``name`` for the object ``asker``; empty if it is not found."""
        if "/" in name:
            path = _expand(name, asker, elf)
            return path if self._fits(path) else ""
        # An object with a RUNPATH ignores the RPATHs of those that need it.
        before = [] if elf.runpath else rpaths
        own = [_expand(entry, asker, elf) for entry in elf.runpath]
        environment = [_expand(entry, asker, elf) for entry in self._environment]
        for folder in (*before, *environment, *own):
            path = os.path.join(folder or ".", name)
            if self._fits(path):
                return path
        if elf.flags & _DF_1_NODEFLIB:
            return ""
        if self._cache is None:
            self._cache = dict(_cache(self._cache_path))
        candidates = self._cache.get(name, []) + [os.path.join(folder, name) for folder in _defaults(elf)]
        for path in candidates:
            if self._fits(path):
                return path
        return ""

    def _fits(self, path: str) -> bool:
        try:
            machine = read_elf(path).machine
        except (OSError, NotElf):
            return False
        return machine == self._machine


def _defaults(elf: Elf) -> tuple[str, ...]:
    return ("/lib64", "/usr/lib64", "/lib", "/usr/lib") if elf.machine[0] == 2 else ("/lib", "/usr/lib")


def _expand(entry: str, path: str, elf: Elf) -> str:
    """Expand ``$ORIGIN`` and ``$LIB``, with or without braces (ld.so(8), "Dynamic string tokens")."""
    if "$" not in entry:
        return entry
    values = {
        "ORIGIN": os.path.dirname(os.path.realpath(path)),
        "LIB": "lib64" if elf.machine[0] == 2 else "lib",
        "PLATFORM": os.uname().machine,
    }
    for name, value in values.items():
        entry = entry.replace("${" + name + "}", value).replace("$" + name, value)
    return entry


def _cache(path: str) -> Iterator[tuple[str, list[str]]]:
    """Names and paths in ld.so.cache (glibc's dl-cache.h; the new format, alone or after the old one)."""
    try:
        with open(path, "rb") as file:
            data = file.read(64 << 20)
    except OSError:
        return
    base = data.find(_CACHE_MAGIC)
    if base < 0 or len(data) < base + 48:
        return
    (count,) = struct.unpack_from("=I", data, base + len(_CACHE_MAGIC))
    entries: dict[str, list[str]] = {}
    for number in range(min(count, (len(data) - base - 48) // 24)):
        _, key, value = struct.unpack_from("=iII", data, base + 48 + number * 24)
        name, target = (os.fsdecode(data[base + at : data.find(b"\0", base + at)]) for at in (key, value))
        entries.setdefault(name, []).append(target)
    yield from entries.items()
