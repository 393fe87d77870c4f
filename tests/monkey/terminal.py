"""tmux as the console's terminal, with a second window of the same size for fresh paints."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len

from tests.support.mesh import PrivateMesh
from tests.support.tmux import Tmux
from tests.support.waiting import PATIENCE_S, wait_until

PROJECT = Path(__file__).resolve().parents[2]
_PARTS = re.compile(r"\x1b\[([\d;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x0e\x0f]|([^\x1b])")
#: What an attribute's end takes away, by its number.
_ENDS = {22: (1, 2), 23: (3,), 24: (4,), 25: (5,), 27: (7,), 28: (8,), 29: (9,), 55: (53,)}
#: So many bytes a command of tmux types at once, and so many begin a paste, and end it.
_AT_ONCE, _BRACKET = 4000, 6


class Cell(NamedTuple):
    """A character, and its colours and attributes as text."""

    text: str
    look: str


#: Column, line, the cell shown and the cell wanted.
Difference = tuple[int, int, Cell, Cell]


class Terminal(Tmux):
    """The console's terminal: a shell that runs the console when it is told to, and a window for comparison."""

    def __init__(self, mesh: PrivateMesh, place: Path, columns: int, lines: int) -> None:
        words = [sys.executable, "-P", "-m", "tests.monkey.shell", str(place)]
        words += [sys.executable, "-P", "-m", "tests.monkey.watched"]
        super().__init__(mesh, columns, lines, f"exec env PYTHONPATH={PROJECT} {shlex.join(words)}")
        self._place = place
        self.size = (columns, lines)
        quoted = shlex.quote(str(place / "fresh"))
        self._tmux("new-window", "-d", "-t", ":1", f"stty raw -echo; while :; do cat {quoted}; done")
        for window in (":0", ":1"):
            self._tmux("set-option", "-w", "-t", window, "window-size", "manual")
        self._tmux("set-option", "-s", "focus-events", "on")
        self._server = int(self._tmux("display", "-p", "#{pid}"))
        self._client: Client | None = None

    def happen(self, words: str) -> None:
        """``stall S``: nothing is read for so long. ``slow N``: N times a little. ``attach COLUMNS LINES``, ``detach``:
        somebody looks at the session from a terminal of that size, or no longer."""
        word, *numbers = words.split()
        if word == "stall":
            self._stall(float(numbers[0]))
        elif word == "slow":
            for _ in range(int(numbers[0])):
                self._stall(0.25)
                time.sleep(0.05)
        else:
            self._detach()
            if word == "attach":
                self._client = Client(self._socket, *map(int, numbers))

    def _stall(self, seconds: float) -> None:
        os.kill(self._server, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self._server, signal.SIGCONT)

    def _detach(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """End what looks at the session, and the server."""
        self._detach()
        super().close()

    def send(self, data: str) -> None:
        """Type bytes, each given as a character."""
        if len(data) > _AT_ONCE:  # a paste: tmux itself sends the middle, a hundred times as fast
            self.send(data[:_BRACKET])
            middle = self._place / "paste"
            middle.write_bytes(data[_BRACKET:-_BRACKET].encode("latin-1"))
            self._tmux("load-buffer", "-b", "monkey", str(middle))
            self._tmux("paste-buffer", "-b", "monkey", "-d", "-r", "-t", ":0")
            self.send(data[-_BRACKET:])
        elif data:
            self._tmux("send-keys", "-t", ":0", "-H", *(f"{ord(one):02x}" for one in data))

    def resize(self, columns: int, lines: int) -> None:
        """Resize the console's window."""
        self.size = (columns, lines)
        self._tmux("resize-window", "-t", ":0", "-x", str(columns), "-y", str(lines))

    def until_written(self, mark: str, window: int = 0) -> None:
        """Wait until the terminal has taken everything up to a title."""
        wait_until(lambda: self._title(window) == mark, f"the title {mark} in window {window}", step_s=0.01)

    def _title(self, window: int) -> str:
        return self._tmux("display", "-p", "-t", f":{window}", "#{pane_title}").strip()

    def cells(self, window: int = 0) -> list[list[Cell]]:
        """Every cell of a window."""
        columns, lines = self.size
        text = self._tmux("capture-pane", "-e", "-p", "-N", "-t", f":{window}")
        rows = parse(text, columns)
        return [*rows, *([Cell(" ", "")] * columns for _ in range(lines - len(rows)))][:lines]

    def reset(self) -> None:
        """Clear the console's window."""
        self._tmux("send-keys", "-R", "-t", ":0")

    def text(self) -> str:
        """The console's window as text."""
        return self._tmux("capture-pane", "-p", "-t", ":0")

    def paint(self, stream: str, mark: str) -> list[list[Cell]]:
        """Paint a stream in the second window; return its cells."""
        columns, lines = self.size
        self._tmux("resize-window", "-t", ":1", "-x", str(columns), "-y", str(lines))
        with open(self._place / "fresh", "w", encoding="utf-8", errors="surrogateescape", newline="") as fifo:
            fifo.write(f"\x1b[?7l\x1b[?25l\x1b[0m\x1b[2J{stream}\x1b]2;{mark}\x07")
        self.until_written(mark, 1)
        return self.cells(1)


class Client:
    """``tmux attach`` in a terminal of its own, which reads at leisure."""

    def __init__(self, socket: str, columns: int, lines: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color"}
        env.pop("TMUX", None)
        command = ["tmux", "-S", socket, "attach", "-t", ":0"]
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with suppress(OSError):  # the end of the client closes its terminal
            while os.read(self._master, 4096):
                time.sleep(0.02)

    def close(self) -> None:
        """Detach, as a terminal that is closed does."""
        self._process.send_signal(signal.SIGHUP)
        self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        os.close(self._master)


def parse(text: str, columns: int) -> list[list[Cell]]:
    """The cells of what ``capture-pane -e`` prints; a line's end has no effect on colours."""
    rows: list[list[Cell]] = []
    look: dict[str, str] = {}
    for line in text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"):
        row: list[Cell] = []
        for part in _PARTS.finditer(line):
            sgr, character = part.groups()
            if sgr is not None:
                _apply(look, sgr)
            elif character is not None:
                _put(row, character, _told(look))
        rows.append([*row, *[Cell(" ", "")] * (columns - len(row))][:columns])
    return rows


def _put(row: list[Cell], character: str, look: str) -> None:
    width = cell_len(character)
    if width == 0 and row:
        at = len(row) - 1
        while at > 0 and not row[at].text:
            at -= 1
        row[at] = Cell(row[at].text + character, row[at].look)
        return
    row.append(Cell(character, look))
    if width == 2:
        row.append(Cell("", look))


def _told(look: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(look.items()))


def _apply(look: dict[str, str], sgr: str) -> None:
    """Apply the parameters of SGR."""
    words = sgr.split(";")
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        number = int(word.partition(":")[0] or "0")
        if number == 0:
            look.clear()
        elif number in (38, 48, 58):
            if ":" not in word:
                count = 4 if words[at] == "2" else 2
                word = ":".join([word, *words[at : at + count]])
                at += count
            look[str(number)] = word
        elif number in (39, 49, 59):
            look.pop(str(number - 1), None)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            look["38"] = word
        elif 40 <= number <= 47 or 100 <= number <= 107:
            look["48"] = word
        elif number in _ENDS:
            for one in _ENDS[number]:
                look.pop(f"attribute {one}", None)
        else:
            look[f"attribute {number}"] = word


def differences(shown: list[list[Cell]], wanted: list[list[Cell]]) -> list[Difference]:
    """The cells that differ."""
    return [
        (x, y, one, other)
        for y, (row, others) in enumerate(zip(shown, wanted, strict=True))
        for x, (one, other) in enumerate(zip(row, others, strict=True))
        if one != other
    ]
