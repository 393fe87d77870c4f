"""The monkey's mesh, and what happens to it while the console watches."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agents.wire.errors import AgentError
from tests.monkey.program import MANNERS
from tests.support.mesh import BIN, PrivateMesh
from tests.support.waiting import SLOWNESS, wait_until

_PROGRAM = Path(__file__).with_name("program.py")
#: What the console, and a launch that is typed into it, may run: keys at random must find nothing that does harm.
_COMMANDS = ("python3", "sh", "sleep", "true", "false", "echo", "cat", "stty", "env", "gdb", "hostname", "tmux",
             "timeout")  # fmt: skip
_MACHINES = ((8, 4), (4, 1), (16, 8), (6, 2), (64, 8), (2, 2))
_AWAY_S = 3.0  # how long the database is gone or busy
#: A recording of the first seconds, for ``mesh console --replay``.
RECORDING = "recording.jsonl"
#: Names of programs and jobs.
_ODD_NAMES = (
    "red\x1b[31mname", "two\nlines", "tab\there", "bell\x07", "c1\x9b31m", "日本語", "\u202eright", "e\u0301\u0302",
    "👩‍👩‍👧", "[bold]markup[/bold]", "x" * 200, "-dash", "a\x7fb", "\u2028line", "\udcff\udcfe bytes", " ",
    "%s {0} $(true)",
)  # fmt: skip
#: Launches and jobs of a kind: one that takes input, one that is held, and the same of jobs.
_PREPARED = {
    "input": ("yod", "--detach", "--input=all", "-sz", "2", "python3", "program.py", "sleep"),
    "held": ("yod", "--detach", "--hold", "-sz", "2", "python3", "program.py", "sleep"),
    "held-job": ("mesh", "submit", "--hold", "--array", "1-40", "--", "true"),
    "lost-job": ("mesh", "submit", "--array", "1-100", "--", "sleep", "1"),
}
_BURST = 60  # launches of a burst, one after the other: the history has hundreds after a few


class World:
    """A mesh of the monkey's own. Events are begun and not waited for; those that need healing heal by time."""

    def __init__(self) -> None:
        self.mesh = PrivateMesh(8, 4)
        self.mesh.env.update({"PATH": self._path(), "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"})
        self.mesh.env.pop("TMUX", None)
        (self.mesh.work / "program.py").write_bytes(_PROGRAM.read_bytes())
        self._heals: list[tuple[float, Callable[[], object]]] = []
        self._changing: threading.Thread | None = None
        self._launchers = 0  # that ran before the last command
        self.counts: dict[str, int] = {}

    def _path(self) -> str:
        """A directory with few programs."""
        made = self.mesh.home / "bin"
        made.mkdir()
        for name in ("mesh", "yod", "showmesh", "pingd"):
            (made / name).symlink_to(BIN / name)
        for name in _COMMANDS:
            for place in (BIN, Path("/usr/bin"), Path("/bin")):
                if (place / name).exists():
                    (made / name).symlink_to(place / name)
                    break
        return str(made)

    def up(self) -> None:
        """Start the mesh, a recording of it, and two launches that the console has to show."""
        self.mesh.up()
        self._recording = self.mesh.start(
            "mesh", "record", "--seconds", "20", RECORDING, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.happen("launch sleep 2")
        self.happen("launch wide 1")

    @property
    def recorded(self) -> bool:
        """Whether the recording is whole."""
        return self._recording.poll() == 0

    def happen(self, event: str) -> str:
        """Let an event happen; return what came of it."""
        name, *words = event.split()
        self.counts[name] = self.counts.get(name, 0) + 1
        does: Callable[..., str] = getattr(self, f"_{name.replace('-', '_')}")
        try:
            return does(*words)
        except (AgentError, OSError, sqlite3.Error, StopIteration) as error:
            return f"not now: {error!r}"

    def heal(self, everything: bool = False) -> None:
        """Undo what is due."""
        for due, undo in self._heals[:]:
            if everything or time.monotonic() > due:
                self._heals.remove((due, undo))
                with suppress(OSError, sqlite3.Error):
                    undo()

    def _quiet(self, *command: str) -> str:
        self._launchers = len(self._sockets())
        self.mesh.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        return ""

    def _launch(self, manner: str, size: str) -> str:
        return self._quiet("yod", "--detach", "-sz", size, "python3", "program.py", manner)

    def _prepared(self, name: str) -> str:
        return self._quiet(*_PREPARED[name])

    def _burst(self, _some: str) -> str:
        return self._sh(f"for i in $(seq {_BURST}); do yod true; done")

    def _odd_name(self, some: str) -> str:
        """A launch, or a job, whose name is no word."""
        number = int(some)
        name = _ODD_NAMES[number % len(_ODD_NAMES)]
        if number % 3 == 0:
            return self._quiet("mesh", "submit", "--array", "1-3", "--name", name, "--", "echo", name)
        program = self.mesh.work / f"p{name}".replace("/", "_")
        if not program.exists():
            program.symlink_to(Path(self.mesh.env["PATH"]) / "python3")
        manner = MANNERS[number % len(MANNERS)]
        return self._quiet("yod", "--detach", "-sz", "2", str(program), "program.py", manner, name)

    def _take(self, some: str) -> str:
        """Somebody else attaches to a launch for some seconds, beside the console."""
        number = self._launcher(int(some))
        return self._quiet("timeout", str(1 + int(some) % 5), "yod", "--attach", number) if number else "nothing runs"

    def _job_act(self, some: str) -> str:
        act = ("hold", "release", "retry", "release")[int(some) % 4]
        return self._sh(f"mesh queue --all | awk 'NR > 1 {{print $1}}' | head -2 | xargs -rn1 mesh {act}")

    def _job(self, some: str) -> str:
        number = int(some)
        task = (("true",), ("false",), ("sleep", "0.5"), ("echo", "{}"))[number % 4]
        return self._quiet("mesh", "submit", "--array", f"1-{(5, 40, 300)[number % 3]}", "--", *task)

    def _cancel(self, some: str) -> str:
        return self._sh("mesh queue | awk 'NR > 1 {print $1}' | head -1 | xargs -r mesh cancel")

    def _sh(self, script: str) -> str:
        path = f"{self.mesh.env['PATH']}:/usr/bin:/bin"
        self.mesh.start(
            "/bin/sh", "-c", script, env={"PATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        return ""

    def _processes(self, *words: str) -> list[int]:
        return sorted(pid for pid, line in self.mesh.processes().items() if all(word in line for word in words))

    def _kill_one(self, found: list[int], some: str) -> str:
        if found:
            os.kill(found[int(some) % len(found)], signal.SIGKILL)
        return f"{len(found)} to choose from"

    def _kill_rank(self, some: str) -> str:
        yods = set(self._processes("yod", "program.py"))
        return self._kill_one([pid for pid in self._processes("program.py") if pid not in yods], some)

    def _kill_yod(self, some: str) -> str:
        return self._kill_one(self._processes("yod", "program.py"), some)

    def _kill_owner(self, some: str) -> str:
        return self._kill_one(self._processes("redmesh-job "), some)

    def _kill_daemon(self, some: str) -> str:
        names = ["n0", "n1", "n1", "n2", "n3", "cpa-0", "rca"]
        name = names[int(some) % len(names)]
        return f"{name} {self.mesh.kill(name)}"

    def _signal(self, some: str) -> str:
        number = self._launcher(int(some))
        name = ("USR1", "TERM", "STOP", "CONT")[int(some) % 4]
        return self._quiet("yod", "-signal", name, number) if number else "nothing runs"

    def _launched(self) -> str:
        """Waits, but not long, until there is one more launcher than there were."""
        before = self._launchers
        with suppress(AssertionError):
            wait_until(lambda: len(self._sockets()) > before, "a launcher", patience_s=_AWAY_S)
        return f"{len(self._sockets())} run"

    def _sockets(self) -> list[Path]:
        return sorted(self.mesh.run_dir.glob("yod-*.sock"))

    def _launcher(self, some: int) -> str:
        """One of the launchers that run; empty if there is none."""
        sockets = self._sockets()
        return sockets[some % len(sockets)].stem.removeprefix("yod-") if sockets else ""

    def _drain(self, some: str) -> str:
        return self._quiet("mesh", ("drain", "resume")[int(some) % 2], f"n{int(some) % 3}")

    def _reserve(self, some: str) -> str:
        return self._quiet("mesh", ("reserve", "unreserve")[int(some) % 2], "root", str(int(some) % 4))

    def _database_gone(self, _some: str) -> str:
        path = self.mesh.state / "mesh.db"
        away = path.with_name("mesh.db.away")
        if away.exists() or self._is_changing():
            return "not now"
        path.rename(away)
        self._heals.append((time.monotonic() + _AWAY_S, lambda: away.rename(path)))
        return ""

    def _database_busy(self, _some: str) -> str:
        database = sqlite3.connect(self.mesh.state / "mesh.db", isolation_level=None, timeout=0.2)
        database.execute("BEGIN EXCLUSIVE")

        def undo() -> None:
            database.execute("ROLLBACK")
            database.close()

        self._heals.append((time.monotonic() + _AWAY_S, undo))
        return ""

    def _spool_gone(self, some: str) -> str:
        found = sorted(path for path in self.mesh.state.rglob("*spool*") if path.is_file())
        if not found:
            return "no spool"
        found[int(some) % len(found)].unlink()
        return str(found[int(some) % len(found)])

    def _is_changing(self) -> bool:
        return self._changing is not None and self._changing.is_alive()

    def _exchange(self, some: str) -> str:
        """Another machine under the same name: the mesh goes down, and comes up with other nodes."""
        if self._is_changing():
            return "not now"
        self.heal(everything=True)
        self.mesh.size = (*_MACHINES[int(some) % len(_MACHINES)], 1)
        self._changing = threading.Thread(target=self._change)
        self._changing.start()
        return str(self.mesh.size)

    def _change(self) -> None:
        with suppress(AssertionError, subprocess.SubprocessError):
            self.mesh.down()
            self.mesh.up()

    def close(self) -> list[str]:
        """Take the mesh down; what it left behind."""
        self.heal(everything=True)
        if self._changing is not None:
            self._changing.join(120 * SLOWNESS)
        return self.mesh.close()
