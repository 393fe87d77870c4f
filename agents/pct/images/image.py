"""A file that travels with a launch, on this node."""

from __future__ import annotations

import os
import time

from agents.pct.images.states import ImageMachine, State
from agents.pct.images.store import ImageError, Missing, Unsent
from agents.wire.control import to_bytes
from redmesh.byte_text import to_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Generator, Optional

    from agents.pct.images.fetch import Pull
    from agents.pct.images.store import Arriving, NoRoom


class Image:
    """One file that travels."""

    def __init__(self, number: int, told: Dict[str, Any]) -> None:
        self.number = number
        self.digest, self.size = str(told["digest"]), int(told["size"])
        self.path = os.fsdecode(to_bytes(told["path"]))
        self.library = bool(told.get("library"))
        # A library keeps the name that programs use, which is text; a program that of its file, which need not be text.
        self.name = to_system(str(told["name"])) if self.library else os.path.basename(self.path)
        self.folder = ""
        self.machine = ImageMachine()
        self.wanted = False
        self.full: Optional[NoRoom] = None  # set at the first check
        self.elsewhere = False  # it may go to another place than the launch's other files
        self.arriving: Optional[Arriving] = None
        self.file = ""  # the path to run, once it is here
        self.pull: Optional[Pull] = None
        # the comparison of this node's file with the announced one
        self.comparing: Optional[Generator[float, None, bool]] = None
        self.placed = ""  # its path in the parallel file system
        self.pushed = False
        self.looks = 0
        self.grew_at = time.monotonic()
        self.trouble = self.hint = self.fault = ""

    @property
    def received(self) -> int:
        """The number of bytes that are here."""
        if self.machine.state is State.HERE:
            return self.size
        return self.arriving.received if self.arriving is not None else 0

    def missing(self, reason: str, answered: bool) -> ImageError:
        """The error when no source has more of it; ``answered``: a living source says so.

        In that case the sources' files were removed or truncated, which their user may have done, so no node is at
        fault.
        """
        told = f"{self.name}: {self.received} of {self.size} bytes have come, and no more from any node: {reason}"
        return Missing(told, "does something remove its files in the RAM disk?") if answered else Unsent(told)
