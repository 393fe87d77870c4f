"""How ranks are run when a launch asks for more than the plain way: ``run_options`` of the common frame.

Loaded only where there is one. Everything that can be refused is refused when the load is read, before anything starts.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import signal
from agents.linux import prctl
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load, Segment
from agents.wire.control import to_bytes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

#: Where a rank can be made to sleep (-sleep); the launcher itself sleeps before GO.
AFTER_FORK, BEFORE_EXEC, AFTER_EXEC = "fork", "exec", "loaded"
#: Seconds that a batch system gets to start the ranks.
SPAWN_S = 60.0
#: What makes the run-times of other languages tell their own stack; put into the ranks' environment unless set.
RANK_ENVIRONMENT = {b"PYTHONFAULTHANDLER": b"1", b"RUST_BACKTRACE": b"1", b"GOTRACEBACK": b"crash"}
_STRACE = ("/usr/bin/strace", "/bin/strace", "/usr/local/bin/strace")


class RunOptions:
    """What ``wanted`` asks for, for the ranks of this node. LoadFailed when this node cannot do it."""

    def __init__(self, wanted: "Dict[str, Any]", load: Load) -> None:
        self._load = load
        try:
            self.at_once = int(wanted.get("backtrace", 0))
            self.hold = bool(wanted.get("hold", False))
            self.log = bool(wanted.get("log", False))
            self._nice = int(wanted.get("nice", 0))
            sleep = wanted.get("sleep", {})
            self._where, self._sleep_s = str(sleep.get("where", "")), float(sleep.get("seconds", 0.0))
            self._strace = self._read_strace(wanted["strace"]) if "strace" in wanted else {}
            self.cpus: Dict[int, List[int]] = {}
            if "bind" in wanted:
                self._read_bind(wanted["bind"])
            self.parent = dict(wanted.get("parent", {}))  # --parent=rank (agents/pct/ranks/managed.py)
            self.pty: Optional[int] = None
            if "pty" in wanted and int(wanted["pty"]["rank"]) in load.ranks:
                self.pty = int(wanted["pty"]["rank"])
                self.rows, self.columns = int(wanted["pty"]["rows"]), int(wanted["pty"]["columns"])
        except LoadFailed:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LoadFailed(f"the run options of the load are wrong: {error!r:.80}", "launch") from None

    def complete(self, env: "Dict[bytes, bytes]") -> None:
        """Add to the ranks' environment what runtimes need to tell more of a crash; what the user has set stays."""
        if self.at_once:
            for name, value in RANK_ENVIRONMENT.items():
                env.setdefault(name, value)

    @property
    def patience_s(self) -> float:
        """Seconds that it takes the ranks longer to stand ready."""
        if self.parent:
            return SPAWN_S
        return self._sleep_s if self._where in (AFTER_FORK, BEFORE_EXEC, AFTER_EXEC) else 0.0

    @property
    def after_exec_s(self) -> float:
        """Seconds that a rank is kept at its exec before it counts as held."""
        return self._sleep_s if self._where == AFTER_EXEC else 0.0

    # strace

    def _read_strace(self, wanted: "Dict[str, Any]") -> "Dict[int, List[bytes]]":
        """The command that each traced rank here is run by."""
        ranks = wanted["ranks"]
        here = [rank for rank in self._load.ranks if ranks is None or rank in ranks]
        if not here:
            return {}
        name = self._load.name
        strace = next((path for path in _STRACE if os.access(path, os.X_OK)), "")
        if not strace:
            raise LoadFailed(
                f"{name}: strace is not installed", "launch", hint="install it there, or leave -strace out"
            )
        folder = to_bytes(wanted["dir"])
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise LoadFailed(f"{name}: {os.fsdecode(folder)}: {error.strerror}", "launch") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise LoadFailed(f"{name}: {os.fsdecode(folder)}: no file can be made there", "launch")
        options = [to_bytes(option) for option in wanted["options"]]
        names = {rank: b"%d.rank-%d.strace" % (self._load.launcher, rank) for rank in here}
        return {
            rank: [os.fsencode(strace), *options, b"-o", os.path.join(folder, file), b"--"]
            for rank, file in names.items()
        }

    def command(self, rank: int, segment: Segment) -> "Optional[List[bytes]]":
        """The command line that ``rank`` is run by instead of its own; None: its own."""
        tracer = self._strace.get(rank) if self._strace else None
        return None if tracer is None else [*tracer, segment.path, *segment.argv[1:]]

    # processors

    def _read_bind(self, wanted: "Dict[str, Any]") -> None:
        node = self._load.nodes[0]
        allowed = sorted(os.sched_getaffinity(0))
        each = max(1, int(wanted["each"]))
        if wanted.get("map") is not None:
            chosen = [int(cpu) for cpu in wanted["map"]]
            missing = [cpu for cpu in chosen if cpu not in allowed]
            if missing or not chosen:
                told = ", ".join(map(str, missing))
                raise LoadFailed(
                    f"{self._load.name}: there is no processor core {told} to bind to",
                    "program", 125, hint=f"the cores there: {', '.join(map(str, allowed))}",
                )  # fmt: skip
        else:
            # Nodes that share a host have neighbouring numbers: so they get different cores as long as there are any.
            chosen = [allowed[int(processor) % len(allowed)] for processor in node["processors"]]
        for at, rank in enumerate(self._load.ranks):
            self.cpus[rank] = sorted({chosen[(at * each + k) % len(chosen)] for k in range(each)})

    def bindings(self) -> str:
        """Who is bound to what, for people."""
        return "bound to cores: " + "; ".join(
            f"rank {rank}: {','.join(map(str, cpus))}" for rank, cpus in self.cpus.items()
        )

    # in the rank, before its exec

    def born(self) -> None:
        """The fork has just been."""
        if self._where == AFTER_FORK:
            time.sleep(self._sleep_s)

    def before_exec(self, rank: int) -> None:
        """The exec comes next. OSError when something cannot be had."""
        if rank == self.pty:
            import fcntl
            import termios

            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        if self._nice:
            os.nice(self._nice)
        if rank in self.cpus:
            os.sched_setaffinity(0, self.cpus[rank])
        if self._where == BEFORE_EXEC:
            time.sleep(self._sleep_s)

    def prepare_from_outside(self, rank: int, pid: int) -> None:
        """What ``before_exec`` does, for a process that the batch system has started. OSError."""
        if self._nice:
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + self._nice)
        if rank in self.cpus:
            os.sched_setaffinity(pid, self.cpus[rank])

    def after_gate(self) -> None:
        """A rank that could not be stopped at its exec stops before it."""
        if self.hold:
            os.kill(os.getpid(), signal.SIGSTOP)

    # in the launch child

    def keep(self, pid: int) -> None:
        """``pid`` stands at its exec: what holds from there."""
        if self.at_once:
            prctl.keep_watch(pid)
        else:
            prctl.kill_with_tracer(pid)

    def release(self, pid: int) -> None:
        """GO for ``pid``. OSError when it is gone."""
        if self.at_once:
            prctl.resume(pid, 0)
        else:
            prctl.release(pid, signal.SIGSTOP if self.hold else 0)
