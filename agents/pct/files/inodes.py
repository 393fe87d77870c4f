"""The inode numbers that the kernel has been told of, and the name below the mounted directory that each stands for."""

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
    """A file as the kernel knows it. A name that comes to stand for another file gets another inode."""

    __slots__ = ("identity", "known", "lookups", "name", "number", "opened", "parent", "seen", "told")

    def __init__(self, number: int, parent: "Optional[Inode]", name: bytes, identity: "Tuple[int, ...]") -> None:
        self.number, self.parent, self.name, self.identity = number, parent, name, identity
        self.lookups = 0  # how often the kernel was told; it says when it forgets
        self.known = False  # whether its name leads to it, rather than to nothing or to another file
        self.opened: "Set[Opened]" = set()
        self.seen: "Tuple[int, ...]" = ()  # size and times at the last open
        self.told: "Tuple[int, ...]" = ()  # size and times that the kernel was told last


class Inodes:
    """All of one mount."""

    def __init__(self) -> None:
        self.root = Inode(ROOT, None, b"", ())
        self._by_number: "Dict[int, Inode]" = {ROOT: self.root}
        self._by_name: "Dict[Tuple[int, bytes], Inode]" = {}
        self._last = ROOT

    def __getitem__(self, number: int) -> Inode:
        """KeyError for a number that the kernel was never told."""
        return self._by_number[number]

    def path(self, inode: Inode, name: bytes = b"") -> bytes:
        """The name of ``inode``, or of ``name`` in it, below the mounted directory; empty for that itself."""
        parts: "List[bytes]" = [name] if name else []
        while inode.parent is not None:
            parts.append(inode.name)
            inode = inode.parent
        return b"/".join(parts[::-1])

    def found(self, parent: Inode, name: bytes, told: "Attributes") -> Inode:
        """The inode of ``name`` in ``parent``, which is the file ``told``; counted as one more lookup."""
        identity = told.dev, told.ino, told.mode & 0o170000
        inode = self._by_name.get((parent.number, name))
        if inode is None or inode.identity != identity:
            if inode is not None:
                inode.known = False
            self._last += 1
            inode = Inode(self._last, parent, name, identity)
            parent.lookups += 1  # kept while something in it is
            self._by_number[inode.number] = inode
            self._by_name[parent.number, name] = inode
            inode.known = True
        inode.lookups += 1
        inode.told = told.size, told.mtime, told.ctime
        return inode

    def removed(self, parent: Inode, name: bytes) -> None:
        """``name`` is not there any more."""
        inode = self._by_name.pop((parent.number, name), None)
        if inode is not None:
            inode.known = False

    def renamed(self, parent: Inode, name: bytes, to: Inode, new: bytes) -> None:
        """A file has another name now."""
        inode = self._by_name.pop((parent.number, name), None)
        self.removed(to, new)
        if inode is not None:
            was, inode.parent, inode.name = inode.parent, to, new
            to.lookups += 1
            if was is not None:
                self._forget(was, 1)
            self._by_name[to.number, new] = inode

    def forget(self, number: int, lookups: int) -> None:
        """The kernel has forgotten so many lookups of an inode."""
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
