"""The images of a launch on this node: requested, fetched, forwarded, used, removed.

Small images are pushed down the control tree after their announcement. For larger ones only the announcement comes;
each node fetches the image from its ancestor in the data tree (agents/pct/images/fetch.py), the root from the launcher.
"""

from __future__ import annotations

import os
import time

from agents.link.server import Session
from agents.pct.errors import LoadFailed
from agents.pct.images import store as store_of_images
from agents.pct.images.chunks import STEP, read_piece, step
from agents.pct.images.digests import Digests
from agents.pct.images.fetch import STALL_S, Pull, Receiver, description
from agents.pct.images.image import Image
from agents.pct.images.serve import FAR_GRAIN, Serving, Servings
from agents.pct.images.states import Action, Event, Sources, State, ancestors, width
from agents.pct.images.store import Arriving, Damaged, ImageError, NoRoom, Store, Stores, in_ram_disk
from agents.pct.launch.context import LaunchContext
from agents.pct.launch.load import runs_in_place
from agents.pct.launch.paths import launch_socket
from agents.wire.control import Message, control, to_bytes
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import IMAGE, frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, TypeVar

    from agents.pct.images.chunks import MappedFile

    Made = TypeVar("Made")

LIBRARIES = "lib"  # the directory of --bcast-libs, below the launch's own
#: Seconds between checks whether another PCT has written an image (lowest, highest); cheap checks between two full
#: ones.
_LOOK_S, _LOOK_LATER_S, _LOOKS = 0.003, 0.02, 8
_PROGRESS_S = 1.0
#: Seconds without a byte from the launcher after which the root tells lower nodes to wait: less than their own
#: time-out.
_STARVED_S = 0.8
#: Seconds after which a full RAM disk is checked again.
_ROOM_S = 0.1


