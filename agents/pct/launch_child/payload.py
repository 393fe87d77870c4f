"""What travels with a launch: nothing at all with a plain one, payload_transfer.py for others."""

from __future__ import annotations

from agents.pct.errors import LoadFailed, PctError, whose
from agents.pct.launch.load import plain
from agents.wire.errors import Refusal, WireError
from agents.wire.frames import FILE, IMAGE

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, FrozenSet, List, Optional, Tuple

    from agents.link.server import Session
    from agents.pct.launch.context import LaunchContext
    from agents.pct.launch.tree import Child
    from agents.pct.launch_child.payload_transfer import PayloadTransfer
    from agents.wire.control import Message

#: What a launch child ends with when launches like this one will come again: its PCT keeps the modules ready.
WARM = 3


class Payload:
    """What travels with a launch on ``node``: made when something of it is needed or comes by."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._launch: Optional[LaunchContext] = None
        self._transfer: Optional[PayloadTransfer] = None
        self._plain = True
        #: The nodes of a launch that came from another machine: they may fetch what this one has.
        self.members: FrozenSet[str] = frozenset()

    def orders(self) -> Dict[str, Callable[[Message], None]]:
        return {
            "images": lambda message: self._now().announced(message),
            "image_at": lambda message: self._now().placed(message),
        }

    def reports(self) -> Dict[str, Callable[[Child, Message], None]]:
        return {
            "want": lambda _child, _message: self._now().ask(),
            "no_room": lambda _child, message: self._now().pass_up(message),
            "progress": lambda _child, message: self._now().progress(message),
        }

    def loaded(self, launch: LaunchContext) -> None:
        """The load is here. LoadFailed when this node cannot take what comes with it."""
        self._launch = launch
        self._plain = plain(launch.program, launch.load.ranks)
        if self._plain:
            return
        try:
            self._now().prepare()
        except PctError as error:
            raise LoadFailed(f"{self._node}: {error.message}", error.fault, hint=error.hint) from None
        except OSError as error:
            raise LoadFailed(f"{self._node}: {error.filename}: {error.strerror}", whose(error.errno or 0)) from None

    def _now(self) -> PayloadTransfer:
        if self._transfer is None:
            if self._launch is None:
                raise WireError("what travels with a launch comes behind its load")
            from agents.pct.launch_child.payload_transfer import PayloadTransfer

            self._transfer = PayloadTransfer(self._launch)
        return self._transfer

    def begin(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the ranks may begin."""
        if self._plain:
            then()
        else:
            self._now().begin(then)

    def finish(self, ran: bool, then: Callable[[], None]) -> None:
        """The ranks have ended (or never ``ran``): call ``then`` when nothing of theirs has to travel any more."""
        if self._transfer is None:
            then()
        else:
            self._transfer.finish(ran, then)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame from the parent that is not an ordinary one."""
        if kind not in (IMAGE, FILE):
            raise WireError(f"a frame of kind {kind} came down the tree")
        self._now().on_frame(kind, payload)

    def on_child_frame(self, payload: bytes) -> None:
        """A FILE frame from below."""
        self._now().on_child_frame(payload)

    def fetch(self, session: Session, message: Message) -> None:
        """Another node wants an image from this one. AgentError when it is none of the launch's."""
        who = message.get("node")
        if who is not None and who not in self.members:
            raise Refusal("stranger", f"{str(who)[:80]} is not a node of this launch")
        self._now().fetch(session, message)

    def starve(self) -> None:
        """The launcher sends nothing for the moment, and no node is to blame for what does not come."""
        if self._transfer is not None:
            self._transfer.starve()

    def abandon(self) -> None:
        """The launcher is gone: nothing travels any more."""
        if self._transfer is not None:
            self._transfer.abandon()

    def abandon_mounts(self) -> None:
        """What yod has not answered about mounted files fails with EIO."""
        if self._transfer is not None:
            self._transfer.abandon_mounts()

    @property
    def namespaces(self) -> "List[Tuple[int, int]]":
        """What the ranks enter before anything else (agents/pct/files/mounts.py)."""
        return self._transfer.namespaces if self._transfer is not None else []

    @property
    def stays_clean(self) -> bool:
        """Whether this process is, once closed, as before the launch: what travelled was programs, if anything."""
        return self._transfer is None or self._transfer.only_images

    def close(self) -> int:
        """Remove what came; what a launch child that ends well ends with, now or behind another launch."""
        if self._transfer is None:
            return 0
        self._transfer.close()
        return WARM
