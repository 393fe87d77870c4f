"""A launch on a node in system mode: its user, and its directory there."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time

from agents.link.loop import READ
from agents.pct.errors import LoadFailed, advice, whose_run
from agents.pct.files.yodio import load_all_modules
from agents.pct.images import store
from agents.pct.images.ram_disk import places, user_directory
from agents.pct.launch.paths import owed_epilog, processor_locks
from agents.pct.multiuser import prolog_epilog
from agents.pct.multiuser.identity import User, look_up
from agents.pct.multiuser.processor_lock import ProcessorLock

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from agents.link.journal import Journal
    from agents.link.loop import Loop
    from agents.pct.launch.load import Load
    from agents.wire.caller_groups import CallerGroups
    from redmesh.settings.keeper_file import KeeperFile

_NOBODY = 65534
_SWEEP_S = 10.0  # for one user's files, so that a user who stops the process cannot delay others for longer


class SystemMode:
    """The settings in keeper.json: ``prolog`` and ``epilog`` (paths, or ""), ``prolog_s`` for either,
    ``allow_root``, ``objects`` (the directory of users' state objects)."""

    __slots__ = ("allow_root", "epilog", "objects", "patience_s", "prolog")

    def __init__(self, file: KeeperFile) -> None:
        self.prolog, self.epilog, self.patience_s = file.prolog, file.epilog, file.prolog_s
        self.objects = file.objects
        self.allow_root = bool(file.allow_root)
        load_all_modules()


class UserDirectory:
    """A launch's user on this node, and the directory ``run`` for its files: 0700, owned by the user."""

    def __init__(
        self, mode: SystemMode, log: "Journal", run: str, loop: "Loop", load: "Load", uid: int,
        caller: "Optional[CallerGroups]",
    ) -> None:  # fmt: skip
        """``caller``: the groups of the launch's caller; None if its CPA did not know them."""
        self._mode = mode
        self._loop, self._log, self._node, self._launcher = loop, log, load.name, load.launcher
        self._owed = owed_epilog(run, load.name, load.launcher)
        self.user: User = look_up(uid, self._node, root_allowed=self._mode.allow_root)
        #: A line for people about groups of the caller that the launch does not have here, or "".
        self.refused_groups = self.user.take(caller) if caller is not None else ""
        self._held = ProcessorLock(processor_locks(run, load.name), load.name, load.nodes[0]["processors"])
        self.run = ""

    def settle(self) -> None:
        """Become the user, and create the directory. Raises LoadFailed."""
        try:
            self.run, _instead = store.in_ram_disk(self._settle_in)
        except store.ImageError as error:
            why = f"{self._node}: no place for uid {self.user.uid}: {error.message}"
            fault, hint = whose_run(error.number), advice(error.number)
            raise LoadFailed(why, fault, hint=hint, lasting=error.lasting, of_room=error.of_room) from None

    def _settle_in(self, place: str) -> str:
        def make() -> None:
            self.user.make_place(place)

        if os.geteuid():  # the user's own rights were not enough in the place before
            self.user.as_root(make)
        else:
            make()
            self.user.become()
        run = store.launch_directory(f"run-{self._node}-{self._launcher}", place)
        try:
            os.mkdir(run, 0o700)
        except OSError:
            # Nothing else removes it where the user may not go. Another launch's directory is not empty.
            self.user.as_root(lambda: _remove_empty(user_directory(place, self.user.uid)))
            raise
        return run

    def processes_gone(self) -> None:
        """No process of the launch uses its processors any more."""
        self._held.release()

    def clear(self) -> None:
        """Remove the launch's directory as the user, so that a link in it leads nowhere that the user may not go."""
        shutil.rmtree(self.run, ignore_errors=True)

    def prolog(self, then: "Callable[[], None]", failed: "Callable[[LoadFailed], None]") -> None:
        """Run the prolog; call ``then``, or ``failed`` with an error that is the node's fault, not the program's."""

        def ended(status: int, said: str) -> None:
            if status == 0:
                then()
            else:
                failed(LoadFailed(f"{self._node}: the prolog {prolog_epilog.how(status)}{said}", "node"))

        try:
            if self._mode.epilog:
                self.user.as_root(lambda: prolog_epilog.write_owed(self._owed, self.user.uid))
        except OSError as error:
            failed(LoadFailed(f"{self._node}: {self._owed}: {error.strerror}", "node"))
            return
        self._run_site("prolog", self._mode.prolog, ended)

    def epilog(self, then: "Callable[[], None]", tell: "Callable[[str], None]") -> None:
        """Run the epilog, then call ``then``; ``tell`` people if it failed."""

        def ended(status: int, said: str) -> None:
            if status != 0:
                tell(f"{self._node}: the epilog {prolog_epilog.how(status)}{said}")
            if self._mode.epilog:
                self.user.as_root(lambda: prolog_epilog.take_owed(self._owed))
            then()

        self._run_site("epilog", self._mode.epilog, ended)

    def _run_site(self, step: str, path: str, ended: "Callable[[int, str], None]") -> None:
        if not path:
            ended(0, "")
            return
        began = time.monotonic()
        environment = prolog_epilog.site_environment(step, self._node, self._launcher, self.user)
        try:
            _pid, out = self.user.as_root(lambda: prolog_epilog.start(path, environment, self._mode.patience_s))
        except OSError as error:
            ended(127, f": {error.strerror}")
            return
        said = bytearray()

        def on_output(_events: int) -> None:
            data = os.read(out, 4096)
            said.extend(data)
            if data and not prolog_epilog.ended(said):
                del said[prolog_epilog.SAYS : -prolog_epilog.SAYS]
                return
            # Do not wait for the pipe's end: a daemon that the site's script started may hold it for ever.
            self._loop.unwatch(out)
            os.close(out)
            status, text = prolog_epilog.read_end(bytes(said))
            self._log.write(step, launcher=self._launcher, status=status, seconds=round(time.monotonic() - began, 3))
            ended(status, text)

        self._loop.watch(out, READ, on_output)


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass


def sweep_all() -> int:
    """Remove what dead launch children of any user left in the RAM disk and the places instead of it, as that user;
    returns the pid of the process that does it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for place in places():
            for uid in users_of(place):
                # One after another, because users determine how many directories there are.
                child = os.fork()
                if child == 0:
                    os.setgroups([])
                    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                    os.setresuid(uid, uid, uid)
                    store.sweep(place)
                    store.discard(place)
                    os._exit(0)
                prolog_epilog.wait_for(child, _SWEEP_S)
    except Exception:  # a user may have created anything there
        pass
    finally:
        os._exit(0)


def users_of(place: str) -> "List[int]":
    """The users with a directory of ours in ``place``; the owner must match, because anybody may create any name.
    Never root."""
    found = []
    try:
        names = os.listdir(place)
    except OSError:
        return []  # no RAM disk
    for name in names:
        path = os.path.join(place, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue  # removed meanwhile
        if status.st_uid and path == user_directory(place, status.st_uid) and stat.S_ISDIR(status.st_mode):
            found.append(status.st_uid)
    return found
