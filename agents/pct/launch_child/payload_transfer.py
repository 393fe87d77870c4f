"""The payload transfers of a launch: images, the application's files, files staged in and out.

A plain launch has none and never imports this module.
"""

from __future__ import annotations

import os
import time

from agents.pct.errors import LoadFailed, PctError
from agents.pct.files.yodio import yodio_in
from agents.pct.images.broadcast import LIBRARIES, Images
from agents.pct.images.store import room
from agents.pct.launch.context import LaunchContext
from agents.wire.control import Message
from agents.wire.errors import WireError
from agents.wire.frames import FILE, IMAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from agents.link.server import Session
    from agents.pct.files.mounts import Mounts
    from agents.pct.files.remote_io import Application
    from agents.pct.files.staging import Staging
    from agents.wire.control import Message

#: The interval of progress reports about images, in seconds.
_PROGRESS_S = 0.5


class PayloadTransfer:
    """The transfers of one launch child."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._passed_on = 0.0
        self._images = Images(launch)
        self._application: Optional[Application] = None
        self._staging: Optional[Staging] = None
        self._mounts: Optional[Mounts] = None
        self._abandoned = False

    def prepare(self) -> None:
        """Called before the ranks' environment is built, to which it adds. Raises PctError or OSError."""
        wants, env = self._launch.program.payload, self._launch.program.env
        staged = int(wants.get("stage_bytes", 0))

        def fill(directory: str) -> str:
            if staged:
                room(os.path.dirname(directory), staged)  # as in the messages of all launches
            return yodio_in(directory) if wants.get("files") else ""

        yodio = self._images.open_store(fill) if staged or wants.get("files") else ""
        self._images.tell_instead()
        if wants.get("libs"):
            _prepend(env, b"LD_LIBRARY_PATH", os.path.join(self._images.store.directory, LIBRARIES))
        if wants.get("stage_in"):
            env[b"YOD_STAGE"] = os.fsencode(self._images.store.directory)
        if wants.get("files"):
            env[b"YOD_IO"] = os.fsencode(self._files().path)
            _prepend(env, b"PATH", yodio)
            _prepend(env, b"PYTHONPATH", yodio)

    def begin(self, then: Callable[[], None]) -> None:
        """Call ``then`` when everything that the ranks need is on this node."""
        stage_in = int(self._launch.program.payload.get("stage_in", 0))
        if "mounts" in self._launch.program.payload:
            last = then
            then = lambda: self._mount(last)  # noqa: E731
        after = then if not stage_in else lambda: self._stage().bring(stage_in, then)
        if "bcast" in self._launch.program.payload:
            self._images.begin(after)
        else:
            after()

    def _mount(self, then: Callable[[], None]) -> None:
        from agents.pct.files.mounts import Mounts

        self._mounts = Mounts(self._launch, self._files(), self._images.store.base)
        self._mounts.begin(self._launch.program.payload["mounts"], then)

    def abandon_mounts(self) -> None:
        """Answer pending and later requests about mounted files with an error."""
        if self._mounts is not None:
            self._mounts.abandon()

    @property
    def namespaces(self) -> "List[Tuple[int, int]]":
        """Namespaces that the ranks enter to see mounted directories: descriptors with their kinds."""
        return self._mounts.namespaces if self._mounts is not None else []

    def finish(self, ran: bool, then: Callable[[], None]) -> None:
        """Call ``then`` when the files that the ranks, if they ``ran``, left for the launcher have been sent."""

        def clear() -> None:
            self._clear()  # before the launcher is told, so that an ended launch leaves nothing
            then()

        stage_out = int(self._launch.program.payload.get("stage_out", 0))
        if stage_out and ran:
            self._stage().take(stage_out, clear)
        else:
            clear()

    def _files(self) -> Application:
        if self._application is None:
            from agents.pct.files.remote_io import Application

            self._application = Application(self._launch)
        return self._application

    def _stage(self) -> Staging:
        if self._staging is None:
            from agents.pct.files.staging import Staging

            self._staging = Staging(self._launch, self._files(), lambda: self._images.store.directory)
            if self._abandoned:
                self._staging.abandon()
        return self._staging

    # Messages in the tree

    def announced(self, message: Message) -> None:
        """The images of the launch, announced by its root."""
        self._or_fail(lambda: self._images.announced(message))

    def placed(self, message: Message) -> None:
        """An image is in the parallel file system."""
        self._or_fail(lambda: self._images.placed(message))

    def _or_fail(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PctError as error:
            why = f"{self._launch.node}: {error.message}"
            self._launch.fail(
                LoadFailed(why, error.fault, hint=error.hint, lasting=error.lasting, of_room=error.of_room)
            )

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame from the parent."""
        if kind == IMAGE:
            self._images.piece(payload)
        elif kind == FILE:
            self._files().on_answer(payload)
        else:
            raise WireError(f"a frame of kind {kind} came down the tree")

    def on_child_frame(self, payload: bytes) -> None:
        """A FILE frame from a child: a request to the launcher."""
        self._files().pass_up(payload)

    def ask(self) -> None:
        """A child requests images."""
        self._images.ask()

    def pass_up(self, message: Message) -> None:
        """A message of a lower node to the launcher."""
        self._launch.tree.up.tell(message)

    def progress(self, message: Message) -> None:
        """The progress of a lower node; forwarded now and then."""
        if time.monotonic() - self._passed_on > _PROGRESS_S:
            self._passed_on = time.monotonic()
            self.pass_up(message)

    def fetch(self, session: Session, message: Message) -> None:
        """Another node requests an image."""
        self._images.fetch(session, message)

    def starve(self) -> None:
        """The launcher sends nothing at present."""
        self._images.starve()

    def abandon(self) -> None:
        """The launcher is lost; later requests would not be answered."""
        self._abandoned = True
        self.abandon_mounts()
        if self._staging is not None:
            self._staging.abandon()

    @property
    def only_images(self) -> bool:
        """True if neither application files nor staged files were transferred."""
        return self._application is None and self._staging is None

    def close(self) -> None:
        """Remove everything that came with the launch."""
        self._clear()
        self._images.close()
        if self._application is not None:
            self._application.close()

    def _clear(self) -> None:
        if self._staging is not None:
            self._staging.close()
        if self._mounts is not None:
            self._mounts.close()
        self._images.clear()


def _prepend(env: "dict[bytes, bytes]", name: bytes, path: str) -> None:
    before = env.get(name, b"")
    env[name] = os.fsencode(path) + (b":" + before if before else b"")
