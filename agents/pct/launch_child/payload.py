"""The launch child's way to its cargo: nothing at all for a plain launch, payload_transfer.py for others."""

from __future__ import annotations

from agents.pct.errors import LoadFailed, PctError, whose
from agents.pct.launch.load import plain
from agents.wire.errors import Refusal, WireError
from agents.wire.frames import FILE, IMAGE

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, FrozenSet, List, Optional

    from agents.link.loop import Loop
    from agents.link.server import Session
    from agents.pct.launch.load import Load, Program
    from agents.pct.launch.tree import Child
    from agents.pct.launch_child.payload_transfer import PayloadTransfer
    from agents.wire.control import Message

#: What a launch child ends with when launches like this one will come again: its PCT keeps the modules ready.
WARM = 3
DOWN_OPS = ("images", "image_at")
UP_OPS = ("want", "no_room", "progress")


class Payload:
    """Makes the cargo when something of it is needed or comes by; then all of it goes there."""

    def __init__(
        self,
        loop: Loop,
        run: str,
        node: str,
        is_root: bool,
        children: List[Child],
        send_up: Callable[[bytes], None],
        fail: Callable[[LoadFailed], None],
    ) -> None:
        self._loop, self._node, self._is_root, self._children = loop, node, is_root, children
        self.run = run
        self._send_up, self._fail = send_up, fail
        self._load: Optional[Load] = None
        self._program: Optional[Program] = None
        self._cargo: Optional[PayloadTransfer] = None
        self._plain = True
        #: The nodes of a launch that came from another machine: they may fetch what this one has.
        self.members: FrozenSet[str] = frozenset()

    def loaded(self, load: Load, program: Program) -> None:
        """The load is here. LoadFailed when this node cannot take what comes with it."""
        self._load, self._program = load, program
        self._plain = plain(program, load.ranks)
        if self._plain:
            return
        try:
            self._now().prepare()
        except PctError as error:
            raise LoadFailed(f"{self._node}: {error.message}", error.fault, hint=error.hint) from None
        except OSError as error:
            raise LoadFailed(f"{self._node}: {error.filename}: {error.strerror}", whose(error.errno or 0)) from None

    def _now(self) -> PayloadTransfer:
        if self._cargo is None:
            if self._load is None or self._program is None:
                raise WireError("cargo comes behind its load")
            from agents.pct.launch.context import Around
            from agents.pct.launch_child.payload_transfer import PayloadTransfer

            around = Around(
                self._loop, self.run, self._node, self._load, self._program, self._is_root, self._children,
                self._send_up, self._fail,
            )  # fmt: skip
            self._cargo = PayloadTransfer(around)
        return self._cargo

    def begin(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the ranks may begin."""
        if self._plain:
            then()
        else:
            self._now().begin(then)

    def finish(self, ran: bool, then: Callable[[], None]) -> None:
        """The ranks have ended (or never ``ran``): call ``then`` when nothing of theirs has to travel any more."""
        if self._cargo is None:
            then()
        else:
            self._cargo.finish(ran, then)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame from the parent that is no ordinary one."""
        if kind not in (IMAGE, FILE):
            raise WireError(f"a frame of kind {kind} came down the tree")
        self._now().on_frame(kind, payload)

    def on_order(self, op: str, message: Message) -> None:
        """One of ``DOWN_OPS``."""
        self._now().on_order(op, message)

    def on_child_message(self, op: str, message: Message) -> None:
        """One of ``UP_OPS``."""
        self._now().on_child_message(op, message)

    def on_child_frame(self, payload: bytes) -> None:
        """A FILE frame from below."""
        self._now().on_child_frame(payload)

    def fetch(self, session: Session, message: Message) -> None:
        """Another node wants an image from this one. AgentError when it is none of the launch's."""
        who = message.get("node")
        if who is not None and who not in self.members:
            raise Refusal("stranger", f"{str(who)[:80]} is no node of this launch")
        self._now().fetch(session, message)

    def starve(self) -> None:
        """The launcher sends nothing for the moment, and no node is to blame for what does not come."""
        if self._cargo is not None:
            self._cargo.starve()

    def abandon(self) -> None:
        """The launcher is gone: nothing travels any more."""
        if self._cargo is not None:
            self._cargo.abandon()

    @property
    def stays_clean(self) -> bool:
        """Whether this process is, once closed, as before the launch: what travelled was programs, if anything."""
        return self._cargo is None or self._cargo.only_images

    def close(self) -> int:
        """Remove what came; what a launch child that ends well ends with, now or behind another launch."""
        if self._cargo is None:
            return 0
        self._cargo.close()
        return WARM
