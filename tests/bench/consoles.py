"""The console on a real terminal of its own, over a machine of 11,136 processors that changes."""

import contextlib
import fcntl
import os
import pty
import random
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.ratios import RUNS, Bar, Row, seconds
from tests.support.big_machine import BigDatabase, storm

CELLS, HZ = 104, 4  # one in a hundred of 10,368, a second
_START = "import sys; from console.cli.mesh.command import main; sys.exit(main())"
#: An application of Textual's that shows a text for each of two keys, and does nothing else.
_BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("nothing busy")

    def on_key(self, event):
        self.query_one(Static).update("processor 2 and" if event.key == "l" else "processor 0 and")

Bare().run()
"""
_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESS_CPU = 2  # with a pid, the number of the kernel's clock of that process (clock_getcpuclockid(3))


class Screen:
    """``mesh console`` on a pseudo-terminal that is read all the time."""

    def __init__(
        self, database: str, home: Path, columns: int, rows: int, start: str = _START,
        variables: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.written = 0
        self.written_at = 0.0
        self._recent = b""
        self._news = threading.Condition()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("REDMESH_", "XDG_"))}
        env = {**kept, "XDG_STATE_HOME": str(home), "XDG_RUNTIME_DIR": str(home), "REDMESH_DATABASE": database,
               "TERM": "xterm-256color", "COLORTERM": "truecolor", **(variables or {})}  # fmt: skip
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, "console"], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=home
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                select.select([self._master], [], [])
                data = os.read(self._master, 1 << 16)
            except OSError:
                return
            with self._news:
                self.written += len(data)
                self.written_at = time.perf_counter()
                self._recent = (self._recent + data)[-(1 << 20) :]
                self._news.notify_all()

    def key(self, key: str, then: str, limit_s: float = 20.0) -> float:
        """Presses it; the seconds until ``then`` was written."""
        with self._news:
            self._recent = b""
        began = time.perf_counter()
        os.write(self._master, key.encode())
        return self.until(then, limit_s) - began

    def answer(self, key: str, quiet_s: float = 0.05, limit_s: float = 20.0) -> float:
        """Presses it; the seconds until the last byte that is written before it is quiet for ``quiet_s``."""
        while time.perf_counter() - self.written_at < quiet_s:
            time.sleep(0.005)
        before, began = self.written, time.perf_counter()
        os.write(self._master, key.encode())
        while self.written == before or time.perf_counter() - self.written_at < quiet_s:
            if time.perf_counter() - began > limit_s:
                raise RuntimeError(f"{key!r} had no answer, or no end of it")
            time.sleep(0.001)
        return self.written_at - began

    def until(self, text: str, limit_s: float = 20.0) -> float:
        """When it had been written; RuntimeError when it is not in time."""
        wanted, deadline = text.encode(), time.perf_counter() + limit_s
        with self._news:
            while wanted not in self._recent:
                if not self._news.wait(deadline - time.perf_counter()):
                    raise RuntimeError(f"{text!r} never came; there was {self._recent[-400:]!r}")
            return time.perf_counter()

    @property
    def cpu_s(self) -> float:
        """Seconds of a core that it and its ended children have used."""
        return self.own_s + self.children_s

    @property
    def own_s(self) -> float:
        """Seconds of a core that it has used itself."""
        return time.clock_gettime(~self.process.pid << 3 | _PROCESS_CPU)

    @property
    def children_s(self) -> float:
        """Seconds of a core that its ended children have used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / _TICKS

    @property
    def memory_mib(self) -> float:
        """What of it is in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def screen(database: str, home: Path, columns: int = 120, rows: int = 40, start: str = _START) -> Iterator[Screen]:
    """One on the map, ended afterwards."""
    one = Screen(database, home, columns, rows, start)
    try:
        one.until("busy")
        yield one
    finally:
        one.close()


@contextlib.contextmanager
def changing(database: BigDatabase) -> Iterator[None]:
    """Meanwhile processors all over the machine go from one launcher to another, in a process of its own."""
    code = "import sys; from tests.bench.consoles import feed; feed(sys.argv[1])"
    feeder = subprocess.Popen([sys.executable, "-P", "-c", code, database.url])
    try:
        yield
    finally:
        feeder.kill()
        feeder.wait()


def feed(url: str) -> None:
    """Changes ``CELLS`` processors a second, ``HZ`` times a second, until it is killed."""
    from db.store.store import open_store

    store, chance = open_store(url), random.Random(2)
    owners = [None, 1, 2, 3, 5, 8, 9, 10, 12]
    due = time.monotonic()
    while True:
        rows = [(chance.choice(owners), one) for one in chance.sample(range(10_368), CELLS // HZ)]

        def work(t, rows=rows):  # type: ignore[no-untyped-def]
            for owner, one in rows:
                t.change(f"UPDATE processor SET launcher = ?, changed = {t.stamp} WHERE id = ?", (owner, one))

        store.run(work)
        due += 1 / HZ
        time.sleep(max(0.0, due - time.monotonic()))


def console_map() -> list[Row]:
    """The map of Red Storm, one cell in a hundred changing a second."""
    with tempfile.TemporaryDirectory(prefix="redmesh-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        database = storm(home)
        rows = [_start(database, home)]
        with changing(database):
            with screen(database.url, home) as one:
                rows += _watched(one, "120×40")
                rows += _keys(one, home)
                rows.append(Row("console's memory, 11,136 processors (MiB)", "1 MiB", one.memory_mib, 1.0,
                                Bar(110, 70)))  # fmt: skip
            with screen(database.url, home, 340, 104) as one:
                rows += _watched(one, "340×104, every processor a cell")
        database.close()
    return rows


def _watched(one: Screen, where: str) -> list[Row]:
    """CPU and bytes while nobody touches it."""
    time.sleep(4.0)
    cpu, written, began = one.cpu_s, one.written, time.perf_counter()
    time.sleep(15.0)
    took = time.perf_counter() - began
    share = 100 * (one.cpu_s - cpu) / took
    a_refresh = (one.written - written) / (took * HZ) / 1024
    return [
        Row(f"console's share of a core, 1 % changing a second, {where} (%)", "a core", share, 1.0, Bar(15, 8)),
        Row(f"its bytes to a terminal of {where}, a refresh (KiB)", "1 KiB", a_refresh, 1.0, Bar(60, 15)),
    ]


def _keys(one: Screen, home: Path) -> list[Row]:
    """From a key to what it changes: the cursor goes right and left, and the details with it."""
    with bare(home) as other:
        took, bare_took = in_turns(one, other, (("l", "processor 2 and"), ("h", "processor 0 and")))
    return key_rows("same load", took, bare_took, Bar(16, 5))


@contextlib.contextmanager
def bare(home: Path) -> Iterator[Screen]:
    """An application of Textual's that only shows a text for each of two keys, ended afterwards."""
    with screen("", home, start=_BARE) as one:
        yield one


