"""The kind of a file's file system."""

from __future__ import annotations

import ctypes

_statfs = ctypes.CDLL(None).statfs

#: Magic numbers of statfs(2): AFS, BeeGFS, Ceph, CIFS, FUSE, GPFS, Lustre, NFS, SMB 2, 9P, OCFS2, GFS2.
_REMOTE = frozenset(
    (0x5346414F, 0x19830326, 0x00C36400, 0xFF534D42, 0x65735546, 0x47504653, 0x0BD00BD0, 0x6969, 0xFE534D42)
    + (0x01021997, 0x7461636F, 0x01161970)
)


def is_remote(path: bytes) -> bool:
    """True if other machines or processes serve the file, so that access may be slow; False if unknown."""
    found = (ctypes.c_ulong * 64)()  # struct statfs, whose first member is the type
    return _statfs(path, found) == 0 and found[0] & 0xFFFFFFFF in _REMOTE
