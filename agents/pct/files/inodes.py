"""The inode numbers known to the kernel, and the path below the mounted directory that each stands for."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Protocol, Set, Tuple

    from agents.pct.files.fuse import Attributes

    class Opened(Protocol):
        """An open file (agents/pct/files/open_file.py)."""

        handle: int

        def drop_fetched(self) -> None: ...


ROOT = 1


class Inode:
    """A file known to the kernel. If a name comes to stand for another file, it gets a new inode."""

    __slots__ = ("identity", "known", "lookups", "name", "number", "opened", "parent", "seen", "told")

    def __init__(self, number: int, parent: "Optional[Inode]", name: bytes, identity: "Tuple[int, ...]") -> None:
        self.number, self.parent, self.name, self.identity = number, parent, name, identity
        self.lookups = 0  # the number of lookups by the kernel, which reports when it forgets them
        self.known = False  # True while its name leads to it, not to nothing or another file
        self.opened: "Set[Opened]" = set()
        self.seen: "Tuple[int, ...]" = ()  # size and times at the last open
        self.told: "Tuple[int, ...]" = ()  # size and times last reported to the kernel


class Inodes:
    """All inodes of one mount."""

    def __init__(self) -> None:
        self.root = Inode(ROOT, None, b"", ())
        self._by_number: "Dict[int, Inode]" = {ROOT: self.root}
        self._by_name: "Dict[Tuple[int, bytes], Inode]" = {}
        self._last = ROOT

    def __getitem__(self, number: int) -> Inode:
        """The inode of a number. Raises KeyError for an unknown number."""
        return self._by_number[number]

    def path(self, inode: Inode, name: bytes = b"") -> bytes:
        """The path of ``inode``, or of ``name`` in it, below the mounted directory; empty for the directory itself."""
        parts: "List[bytes]" = [name] if name else []
        while inode.parent is not None:
            parts.append(inode.name)
            inode = inode.parent
        return b"/".join(parts[::-1])

    def found(self, parent: Inode, name: bytes, told: "Attributes") -> Inode:
        """The inode of ``name`` in ``parent``, whose attributes are ``told``; counts one more lookup."""
        identity = told.dev, told.ino, told.mode & 0o170000
        inode = self._by_name.get((parent.number, name))
        if inode is None or inode.identity != identity:
            if inode is not None:
                inode.known = False
            self._last += 1
            inode = Inode(self._last, parent, name, identity)
            parent.lookups += 1  # kept while something in it is known
            self._by_number[inode.number] = inode
            self._by_name[parent.number, name] = inode
            inode.known = True
        inode.lookups += 1
        inode.told = told.size, told.mtime, told.ctime
        return inode

    def removed(self, parent: Inode, name: bytes) -> None:
        """``name`` was removed."""
        inode = self._by_name.pop((parent.number, name), None)
        if inode is not None:
            inode.known = False

    def renamed(self, parent: Inode, name: bytes, to: Inode, new: bytes) -> None:
        """A file was renamed."""
        inode = self._by_name.pop((parent.number, name), None)
        self.removed(to, new)
        if inode is not None:
            was, inode.parent, inode.name = inode.parent, to, new
            to.lookups += 1
            if was is not None:
                self._forget(was, 1)
            self._by_name[to.number, new] = inode

    def forget(self, number: int, lookups: int) -> None:
        """The kernel has forgotten ``lookups`` lookups of an inode."""
        inode = self._by_number.get(number)
        if inode is not None:
            self._forget(inode, lookups)

    def _forget(self, inode: Inode, lookups: int) -> None:
        inode.lookups -= lookups
        if inode.lookups > 0 or inode is self.root:
            return
        self._by_number.pop(inode.number, None)
        if inode.parent is not None:
            if self._by_name.get((inode.parent.number, inode.name)) is inode:
                del self._by_name[inode.parent.number, inode.name]
            self._forget(inode.parent, 1)