class Images:
    """All images of the launch on this node."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._store: Optional[Store] = None
        self._stores = Stores(f"{launch.load.mesh}-{launch.load.name}-{launch.load.launcher}")
        self._instead = self._told_instead = ""  # the line about the places that were left
        self._images: List[Image] = []
        self._known = self._asked = self._share = self._push = self._failed = self._cleared = False
        self._names: List[str] = []
        self._addresses: List[str] = []
        self._then: Optional[Callable[[], None]] = None
        self._servings = Servings()
        self._parked: List[Any] = []
        self._reported = time.monotonic()
        self._elsewhere: List[str] = []
        self._step = STEP
        self._memory: List[int] = []  # descriptors of files without a name

    @property
    def store(self) -> Store:
        """This launch child's part of the RAM disk. Raises ImageError if there is none."""
        if self._store is None:
            self.open_store(lambda _directory: None)
            self.tell_instead()
        assert self._store is not None
        return self._store

    def open_store(self, fill: "Callable[[str], Made]") -> "Made":
        """Open the store where there is room for what ``fill(directory)`` writes first, and return what that returns.

        Raises ImageError if it can be opened nowhere.
        """
        if self._store is not None:
            return fill(self._store.directory)
        made, self._store, self._instead = self._stores.put(lambda store: fill(store.directory))
        return made

    def tell_instead(self) -> None:
        """Tell people once which places cannot hold the files."""
        if self._instead != self._told_instead:
            self._told_instead = self._instead
            self._launch.tree.up.tell({"op": "note", "node": self._launch.node, "message": self._instead})

    def begin(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all images are here; at once if none comes from elsewhere."""
        launch = self._launch
        if runs_in_place(launch.program, launch.load.ranks):
            then()
            return
        self._then = then
        if launch.program.payload["bcast"] == "ask":
            self.ask()
        self._check()

    def ask(self) -> None:
        """This node, or a lower one, has a file that differs from the launcher's: ask which one is right."""
        if not self._asked and not self._known:
            self._asked = True
            self._launch.tree.up.send(control({"op": "want"}))

    # The announcement

    def announced(self, message: Message) -> None:
        """The images of the launch. Handle ours first, so that on a shared host a node higher in the tree writes."""
        if self._known:
            return
        self._known = True
        try:
            self._images = [Image(number, told) for number, told in enumerate(message["images"])]
        except (KeyError, TypeError, ValueError, AgentError):
            raise WireError("an image without name, path, digest or size") from None
        self._share, self._push = bool(message.get("share", True)), bool(message.get("push"))
        self._names = [str(name) for name in message.get("names", ())]
        self._addresses = [str(address) for address in message.get("addresses", ())]
        self._step = step(0 if self._addresses else len(self._names))
        self._claim(bool(message.get("in_place")))
        self._pass_on(control(message))
        self._decided()

    def _claim(self, in_place: bool) -> None:
        program, ranks = self._launch.program, self._launch.load.ranks
        paths = {os.fsdecode(program.segment_of(rank).path) for rank in ranks}
        names = set()
        for image in self._images:
            image.wanted = image.library or image.path in paths
            image.folder = LIBRARIES if image.library else str(image.number) if image.name in names else ""
            if not image.library:
                names.add(image.name)
            # the root has all images, because it is the last source of every node
            if image.wanted or self._launch.tree.is_root:
                self._decide(image, in_place)

    def _decide(self, image: Image, in_place: bool) -> None:
        if in_place and self._push:  # small, and its bytes follow at once: they show whether they are needed
            try:
                same = in_ram_disk(Digests)[0].in_place(image.path, image.digest, image.size)
            except ImageError as error:
                self._broken(image, error)
            else:
                self._found_out(image, same)
        elif in_place:
            self._compare(image, image.path, lambda same: self._found_out(image, same))
        else:
            self._get(image)

    def _found_out(self, image: Image, same: bool) -> None:
        if same:
            self._run_there(image, image.path, Event.FOUND)
        else:
            self._get(image)

    def _compare(self, image: Image, path: str, then: Callable[[bool], None]) -> None:
        # Hash a large file in slices, so that other connections are served meanwhile.
        try:
            image.comparing = in_ram_disk(Digests)[0].in_place_steps(path, image.digest, image.size)
        except ImageError as error:
            self._broken(image, error)
        else:
            self._compare_more(image, then)

    def _compare_more(self, image: Image, then: Callable[[bool], None]) -> None:
        if image.comparing is None:
            return  # the launch is over
        try:
            wait_s = next(image.comparing)
        except StopIteration as over:
            image.comparing = None
            then(over.value)
            if image.placed and image.machine.state not in (State.HERE, State.FAILED):
                self._compare_placed(image)
        else:
            self._progress(image)
            self._launch.loop.after(wait_s, lambda: self._compare_on(image, then))

    def _compare_on(self, image: Image, then: Callable[[bool], None]) -> None:
        self._compare_more(image, then)
        if image.comparing is None:
            self._decided()

    def _decided(self) -> None:
        parked, self._parked = self._parked, []
        for session, request in parked:
            self.fetch(session, request)
        self._check()

    def _run_there(self, image: Image, path: str, event: Event) -> None:
        try:
            image.file = self._linked(image, path) if image.library else path
            self._handle(image, event)
        except ImageError as error:
            self._broken(image, error)

    def _get(self, image: Image) -> None:
        if image.machine.state is not State.ASKED or self._cleared:
            return
        try:
            image.arriving = self._want(image, self._share)
            if image.arriving.state == "theirs" and self._launch.tree.is_root:
                # The node that writes it here may be waiting for us: the root never waits.
                image.arriving = self._want(image, False)
            if image.library and not image.arriving.path.startswith(f"{self.store.directory}/"):
                self._linked(image, image.arriving.path)
            self.tell_instead()
            image.pushed = self._push and image.arriving.state == "mine"
            self._handle(image, _FOUND_OUT[image.arriving.state])
        except NoRoom as error:
            if image.elsewhere:
                self._broken(image, error)
            elif image.full is not None or self._push:
                image.elsewhere = True
                self._get(image)
            else:
                # A launch that has just ended may be freeing its space.
                image.full = error
                self._launch.loop.after(_ROOM_S, lambda: self._get_at_last(image))
        except ImageError as error:
            self._broken(image, error)

    def _get_at_last(self, image: Image) -> None:
        self._get(image)
        self._decided()

    def _want(self, image: Image, share: bool) -> Arriving:
        def want(store: Store) -> Arriving:
            return store.want(image.digest, image.size, image.name, share=share, folder=image.folder)

        if not image.elsewhere:
            self.open_store(lambda _directory: None)
            assert self._store is not None
            return want(self._store)
        arriving, _store, self._instead = self._stores.put(want)
        return arriving

    def _linked(self, image: Image, path: str) -> str:
        # A program in the RAM disk no longer finds files beside its original place through $ORIGIN.
        folder = os.path.join(self.store.directory, LIBRARIES)
        store_of_images.own_directory(folder)
        link = os.path.join(folder, image.name)
        try:
            os.symlink(path, link)
        except OSError as error:
            raise ImageError(f"{link}: {error.strerror}") from None
        return path

    def placed(self, message: Message) -> None:
        """An image is in the parallel file system now."""
        self._pass_on(control(message))
        number, path = message["number"], os.fsdecode(to_bytes(message["path"]))
        if not 0 <= number < len(self._images):
            return
        image = self._images[number]
        if image.machine.state is State.ASKED and image.full is not None:
            self._broken(image, image.full)  # another node was faster, so do not check again
        if image.comparing is None and image.machine.state in (State.HERE, State.FAILED, State.ASKED):
            return
        self._elsewhere.append(path)
        known, image.placed = image.placed, path
        if image.comparing is None and not known:
            self._compare_placed(image)

    def _compare_placed(self, image: Image) -> None:
        path, image.placed = image.placed, ""
        self._compare(image, path, lambda same: self._use_placed(image, path, same))

    def _use_placed(self, image: Image, path: str, same: bool) -> None:
        if not same:
            self._broken(image, Damaged(f"{path} is not the program that was announced", "is it the same there?"))
        elif image.machine.state is not State.HERE:
            self._run_there(image, path, Event.PLACED)

    def _pass_on(self, data: bytes) -> None:
        for child in self._launch.tree.children:
            if not child.over:
                child.follow(data)

    # Actions of the state machine

    def _handle(self, image: Image, event: Event) -> None:
        for action in image.machine.handle(event):
            self._DO[action](self, image)

    def _fetch(self, image: Image) -> None:
        if image.pushed:
            return
        if self._launch.tree.is_root:
            self._launch.tree.up.send(control({"op": "want", "number": image.number}))
            image.grew_at = time.monotonic()
            self._launch.loop.after(_STARVED_S, lambda: self._look_at_launcher(image))
            return
        children = width(image.size, len(self._addresses)) if self._addresses else 2
        image.pull = Pull(
            self._launch.loop,
            Sources(ancestors(self._launch.load.place, children)),
            self._source,
            description(image, self._launch.load.launcher),
            Receiver(
                lambda: image.received,
                lambda offset, data: self._write(image, offset, data),
                lambda file, offset, count: self._copy(image, file, offset, count),
                lambda reason, answered: self._broken(image, image.missing(reason, answered)),
            ),
            self._step,
        )

    def _look_at_launcher(self, image: Image) -> None:
        # If it is slow, or stopped by its user, nobody is at fault: the launch's own time limit applies. The same holds
        # for a launcher that copies to the parallel file system what has no room here.
        if image.machine.state in (State.FETCHING, State.CROWDED):
            if time.monotonic() - image.grew_at > _STARVED_S:
                self.starve()
            self._launch.loop.after(_STARVED_S / 2, lambda: self._look_at_launcher(image))

    def starve(self) -> None:
        """The launcher sends nothing: tell this node's and lower nodes' fetches to keep waiting."""
        for image in self._images:
            if image.pull is not None:
                image.pull.wait()
            elif image.machine.state is State.WAITING:
                image.grew_at = time.monotonic()
        for child in self._launch.tree.children:
            if not child.over:
                child.send({"op": "ping", "starved": True})

    def _source(self, place: int) -> str:
        # On another machine, an image proxy of its PCT transfers what its launch child serves
        # (agents/pct/remote/image_proxy.py).
        if self._addresses:
            return self._addresses[place]
        return launch_socket(self._launch.run, self._names[place], self._launch.load.launcher)

    def _look_later(self, image: Image) -> None:
        image.looks += 1
        delay = min(_LOOK_LATER_S, _LOOK_S * 1.3 ** min(image.looks, 20))
        self._launch.loop.after(delay, lambda: self._look(image))

    def _look(self, image: Image) -> None:
        if image.machine.state is not State.WAITING or image.arriving is None:
            return
        # A check is cheap while nothing has changed; only some checks test whether the writer lives.
        if image.looks % _LOOKS and not os.path.exists(image.arriving.whole):
            self._look_later(image)
            return
        try:
            if image.arriving.grows():
                image.grew_at = time.monotonic()
            elif time.monotonic() - image.grew_at > STALL_S:
                image.arriving = self._want(image, False)  # its writer is stopped: write our own copy
            self._handle(image, _FOUND_OUT[image.arriving.step()])
        except ImageError as error:
            self._broken(image, error)

    def _tell_full(self, image: Image) -> None:
        if self._launch.tree.is_root and image.arriving is None:
            self._look_at_launcher(image)
        self._launch.tree.up.send(
            control({"op": "no_room", "node": self._launch.node, "number": image.number, "message": image.trouble})
        )

    def _drop(self, image: Image) -> None:
        if image.pull is not None:
            image.pull.close()
            image.pull = None
        if image.arriving is not None:
            image.arriving.abandon()
        self._servings.stop(image.number)

    def _use(self, image: Image) -> None:
        if image.pull is not None:
            image.pull.close()
            image.pull = None
        if not image.file and image.arriving is not None:
            image.file = image.arriving.path
        self._servings.push(image.number)
        self._decided()

    def _fail(self, image: Image) -> None:
        self._failed = True
        self._launch.fail(LoadFailed(f"{self._launch.node}: {image.trouble}", image.fault, hint=image.hint))

    def _broken(self, image: Image, error: ImageError) -> None:
        image.trouble, image.hint = error.message, error.hint
        image.fault = error.fault
        self._handle(image, Event.FULL if isinstance(error, NoRoom) else Event.BROKEN)

    def _check(self) -> None:
        then = self._then
        wanted = [image for image in self._images if image.wanted]
        if then is None or self._failed or not self._known:
            return
        if any(image.machine.state is not State.HERE for image in wanted):
            return
        self._then = None
        files = {os.fsencode(image.path): os.fsencode(image.file) for image in wanted if not image.library}
        for segment in self._launch.program.segments:
            segment.path = files.get(segment.path, segment.path)
        then()

    # Data

    def piece(self, payload: bytes) -> None:
        """A piece from the parent: pushed to every node, or requested by the root."""
        if self._push:
            self._pass_on(frame(IMAGE, payload))
        number, offset, data = read_piece(payload)
        if not number < len(self._images):
            raise WireError("a piece of an image that was not announced")
        image = self._images[number]
        if image.machine.state is State.FETCHING and image.pull is None:
            self._write(image, offset, data)

    def _write(self, image: Image, offset: int, data: memoryview) -> None:
        assert image.arriving is not None
        try:
            image.arriving.write(offset, data)
        except ImageError as error:
            self._broken(image, error)
        else:
            self._came(image, image.arriving)

    def _copy(self, image: Image, file: MappedFile, offset: int, count: int) -> int:
        assert image.arriving is not None
        try:
            found = image.arriving.copy(file, offset, count)
        except ImageError as error:
            self._broken(image, error)
            return count
        self._came(image, image.arriving)
        return found

    def _came(self, image: Image, arriving: Arriving) -> None:
        self._progress(image)
        if image.received < image.size:
            self._servings.push(image.number)
            return
        try:
            arriving.finish()
        except ImageError as error:
            self._broken(image, error)
        else:
            self._handle(image, Event.WHOLE)

    def _progress(self, image: Image) -> None:
        now = image.grew_at = time.monotonic()
        if now - self._reported > _PROGRESS_S:
            self._reported = now
            self._launch.tree.up.send(control({"op": "progress", "node": self._launch.node, "bytes": image.received}))

    def fetch(self, session: Session, request: Message) -> None:
        """Another node requests an image."""
        if not self._known:
            self._parked.append((session, request))
            return
        number = request["number"]
        image = self._images[number] if 0 <= number < len(self._images) else None
        if image is not None and self._comes_later(image):
            self._parked.append((session, request))
            return
        try:
            if image is None or image.digest != request["digest"]:
                raise ImageError("that image is not here")
            if image.machine.state is State.HERE:
                path = image.file
            elif image.machine.state is State.FETCHING and image.arriving is not None:
                path = image.arriving.part
            else:
                raise ImageError("that image is not here yet")
            # the path is the user's, and may be a pipe by now
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except ImageError as error:
            session.refuse(request, error)
        except OSError as error:
            session.refuse(request, ImageError(f"{error.strerror}"))
        else:
            session.reply(request, {"size": image.size})
            grain = FAR_GRAIN if "node" in request else self._step
            self._servings.add(number, Serving(session, number, image.size, fd, lambda: image.received, grain))

    def _comes_later(self, image: Image) -> bool:
        if image.machine.state in (State.ASKED, State.CROWDED) and self._launch.tree.is_root:
            return True  # there is no other source
        return image.comparing is not None and image.arriving is None

    def clear(self) -> None:
        """Remove our files, and the host's copy if nobody else uses it.

        ``close`` frees the memory of our own copy, because the launcher need not wait for that.
        """
        self._cleared = True
        self._servings.close()
        for image in self._images:
            if image.comparing is not None:
                image.comparing.close()
                image.comparing = None
            if image.pull is not None:
                image.pull.close()
            if image.machine.state is State.FETCHING and image.arriving is not None:
                image.arriving.abandon()
        if self._store is not None:
            self._hold()
        self._stores.remove()
        self._store = None

    def _hold(self) -> None:
        for image in self._images:
            if image.machine.state is State.HERE and not self._share:
                try:
                    self._memory.append(os.open(image.file, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
                except OSError:
                    pass  # the path is the user's, and may be anything by now

    def close(self) -> None:
        """Remove our files and free their memory."""
        self.clear()
        while self._memory:
            os.close(self._memory.pop())
        # Only now, because other nodes may run it after our ranks have ended. The launcher also does it, unless it was
        # killed.
        for path in self._elsewhere if self._launch.tree.is_root else ():
            try:
                os.unlink(path)
                os.rmdir(os.path.dirname(path))
            except OSError:
                pass

    _DO = {
        Action.FETCH: _fetch,
        Action.LOOK: _look_later,
        Action.TELL_FULL: _tell_full,
        Action.DROP: _drop,
        Action.USE: _use,
        Action.FAIL: _fail,
    }


_FOUND_OUT = {"here": Event.FOUND, "mine": Event.OURS, "theirs": Event.THEIRS}
