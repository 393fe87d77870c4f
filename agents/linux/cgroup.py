"""Control groups (cgroup v2): the ranks of a launch child, and all their descendants, are in a group of their own.

A program cannot leave its group by clearing its environment, by a new session or by outliving its parents, and the
kernel kills a group as a whole. Only a process that may write to the surrounding groups can move itself out.
"""

from __future__ import annotations

import os

from agents.link.lean import signal
from agents.linux import processes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List


def parent_directory() -> str:
    """The directory of this process's own group if groups can be created in it; otherwise "".

    They can be created if a group was delegated to us (systemd's Delegate=, a container), or by root.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            path = next((line[3:].rstrip("\n") for line in file if line.startswith("0::/")), "")
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    if not path or ".." in path.split("/"):  # outside the visible part of the hierarchy
        return ""
    for words in lines:
        root, point, kind = words[3], words[4], words[words.index("-") + 1]
        if kind == "cgroup2" and (root == "/" or path == root or path.startswith(root + "/")):
            below = path[len(root) :] if root != "/" else path
            directory = os.path.normpath(f"{point}/{below}")
            if os.access(directory, os.W_OK) and os.access(f"{directory}/cgroup.procs", os.W_OK):
                return directory
    return ""


def members(directory: str) -> List[int]:
    """All living processes of a group and its subgroups; empty if the group does not exist."""
    found: List[int] = []
    for path, _below, names in os.walk(directory):
        if "cgroup.procs" in names:
            try:
                with open(f"{path}/cgroup.procs", encoding="ascii") as file:
                    found += [int(line) for line in file]
            except OSError:  # removed meanwhile; or a threaded group, whose processes its parent lists
                pass
    return found


def kill(directory: str) -> None:
    """SIGKILL all processes of a group and its subgroups, including those being forked. Raises OSError."""
    try:
        fd = os.open(f"{directory}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # Linux before 5.14; the caller repeats this until no process is left
        for pid in members(directory):
            if pid:
                processes.send_signal(pid, signal.SIGKILL)
        return
    try:
        os.write(fd, b"1")
    finally:
        os.close(fd)


def remove(directory: str) -> bool:
    """Remove a group without processes and its subgroups; returns whether all are removed."""
    for path, _below, _names in os.walk(directory, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass
    return not os.path.isdir(directory)
