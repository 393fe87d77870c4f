"""State objects on a node in system mode: each user's in a directory of that user, read and written by processes of
that user's uid.

The directory ``objects`` of the configuration, and in it one for each node, are root's (0711). Below are the users'
own (0700, named by uid). A process that serves a connection looks as root only for the name of a file, becomes the
user whose directory has it, and opens nothing before that.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from itertools import islice

from agents.link import trust
from agents.link.sockets import give_room
from agents.linux import prctl
from agents.objects import http
from agents.objects.holder import MOST_FILES, SENT, Holder
from agents.objects.object_process import ObjectProcess, settle
from agents.pct.errors import LoadFailed
from agents.pct.multiuser.identity import look_up
from agents.wire.errors import AgentError
from redmesh.state import SUFFIX, is_uuid

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Optional

    from agents.link.journal import Journal
    from agents.wire.object_pass import ObjectPeer

_AGAIN_S = 30.0
#: Seconds after which a user's process that settles is ended, to be started again; bytes of memory of one that serves.
_ROUND_S, _MEMORY = 120, 2 << 30
_ENDINGS = (SUFFIX, SUFFIX + ".sent", SUFFIX + ".arrived", ".place")
#: What a peer without a user's pass may ask for: a node, whether the object that it has sent was taken; root of a login
#: processor, what a drain needs. Neither gets the objects themselves.
_OF_NODES = frozenset(("take", "settled"))
_OF_ROOT = frozenset(("held", "ask", "move", "take", "settled"))


class UserObjects:
    """The objects on ``node``. A process that became a user stays that user."""

    def __init__(self, directory: str, node: str, limit_mb: int = 0, *, root_allowed: bool) -> None:
        self.directory, self.node, self._root_allowed = os.path.join(directory, node), node, root_allowed
        self._limit_mb = limit_mb  # for each user

    def prepare(self) -> None:
        """Make the node's directory. Raises OSError; AgentError if anybody but root may write there."""
        above = os.path.dirname(self.directory)
        os.makedirs(os.path.dirname(above), 0o755, exist_ok=True)
        for path in (above, self.directory):
            try:
                os.mkdir(path, 0o711)
                os.chmod(path, 0o711)  # independent of the umask
            except FileExistsError:
                pass
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise AgentError(f"{path} must be root's own directory", f"chown root {path}; chmod 711 {path}")

    def uids(self) -> List[int]:
        """Users who have, or had, objects here."""
        try:
            return sorted(int(name) for name in os.listdir(self.directory) if name.isdigit())
        except OSError:
            return []

    def of_user(self, uid: int) -> Holder:
        """Become the user, for good; returns that user's objects. Raises AgentError."""
        directory = os.path.join(self.directory, str(uid))
        try:
            user = look_up(uid, self.node, root_allowed=self._root_allowed)
            self.prepare()
            give_room(directory, user.uid, user.gid)
            trust.ours().hold()
            user.become_for_good()
            prctl.forbid_tracing()  # the node's key is in this memory
            # The user's own statements run in this process (agents/objects/replica.py).
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if self._limit_mb:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self._limit_mb << 20, self._limit_mb << 20))
        except LoadFailed as error:
            raise AgentError(error.message, error.hint, code="denied") from None
        except OSError as error:
            raise AgentError(f"{directory}: {error.strerror}", "check the disk of the node", code="disk") from None
        return Holder(directory, self.node, self._limit_mb)

    def of_job(self, uuid: str, of_uid: Optional[int] = None) -> Holder:
        """Become the user who has the object ``uuid``, for good. Raises AgentError if it is not here, or not the user
        ``of_uid``'s."""
        for uid in self.uids() if is_uuid(uuid) else ():
            if of_uid not in (None, uid):
                continue
            if any(os.path.lexists(os.path.join(self.directory, str(uid), uuid + ending)) for ending in _ENDINGS):
                return self.of_user(uid)
        raise AgentError(f"no job {uuid[:60]} is on {self.node}", "mesh job show asks where it is", code="state")

    def held(self) -> Dict[str, Any]:
        """All objects here, by their names, with the users' uids."""
        found: Dict[str, int] = {}
        doubtful = []
        for uid in self.uids():
            holder = Holder(os.path.join(self.directory, str(uid)), self.node)
            found.update(dict.fromkeys(holder.uuids(), uid))
            doubtful += holder.sent()
        return {"jobs": sorted(found), "doubtful": sorted(doubtful), "uids": found}

    def serve(self, sock: Any, log: Journal, peer: "ObjectPeer | None") -> None:
        """Serve one connection. Raises OSError, AgentError."""
        if peer is None:
            http.serve(self.of_job, sock)
        elif peer.uid is not None:
            ObjectProcess(self.of_user(peer.uid), sock, log).serve()
        else:
            _ByJob(self, sock, log, of_root=peer.role in ("cpa", "rca")).serve()

    def in_doubt(self) -> bool:
        """Whether anybody has to be asked about an object that was sent."""
        return any(map(self._has_sent, self.uids()))

    def _has_sent(self, uid: int) -> bool:
        # The PCT itself looks, so a directory that its user has filled must not hold it up.
        try:
            with os.scandir(os.path.join(self.directory, str(uid))) as found:
                return any(one.name.endswith(SUFFIX + SENT) for one in islice(found, MOST_FILES))
        except OSError:
            return False

    def settle(self, log: Journal) -> None:
        """Have a process of each user ask about that user's objects in doubt, and wait for them."""
        begun = []
        for uid in self.uids():
            if self._has_sent(uid):
                pid = os.fork()
                if not pid:
                    self._settle_for(uid, log)
                begun.append(pid)
        for pid in begun:
            os.waitpid(pid, 0)

    def _settle_for(self, uid: int, log: Journal) -> NoReturn:
        signal.alarm(_ROUND_S)  # what a user does with these files must not end the settling of others
        try:
            holder = self.of_user(uid)
            settle(holder, log)
            if holder.sent():
                time.sleep(_AGAIN_S)  # a login processor will ask; a process that does nothing else
        except AgentError as error:
            log.write("object in doubt", uid=uid, error=error.message)
        finally:
            os._exit(0)


class _ByJob(ObjectProcess):
    """A connection of a daemon, which acts for the user of the first job that it names.

    A node names the user whose uid its process has, because that user wrote the files from which the node learned of
    the job: it reaches no other user's objects.
    """

    def __init__(self, objects: UserObjects, sock: Any, log: Journal, *, of_root: bool) -> None:
        super().__init__(Holder(objects.directory, objects.node), sock, log)
        self._objects, self._of_root, self._became = objects, of_root, -1

    def _reply_to(self, op: str, message: Dict[str, Any]) -> Dict[str, Any]:
        if op not in (_OF_ROOT if self._of_root else _OF_NODES):
            raise AgentError(f"{op} needs a pass of the job's user", "mesh job of that user shows one", code="denied")
        if op == "held":
            return self._objects.held()
        uid = -1 if self._of_root else int(message.get("uid", -1))
        if self._became < 0:
            try:
                self._holder = self._objects.of_job(str(message["uuid"]), None if self._of_root else uid)
            except AgentError as error:
                if op == "take" and error.code == "state":
                    return {"taken": False}  # it knows nothing of it: the sender goes on
                raise
            self._became = os.getuid()
        if not self._of_root and uid != self._became:
            raise AgentError("this connection is another user's", code="denied")
        return super()._reply_to(op, message)
