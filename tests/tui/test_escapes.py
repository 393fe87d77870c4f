"""Escape sequences from programs, users and nodes, through every field of the real console on a real terminal."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from agents.wire import control, frames
from console.launch.events.spool import spool_path
from tests.support.fixed_database import FixedDatabase, Row
from tests.support.waiting import PATIENCE_S

#: The nine of FINDINGS.md, each with a word behind it that shows it was drawn.
PAYLOADS = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "clipboard_st": "\x1b]52;c;ZXZpbA==\x1b\\",
    "title": "\x1b]0;owned\x07",
    "alternate": "\x1b[?1049l",
    "clear": "\x1b[2J\x1b[H",
    "c1": "\x9b31m",
    "dcs": '\x1bP$q"p\x1b\\',
    "report": "\x1b[6n",
    "link": "\x1b]8;;http://evil/\x1b\\here\x1b]8;;\x1b\\",
}
#: What of them must never reach the terminal. Textual itself uses none of these while it runs.
FORBIDDEN = (
    *(b"\x1b]52", b"\x1b]0;", b"\x1b]2;", b"\x1b]8;"),
    *(b"\x1b[?1049l", b"\x1b[2J", b"\x1b[6n", b"\x1bP", "\x9b".encode()),
)


START = "import sys; from console.cli.mesh.command import main; sys.exit(main())"


class Terminal:
    """``mesh console`` on a pseudo-terminal of 200 by 60; ``stream`` is every byte it wrote."""

    def __init__(self, home: Path, url: str, *options: str, start: str = START, group: int | None = None) -> None:
        """``group``: 0 for a process group of its own, as a shell makes one."""
        self.stream = b""
        self._master, slave = pty.openpty()
        self._name = os.ttyname(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("REDMESH_", "XDG_"))}
        env = {**kept, "XDG_STATE_HOME": str(home), "XDG_RUNTIME_DIR": str(home),
               "XDG_CONFIG_HOME": str(home / "config"), "REDMESH_DATABASE": url,
               "TERM": "xterm-256color", "COLORTERM": "truecolor"}  # fmt: skip
        command = [sys.executable, "-P", "-c", start, "console", *options]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=home, process_group=group
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def waiting(self) -> int:
        """How many bytes were typed and not read; asked while the terminal is not raw, of whole lines alone."""
        slave = os.open(self._name, os.O_RDWR | os.O_NOCTTY)
        try:
            return int(struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, bytes(4)))[0])
        finally:
            os.close(slave)

    def keys(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read(self, seconds: float) -> None:
        """Reads what is written within so many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self.stream += os.read(self._master, 65536)

    def until(self, *words: str) -> None:
        """Reads until every word was written."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := [word for word in words if word.encode() not in self.stream]:
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if ready:
                self.stream += os.read(self._master, 65536)
            assert time.monotonic() < deadline, f"{missing} never came:\n{self.stream[-2000:]!r}"

    def until_painted(self, word: str) -> None:
        """Have the whole screen painted until ``word`` is on it: otherwise what has changed alone is written."""
        deadline, rows = time.monotonic() + PATIENCE_S, 60
        while word.encode() not in self.stream:
            assert time.monotonic() < deadline, f"{word} never came:\n{self.stream[-2000:]!r}"
            rows = 119 - rows
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 200, 0, 0))
            self.read(1.0)

    def press(self, *keys: str, word: str) -> None:
        """Type keys, one after the other, until ``word`` is written: a busy console may not be where they are for."""
        deadline = time.monotonic() + PATIENCE_S
        while word.encode() not in self.stream:
            assert time.monotonic() < deadline, f"{word} never came:\n{self.stream[-2000:]!r}"
            for key in keys:
                self.keys(key)
                self.read(0.3)
            until = time.monotonic() + 5.0
            while word.encode() not in self.stream and time.monotonic() < until:
                self.read(0.1)


def poison(folder: Path) -> FixedDatabase:
    """A database and a spool with every payload in every text that somebody else may have written."""
    every = "".join(PAYLOADS.values())
    database = FixedDatabase(folder, nodes=2, slots=10)
    for number, evil in enumerate(PAYLOADS.values()):
        database.put(Row((number,), f"{evil}CMD{number}", f"{evil}U{number}", batch_job=f"{evil}JOB{number}"))
    database.reserve(9, f"{every}RESERVER")
    database.down("n1", f"{every}REASON")
    for column in ("address", "agent", "`by`"):
        database.store.run(lambda t, c=column: t.change(f"UPDATE node SET {c} = ?, changed = {t.stamp}", (every,)))
    database.store.run(lambda t: t.change("UPDATE mesh SET name = ?", (f"{PAYLOADS['title']}MESHNAME",)))
    database.store.run(lambda t: t.change("UPDATE node SET name = ? WHERE id = 2", (f"{PAYLOADS['report']}NODE",)))
    spool = Path(spool_path(str(folder / "redmesh"), 1))
    spool.parent.mkdir(parents=True)
    event = control.control
    written = [
        event({"event": "hello", "at": 1.0, "launcher": 1, "command": f"{every}RUN", "size": 1, "user": f"{every}U"}),
        event({"event": "started", "at": 1.0, "ranks": [[5, every]]}),
    ]
    for name, evil in PAYLOADS.items():
        written += [frames.output(kind, 0, f"{evil}OUT{kind}{name}\n".encode()) for kind in (2, 3)]
        written.append(frames.output(2, 0, evil.encode("latin-1") + f"RAW{name}\n".encode()))
        written += [frames.output(2, 0, bytes([byte])) for byte in f"{evil}SLOW{name}\n".encode()]
    written += [
        event({"event": "note", "at": 1.0, "node": every, "text": f"{every}NOTE"}),
        event({"event": "lost", "at": 1.0, "nodes": [], "ranks": [], "reason": f"{every}LOST"}),
        event({"event": "exit", "at": 2.0, "rank": 0, "node": f"{PAYLOADS['c1']}EXITNODE", "status": 1, "signal": 0}),
        event({"event": "end", "at": 2.0, "exit_status": 1, "elapsed_s": 1.0}),
    ]
    spool.write_bytes(b"".join(written))
    return database


def test_no_escape_reaches_the_terminal(tmp_path: Path) -> None:
    database = poison(tmp_path)
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("MESHNAME", "U5", *(f"CMD{number}" for number in range(8)))
        terminal.keys("\t")
        for number in range(9):
            terminal.until(f"JOB{number}")
            terminal.keys("j")
        terminal.keys("\x1b[Z" + "l" * 9)  # back to the map: tab goes on to the line of what is wrong
        terminal.until("RESERVER")
        terminal.keys("G")
        terminal.until("REASON", "NODE")
        terminal.keys("ga")
        terminal.until("RUN", "EXITNODE", "NOTE", "LOST", *(f"OUT3{name}" for name in PAYLOADS))
        terminal.until(*(f"{word}{name}" for name in PAYLOADS for word in ("OUT2", "RAW", "SLOW")))
        terminal.keys("\x10")  # the palette names runs and launchers
        terminal.until("Close")
        before, terminal.stream = terminal.stream, b""
        terminal.keys("attach")
        terminal.until(*(f"CMD{number}" for number in range(1, 9)))
        terminal.stream = before + terminal.stream
        harmless(terminal)


def harmless(terminal: Terminal) -> None:
    for forbidden in FORBIDDEN:
        found = terminal.stream.find(forbidden)
        assert found < 0, terminal.stream[max(0, found - 80) : found + 40]


def test_no_escape_reaches_the_terminal_from_tables_places_and_questions(tmp_path: Path) -> None:
    database = poison(tmp_path)
    every = "".join(PAYLOADS.values())
    change = f"{every}EVENTTEXT"
    database.store.run(lambda t: t.change("UPDATE event SET text = ?, kind = ?", (change, f"{PAYLOADS['c1']}KIND")))
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("MESHNAME", "U5")
        for key, words in (
            ("1", ("launchers (9)", "CMD7")),  # long texts are cut, their payloads stand in front
            ("2", ("partitions (9)",)),
            ("3", ("nodes (3)", "login1")),
            ("4", ("events (", "KIND")),
        ):
            terminal.stream = terminal.stream[-100:]
            terminal.keys(key)
            terminal.until(*words)
        terminal.keys(":")
        terminal.until("launcher ID")
        terminal.keys("user ")  # completion names users
        terminal.until("tab: ")
        terminal.stream = b""
        terminal.keys("\x03")
        while b"nodes (3)" not in terminal.stream:  # what comes before the palette is gone would be typed into it
            terminal.keys("3")
            terminal.read(1.0)
        terminal.stream = b""
        terminal.keys("\r")  # that node on the map, and in its title
        terminal.until("Zoom in")
        terminal.stream, before = b"", terminal.stream
        terminal.keys("1")  # on the map there may be nothing to kill: it depends on which node it was
        terminal.until("launchers (9)")
        terminal.keys("K")  # the question names launchers, users and commands
        terminal.until("Kill launcher", "CMD0")
        terminal.keys("n")
        terminal.stream, before = b"", before + terminal.stream
        terminal.keys("m")
        terminal.until("Zoom in")
        terminal.stream, before = b"", before + terminal.stream
        terminal.keys("euser=")  # typed at once: a key that arrives while the line opens is the line's
        terminal.until_painted("needs a value")
        terminal.stream = before + terminal.stream
        harmless(terminal)


def test_no_escape_reaches_the_terminal_from_a_recording(tmp_path: Path) -> None:
    database = poison(tmp_path)
    tape = tmp_path / "tape.jsonl"
    env = {**os.environ, "REDMESH_DATABASE": database.url, "XDG_STATE_HOME": str(tmp_path)}
    mesh = [sys.executable, "-P", "-c", START, "record", str(tape), "--seconds", "0.1"]
    subprocess.run(mesh, env=env, check=True, timeout=PATIENCE_S, capture_output=True)
    with Terminal(tmp_path, "sqlite:///nowhere.db", "--replay", str(tape)) as terminal:
        terminal.until("MESHNAME", "CMD5")
        for key, word in (("1", "launchers (9)"), ("2", "partitions (9)"), ("3", "nodes (3)"), ("4", "node_down")):
            terminal.keys(key)
            terminal.until(word)
        harmless(terminal)


def test_no_escape_of_a_launch_reaches_the_terminal(tmp_path: Path) -> None:
    """Stacks of the dead, filters and searches that were pasted, launches of before, names of files."""
    every = "".join(PAYLOADS.values())
    database = FixedDatabase(tmp_path)
    database.put(Row((0,), "./x"))
    state = tmp_path / "redmesh"
    state.mkdir()
    before = [{"launcher": 7, "form": {"command": f"{PAYLOADS['c1']}BEFORE", "size": f"{PAYLOADS['dcs']}9"}}]
    (state / "console-launches.json").write_text(json.dumps(before))
    (tmp_path / "config/redmesh").mkdir(parents=True)
    (tmp_path / "config/redmesh/presets.json").write_text(json.dumps({f"{PAYLOADS['title']}NAMED": {"command": every}}))
    frame = [f"FRAME{every}", every, every, 1]  # a narrow pane shows its beginning
    stack = {"signal": 6, "tool": every, "note": f"{every}REMARK", "threads": [[7, every, [frame]]]}
    spool = Path(spool_path(str(state), 1))
    spool.parent.mkdir()
    event = control.control
    spool.write_bytes(
        event({"event": "hello", "at": 1.0, "launcher": 1, "command": "./x", "size": 1, "user": "ada"})
        + event({"event": "started", "at": 1.0, "ranks": [[5, "n0"]]})
        + frames.output(2, 0, f"a {every}LINE\n".encode())
        + event({"event": "backtrace", "at": 1.0, "rank": 0, "node": every, **stack})
        + event({"event": "aborted", "at": 1.0, "rank": 0, "node": every, "text": f"{every}ABORT"})
        + event({"event": "exit", "at": 2.0, "rank": 0, "node": "n0", "status": 0, "signal": 6})
        + event({"event": "end", "at": 2.0, "exit_status": 134, "elapsed_s": 1.0})
    )
    paste = "\x1b[200~\x9b31m\x07PASTED\x1b[201~"  # what has ESC in it, Textual takes for keys
    with Terminal(tmp_path, database.url) as terminal:
        terminal.until("launchers (1)")
        terminal.keys("a")
        terminal.until("LINE", "ABORT", "shows the stacks")
        terminal.keys("\t\r")
        terminal.until("FRAME", "REMARK")
        stream, terminal.stream = terminal.stream, b""
        terminal.keys("\x1b")
        terminal.until("LINE")  # the run view is back
        for key, asks in (("f", "filter "), ("/", "look for"), ("w", "save what")):
            stream, terminal.stream = stream + terminal.stream, b""
            terminal.press(key, paste, word="PASTED")
            terminal.until(asks)
            terminal.keys("\x1b")
            terminal.read(0.5)
        terminal.stream = stream + terminal.stream
        terminal.keys("=n")
        terminal.until("new launch")
        terminal.keys("\x0f")
        terminal.until("NAMED", "BEFORE")
        terminal.keys("\r")
        time.sleep(0.5)
        terminal.keys(paste)
        terminal.until("Preview")
        time.sleep(0.5)
        terminal.until("the same in a shell")
        for forbidden in FORBIDDEN:
            found = terminal.stream.find(forbidden)
            assert found < 0, terminal.stream[max(0, found - 80) : found + 40]
