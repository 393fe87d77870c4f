"""The standby of a running job: a process of the owner (``mesh job standby``) copies every commit to a second host.

The process talks to databases and other hosts, so that the owner need not wait for them. A socket pair connects the
two: commits go one way in frames, reports of each step the other way. A job that ends within ``BEGIN_S`` has no
standby.
"""

from __future__ import annotations

import socket
import subprocess
from collections import deque

from agents.link.link import Link
from agents.wire.control import control, decode
from agents.wire.frames import CONTROL, FILE, frame
from redmesh.start_command import start_command
from redmesh.state import encode_commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Tuple

    from agents.job.state_requests import Owner
    from agents.link.loop import Loop

#: Seconds: of a job before its standby begins; between two attempts, at first and at most; and if there is no host for
#: one.
BEGIN_S, _AGAIN_S, _AGAIN_MOST_S, _NONE_S = 3.0, 1.0, 30.0, 60.0
#: Bytes by which the standby may lag before it is restarted; bytes in one frame.
_MOST, _PIECE = 64 << 20, 1 << 20
#: Tasks that the owner hands out, at most, before the standby has confirmed the commits that say so. After the loss of
#: the owner so many of the copy's next tasks count as begun.
AHEAD = 256


class Standby:
    """Has the commits of an owner copied. ``on_fenced(reason)``: the standby has taken over the job, so stop
    writing.

    ``on_leave(login, reason)``: the job continues on that login processor, or cannot, for this reason.
    ``on_caught_up()``: the standby is no longer ``behind``.
    """

    def __init__(
        self, loop: Loop, owner: Owner, on_fenced: Callable[[str], None], on_leave: Callable[[str, str], None],
        on_caught_up: Callable[[], None], *, wanted: bool,
    ) -> None:  # fmt: skip
        self._loop, self._owner, self._on_fenced, self._wanted = loop, owner, on_fenced, wanted
        self._on_leave, self._on_caught_up = on_leave, on_caught_up
        #: The node with the copy; "" while there is none.
        self.node = ""
        #: False for a job that had a standby: nothing runs before the tracker has confirmed that the job is ours.
        self.clear = not owner.job.meta("standby")
        self._over = False
        self._reason = ""  # why there is no standby, as it was logged
        self._again_s = _AGAIN_S
        self._link: Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        #: Commits that the standby has not confirmed: number, size, and tasks handed out in it.
        self._sent: Deque[Tuple[int, int, int]] = deque()
        self._given = 0  # tasks handed out since the last commit

    def begin(self) -> None:
        """Begin: at once for a job that had a standby, otherwise after BEGIN_S."""
        if self._wanted or not self.clear:
            self._loop.after(0.0 if not self.clear else BEGIN_S, self._start)

    def _start(self) -> None:
        if self._over:
            return
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [*start_command("mesh"), "job", "standby", self._owner.job.path],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            ours.close()
            self._loop.after(_AGAIN_MOST_S, self._start)
            return
        finally:
            theirs.close()
        self._sent.clear()
        self._link = Link(self._loop, ours, self._on_frame, lambda _link, _reason: self._on_end())
        self._owner.commit()
        self._owner.job.follow(self._send)

    def _send(self, number: int, statements: Any) -> None:
        link = self._link
        if link is None:
            return
        data = encode_commit(number, statements)
        self._sent.append((number, len(data), self._given))
        self._given = 0
        if not number or sum(size for _, size, _ in self._sent) > _MOST:
            self._owner.job.follow(None)
            link.close()
            self._on_end()
            return
        for at in range(0, len(data), _PIECE):
            link.send_raw(frame(FILE, data[at : at + _PIECE]))
        link.send_raw(control({"op": "commit"}))

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        told: Dict[str, Any] = decode(payload) if kind == CONTROL else {}
        op = told.get("op")
        if op == "clear":
            self.clear = True
        elif op == "have":
            behind = self.behind
            while self._sent and self._sent[0][0] <= int(told["commits"]):
                self._sent.popleft()
            if behind and not self.behind:
                self._on_caught_up()
        elif op == "standing":
            self._again_s, node = _AGAIN_S, str(told["node"])
            self.node = node
            self._owner.record(lambda job: job.set_meta(standby=node))
            self._owner.record(lambda job: job.log(f"its standby is {node}"))
        elif op == "none":
            self._again_s = _NONE_S
            reason = str(told.get("reason") or "")
            if reason and reason != self._reason:
                self._owner.record(lambda job: job.log(f"it has no standby: {reason}"))
            self._reason = reason
        elif op == "leaves":
            self._on_leave(str(told["login"]), str(told["reason"]))
        elif op == "fenced":
            self._on_fenced(str(told["reason"]))

    def handed_out(self, count: int) -> None:
        """Count tasks that the next commit hands out."""
        if self._link is not None:
            self._given += count

    @property
    def room(self) -> int:
        """How many tasks may be handed out before the standby has confirmed some."""
        return AHEAD - self._given - sum(given for _, _, given in self._sent) if self.node else AHEAD

    @property
    def behind(self) -> bool:
        """True if no more tasks may be handed out now."""
        return self.room <= 0

    def leave(self, login: str) -> None:
        """Ask whether the job can continue on ``login``; ``on_leave`` follows."""
        if self._link is not None:
            self._link.send_raw(control({"op": "leave", "login": login}))

    def _on_end(self) -> None:
        behind = self.behind
        self._link, self.node = None, ""
        self._sent.clear()
        self._given = 0
        if self._over:
            return
        self._owner.job.follow(None)
        if behind:
            self._loop.after(0.0, self._on_caught_up)
        self._loop.after(self._again_s, self._begin_again)

    def _begin_again(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # it has closed its socket, so another process takes over
            self._process.wait()
        self._again_s = min(self._again_s * 2, _AGAIN_MOST_S)
        self._start()

    def close(self) -> None:
        """The job has ended, or is given up: the process finishes by itself and exits."""
        self._over = True
        if self._link is not None:
            self._link.close(flush=True)
            self._link = None