def in_turns(one: Screen, other: Screen, keys: tuple[tuple[str, str], ...]) -> tuple[list[float], list[float]]:
    """Milliseconds from keys of the console, and of the bare application in between, to what they change."""
    chance = random.Random(3)
    took: list[float] = []
    bare_took: list[float] = []
    for _ in range(152):
        for (key, text), (bare_key, shown) in zip(
            keys, (("l", "processor 2 and"), ("h", "processor 0 and")), strict=True
        ):
            time.sleep(chance.uniform(0.01, 0.06))
            took.append(1000 * one.key(key, text))
            bare_took.append(1000 * other.key(bare_key, shown))
    return took[4:], bare_took[4:]  # the first ones load code


def key_rows(load: str, took: list[float], bare_took: list[float], bar: Bar, most: float = 2.0) -> list[Row]:
    """The 99th percentile in milliseconds, and beside that of the bare application on the same machine meanwhile.
    ``most``: how many of the bare application's medians the console's may be."""
    p99, bare_p99 = (sorted(some)[int(0.99 * len(some))] for some in (took, bare_took))
    print(
        f"key to screen, {load}: median {statistics.median(took):.1f} ms, p99 {p99:.1f} ms; "
        f"bare: median {statistics.median(bare_took):.1f} ms, p99 {bare_p99:.1f} ms",
        file=sys.stderr,
    )
    return [
        Row(f"key to changed screen, {load}, p99 (ms)", "1 ms", p99, 1.0, bar),
        Row(f"key to changed screen, {load}, median (ms)", "a bare Textual application",
            statistics.median(took), statistics.median(bare_took), Bar(most, most / 2)),
        Row(f"key to changed screen, {load}, p99 (ms)", "a bare Textual application", p99, bare_p99, Bar(3, 1)),
    ]  # fmt: skip


def _start(database: BigDatabase, home: Path) -> Row:
    """From its start to the map with its legend, beside what importing Textual alone takes."""
    bare = [sys.executable, "-P", "-c", "import textual.app"]
    ours, theirs = [], []
    for _ in range(RUNS):
        theirs.append(seconds(bare))
        one = Screen(database.url, home, 120, 40)
        try:
            ours.append(one.until("service ") - one.began)
        finally:
            one.close()
    more = 1000 * (statistics.median(ours) - statistics.median(theirs))
    return Row("console's start to the map over bare `import textual.app` (ms)", "1 ms", more, 1.0, Bar(350, 150))
