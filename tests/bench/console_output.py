"""The console's run view under output that comes faster than anybody reads."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agents.wire import control, frames, messages
from console.launch.events.spool import spool_path
from console.settings import load
from tests.bench.consoles import Screen, bare, in_turns, key_rows, screen
from tests.bench.ratios import Bar, Row
from tests.support.fixed_database import FixedDatabase
from tests.support.fixed_database import Row as Launch

RANKS, A_SECOND, ALL = 16, 50_000, 10_000_000
_HELLO = {"event": "hello", "at": 1.0, "launcher": 1, "command": "./flood", "size": RANKS, "user": "ada",
          "state": "running"}  # fmt: skip
_STARTED = {"event": "started", "at": 1.0, "ranks": [[900 + rank, "n0"] for rank in range(RANKS)]}
_LINE = b"step %9d  residual 1.234567e-08\n"


def flood(path: str) -> None:
    """Is a yod whose ranks write ``A_SECOND`` lines, to one observer, until it is killed."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        observer = _observer(door)
        observer.sendall(control.control(messages.hello("yod")))
        observer.sendall(control.control(_HELLO) + control.control(_STARTED))
        each, number, due = A_SECOND // 100, 0, time.monotonic()
        while True:
            lines = b"".join(_LINE % (number + at) for at in range(each))
            try:
                observer.sendall(frames.output(frames.STDOUT, number % RANKS, lines))
            except ConnectionError:
                return  # the console has ended
            number += each
            due += 0.01
            time.sleep(max(0.0, due - time.monotonic()))


def _observer(door: socket.socket) -> socket.socket:
    """The first who asks for output; ``mesh status``, which the console asks, only looks whether anybody answers."""
    while True:
        observer, _ = door.accept()
        asked = b""
        while more := observer.recv(1 << 16):
            asked += more
            if b'"attach"' in asked:
                return observer
        observer.close()


@contextlib.contextmanager
def flooding(home: Path) -> Iterator[None]:
    """Meanwhile there is such a yod for launcher 1."""
    run = Path(load(environ={"XDG_STATE_HOME": str(home), "XDG_RUNTIME_DIR": str(home)}).new_run_dir)
    run.mkdir(parents=True, mode=0o700)
    code = "import sys; from tests.bench.console_output import flood; flood(sys.argv[1])"
    path = run / "yod-1.sock"
    yod = subprocess.Popen([sys.executable, "-P", "-c", code, str(path)])
    try:
        while not path.exists():
            time.sleep(0.02)
        yield
    finally:
        yod.kill()
        yod.wait()


def console_output() -> list[Row]:
    """Keys under a flood, and what is left in memory after ten million lines."""
    with tempfile.TemporaryDirectory(prefix="redmesh-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        database = FixedDatabase(home)
        database.put(Launch(tuple(range(RANKS)), "./flood"))
        with flooding(home), screen(database.url, home) as one:
            rows = [*_keys(one, home), *_full_screen(one, home)]
        write_spool(Path(spool_path(f"{home}/redmesh", 1)))
        with screen(database.url, home) as one:
            rows.append(_memory(one))
    return rows


def _keys(one: Screen, home: Path) -> list[Row]:
    """From a key to what it changes: the cursor moves over the ranks, and their output follows its end."""
    one.key("a", "16 ranks")
    one.key("\x1b[Z", "0 n0 running")  # back-tab: the ranks
    time.sleep(3.0)
    cpu, began = one.cpu_s, time.perf_counter()
    one.key("l", "1 n0 running")
    with bare(home) as other:
        took, bare_took = in_turns(one, other, (("l", "2 n0 running"), ("h", "1 n0 running")))
    share = 100 * (one.cpu_s - cpu) / (time.perf_counter() - began)
    print(f"under a flood: {share:.0f} % of a core", file=sys.stderr)
    return key_rows(f"{A_SECOND:,} lines/s", took, bare_took, Bar(50, 20))


def _full_screen(one: Screen, home: Path) -> list[Row]:
    """From a key to what it changes while the output has the whole terminal: following stops and goes on, and
    every line is painted."""
    one.key("z", "1 flood")
    with bare(home) as other:
        took, bare_took = in_turns(one, other, (("p", "paused"), ("p", "following")))
    return key_rows(
        f"{A_SECOND:,} lines/s in full screen", took, bare_took, Bar(50, 20), 4.0
    )  # a key paints every line


def write_spool(path: Path) -> None:
    """Ten million lines of a launch that has ended."""
    path.parent.mkdir(parents=True)
    each = 2_000
    with path.open("wb") as file:
        file.write(control.control(_HELLO) + control.control(_STARTED))
        for number in range(0, ALL, each):
            lines = b"".join(_LINE % (number + at) for at in range(each))
            file.write(frames.output(frames.STDOUT, number // each % RANKS, lines))
        file.write(control.control({"event": "end", "at": 2.0, "exit_status": 0, "elapsed_s": 1.0}))


def _memory(one: Screen) -> Row:
    """Resident after all of it was read, scrolled to its beginning and back."""
    began = time.perf_counter()
    one.key("a", "10,000,000 lines", 600.0)
    took = time.perf_counter() - began
    oldest = one.key("g", f"step {0:9}")
    one.key("G", f"step {ALL - 1:9}")
    print(f"{ALL:,} lines in {took:.0f} s; the oldest shown after {1000 * oldest:.0f} ms", file=sys.stderr)
    return Row("console's memory after 10 million lines (MiB)", "1 MiB", one.memory_mib, 1.0, Bar(200, 120))
