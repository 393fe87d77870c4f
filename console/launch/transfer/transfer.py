"""yod's transfers for a launch: programs and libraries for the nodes, files for the ranks.

A plain launch never imports this (docs/protocol.md, "Cargo").
"""

from __future__ import annotations

from console.launch.transfer.images import Images

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.link import Link
    from agents.link.loop import Loop
    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.transfer.io_server import Files


class Transfer:
    """The transfers of a launch.

    ``say(text)`` prints a status line, ``complain(text)`` an error;
    ``fail(node, message, hint, exit status, fault)`` ends the launch.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        plan: Plan,
        launcher: int,
        root: Link,
        say: Callable[[str], None],
        fail: Callable[[str, str, str, int, str], None],
        complain: Callable[[str], None],
    ) -> None:
        self._complain = complain
        self._request, self._plan, self._launcher, self._root = request, plan, launcher, root
        self._images = Images(loop, request, plan, root, say, fail)
        self._files: Files | None = None
        root.on_drained = self._on_drained

    def begin(self) -> None:
        """Announce files that must be sent, after the load was sent."""
        options = self._request.transfer
        if options.bcast == "always" or (options.bcast_libs and options.bcast != "never"):
            self._images.announce()

    def on_message(self, op: str, message: dict[str, Any]) -> None:
        """Handle ``want`` and ``no_room``."""
        if op == "no_room":
            self._images.no_room(message["node"], message["number"], message["message"])
        elif "number" in message:
            self._images.send(message["number"])
        else:
            self._images.announce()

    def on_frame(self, payload: bytes) -> None:
        """Serve a file request of a rank, or of a node that stages files."""
        if self._files is None:
            from console.launch.transfer.io_server import Files

            self._files = Files(self._request, self._plan, self._launcher, self._root, self._complain)
        self._files.take(payload)

    def _on_drained(self) -> None:
        self._images.push()
        if self._files is not None:
            self._files.push()

    @property
    def reads(self) -> bool:
        """True while yod reads the files to send, so that nodes are not to blame for a delay."""
        return self._images.reads

    @property
    def exit_status(self) -> int:
        """yod's exit status if the ranks succeeded: 125 if a file could not be staged out."""
        return 125 if self._files is not None and self._files.failed else 0

    def close(self) -> None:
        """Stop all transfers, at the end of the launch."""
        self._images.close()
        if self._files is not None:
            self._files.close()
