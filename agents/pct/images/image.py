"""One file that travels with a launch, as this node has it."""

from __future__ import annotations

import os
import time

from agents.pct.images.states import ImageMachine, State
from agents.pct.images.store import ImageError, Missing
from agents.wire.control import to_bytes

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
        # a library has the name that programs know it by, which is text; a program that of its file, which need not be
        self.name = str(told["name"]) if self.library else os.path.basename(self.path)
        self.folder = ""
        self.machine = ImageMachine()
        self.wanted = False
        self.full: Optional[NoRoom] = None  # at the first look
        self.arriving: Optional[Arriving] = None
        self.file = ""  # what to run, once it is here
        self.pull: Optional[Pull] = None
        self.comparing: Optional[Generator[float, None, bool]] = None  # this node's file, with what was announced
        self.placed = ""  # in the parallel file system
        self.pushed = False
        self.looks = 0
        self.grew_at = time.monotonic()
        self.trouble = self.hint = self.fault = ""

    @property
    def received(self) -> int:
        """Bytes of it that are here."""
        if self.machine.state is State.HERE:
            return self.size
        return self.arriving.received if self.arriving is not None else 0

    def missing(self, reason: str, answered: bool) -> ImageError:
        """No source has more of it; ``answered``: one that lives says so itself.

        Then the files there are gone or cut short. They are the user's, who may have done that: no node's fault.
        """
        told = f"{self.name}: {self.received} of {self.size} bytes have come, and no more from any node: {reason}"
        return Missing(told, "does something remove its files in the RAM disk?") if answered else ImageError(told)
