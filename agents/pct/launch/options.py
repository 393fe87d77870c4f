"""Run options of a launch: ``run_options`` of the common frame.

Imported only if there are any. Everything that can be refused is refused when the load is parsed, before anything
starts.
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
#: Seconds in which a batch system must start the ranks.
SPAWN_S = 60.0
#: Variables that make language run-times print their own stack; set unless the user has set them.
RANK_ENVIRONMENT = {b"PYTHONFAULTHANDLER": b"1", b"RUST_BACKTRACE": b"1", b"GOTRACEBACK": b"crash"}
_STRACE = ("/usr/bin/strace", "/bin/strace", "/usr/local/bin/strace")


class RunOptions:
    """The run options for the ranks of this node. Raises LoadFailed if this node cannot provide one."""

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
        """Add variables for stack traces to the ranks' environment; variables set by the user stay."""
        if self.at_once:
            for name, value in RANK_ENVIRONMENT.items():
                env.setdefault(name, value)

    @property
    def patience_s(self) -> float:
        """The additional seconds until the ranks are ready."""
        if self.parent:
            return SPAWN_S
        return self._sleep_s if self._where in (AFTER_FORK, BEFORE_EXEC, AFTER_EXEC) else 0.0

    @property
    def after_exec_s(self) -> float:
        """Seconds for which a rank sleeps at its exec before it counts as held."""
        return self._sleep_s if self._where == AFTER_EXEC else 0.0

    # strace

    def _read_strace(self, wanted: "Dict[str, Any]") -> "Dict[int, List[bytes]]":
        """The command for each traced rank on this node."""
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
        """The command line that runs ``rank``; None: its own."""
        tracer = self._strace.get(rank) if self._strace else None
        return None if tracer is None else [*tracer, segment.path, *segment.argv[1:]]

    # Processors

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
            # Nodes of one host have consecutive numbers, so they get different cores while there are enough.
            chosen = [allowed[int(processor) % len(allowed)] for processor in node["processors"]]
        for at, rank in enumerate(self._load.ranks):
            self.cpus[rank] = sorted({chosen[(at * each + k) % len(chosen)] for k in range(each)})

    def bindings(self) -> str:
        """The bindings of ranks to cores, as text."""
        return "bound to cores: " + "; ".join(
            f"rank {rank}: {','.join(map(str, cpus))}" for rank, cpus in self.cpus.items()
        )

    # Inside the rank, before its exec

    def born(self) -> None:
        """Called right after the fork."""
        if self._where == AFTER_FORK:
            time.sleep(self._sleep_s)  # the option -sleep itself

    def before_exec(self, rank: int) -> None:
        """Called right before the exec. Raises OSError."""
        if rank == self.pty:
            import fcntl
            import termios

            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        if self._nice:
            os.nice(self._nice)
        if rank in self.cpus:
            os.sched_setaffinity(0, self.cpus[rank])
        if self._where == BEFORE_EXEC:
            time.sleep(self._sleep_s)  # the option -sleep itself

    def prepare_from_outside(self, rank: int, pid: int) -> None:
        """As ``before_exec``, for a process that the batch system has started. Raises OSError."""
        if self._nice:
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + self._nice)
        if rank in self.cpus:
            os.sched_setaffinity(pid, self.cpus[rank])

    def after_gate(self) -> None:
        """For a rank that could not be stopped at its exec: sleep before it."""
        if self.hold:
            os.kill(os.getpid(), signal.SIGSTOP)

    # Inside the launch child

    def keep(self, pid: int) -> None:
        """``pid`` has stopped at its exec: apply what holds from there."""
        if self.at_once:
            prctl.keep_watch(pid)
        else:
            prctl.kill_with_tracer(pid)

    def release(self, pid: int) -> None:
        """GO for ``pid``. Raises OSError if it does not exist."""
        if self.at_once:
            prctl.resume(pid, 0)
        else:
            prctl.release(pid, signal.SIGSTOP if self.hold else 0)
