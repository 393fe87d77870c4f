"""The payload of a launch (images, staged files); imports payload_transfer.py only if there is one."""

from __future__ import annotations

from agents.pct.errors import OF_ROOM, OF_THE_PLACE, LoadFailed, PctError, advice
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

#: The exit status of a launch child after which similar launches are likely: its PCT keeps the modules imported.
WARM = 3


class Payload:
    """The payload of a launch on ``node``, created when first needed."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._launch: Optional[LaunchContext] = None
        self._transfer: Optional[PayloadTransfer] = None
        self._plain = True
        #: The nodes of a launch from another machine; they may fetch what this node has.
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
        """The load is here. Raises LoadFailed if this node cannot accept the payload."""
        self._launch = launch
        self._plain = plain(launch.program, launch.load.ranks)
        if self._plain:
            return
        try:
            self._now().prepare()
        except PctError as error:
            raise LoadFailed(
                f"{self._node}: {error.message}", error.fault,
                hint=error.hint, lasting=error.lasting, of_room=error.of_room,
            ) from None  # fmt: skip
        except OSError as error:
            why = f"{self._node}: {error.filename}: {error.strerror}"
            number = error.errno or 0
            raise LoadFailed(
                why, "launch", hint=advice(number), lasting=number in OF_THE_PLACE, of_room=number in OF_ROOM
            ) from None

    def _now(self) -> PayloadTransfer:
        if self._transfer is None:
            if self._launch is None:
                raise WireError("what travels with a launch comes behind its load")
            from agents.pct.launch_child.payload_transfer import PayloadTransfer

            self._transfer = PayloadTransfer(self._launch)
        return self._transfer

    def begin(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the ranks may start."""
        if self._plain:
            then()
        else:
            self._now().begin(then)

    def finish(self, ran: bool, then: Callable[[], None]) -> None:
        """The ranks have ended (or never ``ran``): call ``then`` when nothing of theirs remains to be transferred."""
        if self._transfer is None:
            then()
        else:
            self._transfer.finish(ran, then)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A special frame from the parent."""
        if kind not in (IMAGE, FILE):
            raise WireError(f"a frame of kind {kind} came down the tree")
        self._now().on_frame(kind, payload)

    def on_child_frame(self, payload: bytes) -> None:
        """A FILE frame from a child."""
        self._now().on_child_frame(payload)

    def fetch(self, session: Session, message: Message) -> None:
        """Another node requests an image. Raises AgentError if it is not one of the launch's."""
        who = message.get("node")
        if who is not None and who not in self.members:
            raise Refusal("stranger", f"{str(who)[:80]} is not a node of this launch")
        self._now().fetch(session, message)

    def starve(self) -> None:
        """The launcher sends nothing at present, so silence is nobody's fault."""
        if self._transfer is not None:
            self._transfer.starve()

    def abandon(self) -> None:
        """The launcher is lost: end all transfers."""
        if self._transfer is not None:
            self._transfer.abandon()

    def abandon_mounts(self) -> None:
        """Answer pending requests about mounted files with EIO."""
        if self._transfer is not None:
            self._transfer.abandon_mounts()

    @property
    def namespaces(self) -> "List[Tuple[int, int]]":
        """Namespaces that the ranks must enter (agents/pct/files/mounts.py)."""
        return self._transfer.namespaces if self._transfer is not None else []

    @property
    def stays_clean(self) -> bool:
        """True if this process is, once closed, as before the launch: at most programs were transferred."""
        return self._transfer is None or self._transfer.only_images

    def close(self) -> int:
        """Remove the payload; returns the exit status for a normal end, now or after another launch."""
        if self._transfer is None:
            return 0
        self._transfer.close()
        return WARM
