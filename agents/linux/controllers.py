"""Controllers of control groups: what the kernel limits and counts for the group of this process (versions 1 and 2)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List


def directories(controller: str, pid: int = 0) -> List[str]:
    """The group of a process (0: this one) under ``controller`` and the groups around it, innermost first; [] if none
    is visible.

    In version 2 a group need not have the controller's files; then the next group around it counts.
    """
    groups = read(f"/proc/{pid or 'self'}/cgroup")
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return _directories(controller, groups, file.read())
    except OSError:
        return []


def _directories(controller: str, cgroup: str, mountinfo: str) -> List[str]:
    """``directories`` from the text of the two files in /proc."""
    groups = [words for line in cgroup.split("\n") if len(words := line.split(":", 2)) == 3]
    path = next((path for _, names, path in groups if controller in names.split(",")), None)
    kind = "cgroup"
    if path is None:
        path, kind = next((path for number, names, path in groups if number == "0" and not names), ""), "cgroup2"
    if not path or ".." in path.split("/"):  # outside the visible part of the hierarchy
        return []
    for line in mountinfo.split("\n"):
        mount, _, system = line.partition(" - ")
        # split at each blank: the source of a mount may be empty
        words, (found, _source, options) = mount.split(" "), (*system.split(" "), "", "", "")[:3]
        if found != kind or len(words) < 5 or (kind == "cgroup" and controller not in options.split(",")):
            continue
        root, point = _unescaped(words[3]), _unescaped(words[4])
        if root == "/" or path == root or path.startswith(root + "/"):
            below = path if root == "/" else path[len(root) :]
            parts = [part for part in below.split("/") if part]
            return ["/".join((point, *parts[:count])) for count in range(len(parts), -1, -1)]
    return []


def _unescaped(text: str) -> str:
    """A path of mountinfo, which has blanks and the like as ``\\040`` (proc(5))."""
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text


def numbers(text: str) -> Dict[str, int]:
    """The numbers of a file with lines ``NAME NUMBER``."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isdecimal():
            found[name] = int(number)
    return found


def read(path: str) -> str:
    """A small file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(65536)
    except OSError:
        return ""


def full_of_processes() -> str:
    """The group around this process that has as many processes as its limit allows, with that limit; "" for none."""
    for directory in directories("pids"):
        most, present = read(f"{directory}/pids.max").strip(), read(f"{directory}/pids.current").strip()
        if most.isdecimal() and present.isdecimal() and int(present) >= int(most):
            return f"{directory}/pids.max is {most}"
    return ""


class MemoryGroup:
    """The group whose memory is a process's (0: this one), and its counter of processes that the kernel killed for lack
    of memory.

    The counter's file stays open, so that it can be read cheaply, and by a process that has become another user.
    """

    __slots__ = ("_directories", "_fd")

    def __init__(self, pid: int = 0) -> None:
        self._directories = directories("memory", pid)
        self._fd = -1
        for directory in self._directories:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    self._fd = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue
                if self.kills() >= 0:
                    return
                os.close(self._fd)
                self._fd = -1

    def kills(self) -> int:
        """How many processes of the group the kernel has killed for lack of memory; -1 if that cannot be read."""
        if self._fd < 0:
            return -1
        try:
            return numbers(os.pread(self._fd, 4096, 0).decode("ascii", "replace")).get("oom_kill", -1)
        except OSError:  # the group was removed
            return -1

    @property
    def name(self) -> str:
        """The directory of the group; "" if none is visible."""
        return self._directories[0] if self._directories else ""

    def peak(self) -> int:
        """The bytes that the processes of the group had at most, together; 0 if that cannot be read."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            text = read(f"{self.name}/{name}").strip() if self.name else ""
            if text.isdecimal():
                return int(text)
        return 0

    def limit(self) -> int:
        """The bytes that this group and those around it allow; 0 if that is more than the host has."""
        limits = [numbers(read(f"{one}/memory.stat")).get("hierarchical_memory_limit", 0) for one in self._directories]
        texts = [read(f"{one}/memory.max").strip() for one in self._directories]
        limits += [int(text) for text in texts if text.isdecimal()]
        least = min((limit for limit in limits if limit), default=0)
        return least if least < host_memory() else 0

    def close(self) -> None:
        """Close the counter's file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def host_memory() -> int:
    """The bytes of memory of this host; 0 if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
