"""The type of the file system that holds a directory."""

from __future__ import annotations

import os

#: File systems that several hosts may write to. SQLite's write-ahead log needs memory that all its users share, so
#: these file systems cannot have one.
NETWORK_FILESYSTEMS = frozenset(("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p", "fuse.sshfs"))


def filesystem_of(directory: str) -> str:
    """The type of the file system of ``directory``; empty if the kernel does not report it."""
    best, kind = "", ""
    directory = os.path.realpath(directory)
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, fstype, *_ = line.split(" ")
                inside = directory == point or directory.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, fstype
    except (OSError, ValueError):
        return ""
    return kind
