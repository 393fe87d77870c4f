"""Plays the script of a seed at the console, and checks after its acts that all is well."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from agents.linux import processes
from tests.monkey import coverage
from tests.monkey.acts import Act, script
from tests.monkey.terminal import Cell, Difference, Terminal, differences
from tests.monkey.world import RECORDING, World
from tests.storm.journal import Journal
from tests.support.waiting import SLOWNESS, wait_until

#: A console that answers later than this hangs; the time that it waited for a processor is not counted.
FREEZE_S = 10.0 * SLOWNESS
#: How long a comparison waits for a screen that stands still: one with a flood of output never does.
_STILL_S = 2.0 * SLOWNESS
#: Looks until a difference is one that lasts, and what passes between two of them.
_LOOKS, _AGAIN_S = 4, 0.7 * SLOWNESS
#: What ages and clocks are made of. A paint for which all widgets render anew is up to a second later than the screen.
_CLOCK = frozenset("0123456789 :.dhms")
#: Exit statuses of a console that somebody ended: q, ^C ^C, SIGTERM.
_WELL = (0, 130, 129)
_MOST_VIOLATIONS = 10
_COMES_S = 5.0
_LENT_S = 3.0 * SLOWNESS  # a console that has not ended so long after ^Q is ended by a signal
#: Options of the console's starts, one after the other.
_STARTS = ("", "", f"--replay {RECORDING}", "", "--read-only", "--theme mono")


class Ended(Exception):
    """The console has ended."""


class Seen(NamedTuple):
    """What a look saw: cells that differ from a fresh paint, and from one for which all widgets rendered anew."""

    screen: str
    torn: list[Difference]
    stale: list[Difference]
    shown: list[list[Cell]]
    wanted: list[list[Cell]]


class Campaign:
    """One seed's script, played for some time."""

    def __init__(self, seed: int, journal: Journal, report: Path, replay: str) -> None:
        self.seed = seed
        self.journal = journal
        self._report = report
        self._replay = replay
        self.world = World()
        self._place = self.world.mesh.home / "monkey"
        self._place.mkdir()
        for name in ("orders", "fresh"):
            os.mkfifo(self._place / name)
        files = {"MONKEY_SOCKET": self._place / "s", "MONKEY_STACKS": self._place / "stacks"}
        files["MONKEY_COVERAGE"] = report / coverage.FILE
        self.world.mesh.env.update({name: str(path) for name, path in files.items()})
        self.world.mesh.env["MONKEY_PATIENCE_S"] = f"{_STILL_S:.1f}"
        self.world.up()
        self.terminal = Terminal(self.world.mesh, self._place, 100, 30)
        self.counts = dict.fromkeys(("acts", "beats", "looks", "skipped looks", "looks again", "starts"), 0)
        self.slowest_s = 0.0
        self._looks = itertools.count(1)
        self._act = Act(0, "start", "")

    # Playing

    def play(self, seconds: float, first: int = 0, last: int = 0) -> None:
        """Play the acts from ``first`` to ``last`` (0: all), for so long."""
        until = time.monotonic() + seconds
        self._start()
        for act in script(self.seed):
            over = time.monotonic() > until or (last and act.number > last)
            if over or len(self.journal.violations) >= _MOST_VIOLATIONS:
                break
            if act.number >= first:
                self._play(act)
        self._act = Act(self._act.number, "look", "at the end")
        self._checked(self._look)

    def _play(self, act: Act) -> None:
        self._act = act
        self.counts["acts"] += act.kind not in ("beat", "look")
        self.world.heal()
        came = self._do(act)
        self.journal.write("act", **act.to_dict(), came=came)
        time.sleep(act.pause_s)

    def _do(self, act: Act) -> str:
        if act.kind == "event":
            return self.world.happen(act.data)
        if act.kind == "beat":
            self._checked(self._beat)
        elif act.kind == "look":
            self._checked(self._look)
        elif act.kind == "size":
            self.terminal.resize(*map(int, act.data.split()))
        elif act.kind == "terminal":
            self.terminal.happen(act.data)
        elif act.kind == "clock":
            self._checked(self._set_clock)
        elif act.kind == "until":
            self._wait_for(act.data)
        elif act.kind == "restart":
            self._restart(act.data)
        elif act.kind == "leave" and act.data.isupper():
            self._signalled(act.data.split())
        else:
            self.terminal.send(act.data)
        self._see_state()
        return ""

    def _checked(self, check: object) -> None:
        try:
            check()  # type: ignore[operator]
        except Ended:
            self._see_state()

    # The console's life

    def _state(self) -> tuple[str, int]:
        word, _, number = (self._place / "state").read_text().partition(" ")
        return word, int(number)

    def _order(self, order: str) -> None:
        (self._place / "orders").write_text(order)

    def _start(self, options: str | None = None) -> None:
        """Start the console, and wait until it answers. ``options``: None for the next ones."""
        wait_until(lambda: (self._place / "state").exists(), "the shell")
        (self._place / "s").unlink(missing_ok=True)
        before = (self._place / "state").stat().st_mtime_ns
        if options is None:
            options = _STARTS[(self.seed + self.counts["starts"]) % len(_STARTS)]
        self._order(f"run {options}" if RECORDING not in options or self.world.recorded else "run")
        wait_until(lambda: (self._place / "state").stat().st_mtime_ns != before, "the console runs")
        self.counts["starts"] += 1
        wait_until(lambda: (self._place / "s").exists() or self._state()[0] != "running", "the console is up")

    def _wait_for(self, text: str) -> None:
        """Wait for a text on the screen, but not long: keys and events before may have led elsewhere."""
        with suppress(AssertionError):
            wait_until(lambda: text in self.terminal.text(), text, step_s=0.2, patience_s=_COMES_S)

    def _restart(self, options: str) -> None:
        """End the console as ^Q does, and start another, with ``--replay`` on the recording."""
        self.terminal.send("\x11")
        try:
            wait_until(lambda: self._state()[0] != "running", "the console ends", patience_s=_LENT_S)
        except AssertionError:  # a debugger has the terminal, or a dialog asks about launches that are being started
            self._signal(signal.SIGTERM)
            wait_until(lambda: self._state()[0] != "running", "the console is ended")
        word, number = self._state()
        if word == "ended":
            self._see_end(number)
            self._start(f"{options} {RECORDING}" if options else "")

    def _see_state(self) -> None:
        """Start the console again if it has ended, put it into the foreground if it was stopped."""
        word, number = self._state()
        if word == "stopped":
            self._order("fg")
            wait_until(lambda: self._state()[0] != "stopped", "the console is in front again")
        elif word == "ended":
            self._see_end(number)
            self._start()

    def _see_end(self, status: int) -> None:
        screen = self.terminal.text()
        for report in self.world.mesh.state.glob("console-crash-*"):
            self._violate("crash", f"the console ended with {status}", report.read_text())
            report.unlink()
        if status not in _WELL:
            self._violate("exit status", f"the console ended with {status}", screen)
        elif "Traceback" in screen or "mesh console: " in screen:
            self._violate("traceback", f"the console ended with {status}", screen)
        modes = self.terminal.modes
        if modes != "alternate=0 cursor=1 wrap=1 mouse=0 echo=1 lines=1 signals=1":
            self._violate("terminal", f"the console left the terminal with {modes}", screen)
        self.terminal.reset()  # what it printed is not to be found again after the next end

    def _signal(self, number: int) -> None:
        word, pid = self._state()
        if word == "running":
            os.kill(pid, number)

    def _signalled(self, names: list[str]) -> None:
        for name in names:
            self._signal(getattr(signal, f"SIG{name}"))
        if names == ["STOP"]:
            wait_until(lambda: self._state()[0] != "running", "the console is stopped")

    def _kill(self) -> None:
        """Kill the console, and a debugger that has its terminal."""
        word, pid = self._state()
        if word == "running":
            debuggers = [child for child in processes.children(pid) if "debug" in _words(child)]
            lent = [*debuggers, *(one for child in debuggers for one in processes.descendants(child))]
            os.kill(pid, signal.SIGKILL)
            processes.kill_all(lent)  # gdb would write into the screen of the next console
        wait_until(lambda: self._state()[0] == "ended", "the console is killed")
        reports = self.world.mesh.state
        wait_until(lambda: [*reports.glob("console-crash-*")], "the report of its end")
        for report in reports.glob("console-crash-*"):
            report.unlink()
        self._start()

    # Checks

    @contextmanager
    def _asked(self) -> Iterator[Callable[[str], str]]:
        """A connection to the console: a function that asks. Raises Ended if the console ended or stopped."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.2)
            try:
                client.connect(str(self._place / "s"))
                yield lambda question: self._ask(client, question)
            except OSError as error:
                wait_until(lambda: self._state()[0] != "running", "the end of a console that closed its socket")
                raise Ended from error

    def _ask(self, client: socket.socket, question: str) -> str:
        client.sendall(f"{question}\n".encode())
        pid = self._state()[1]
        began, waited_s, reply = time.monotonic(), _waited_s(pid), b""
        while not reply.endswith(b"\n"):
            with suppress(TimeoutError):
                got = client.recv(65536)
                if not got:
                    raise ConnectionResetError
                reply += got
            if self._state()[0] != "running":
                raise Ended
            if time.monotonic() - began - (_waited_s(pid) - waited_s) > FREEZE_S:
                self._violate("freeze", f"no answer within {FREEZE_S:.0f} s", self._stacks())
                self._kill()
                raise Ended
        return reply.decode().strip()

    def _stacks(self) -> str:
        """Where all threads of the console are."""
        path = self._place / "stacks"
        self._signal(signal.SIGUSR2)
        with suppress(AssertionError):
            wait_until(lambda: path.exists() and path.stat().st_size, "the stacks", patience_s=5.0)
        return path.read_text() if path.exists() else "no stacks"

    def _beat(self) -> None:
        reply = ""
        with self._asked() as ask:
            reply = ask("beat")
        if reply == "lent":
            self._give_back()
        elif reply:
            taken, _, where = reply.partition(" ")
            self.counts["beats"] += 1
            self.slowest_s = max(self.slowest_s, float(taken))
            if len(where) > 2:
                self.journal.write("slow", taken=taken, where=where)

    def _set_clock(self) -> None:
        with self._asked() as ask:
            ask(f"clock {self._act.data}")

    def _give_back(self) -> None:
        """The terminal is lent to a debugger: end that."""
        for pid in processes.children(self._state()[1]):
            if "debug" in _words(pid):
                os.kill(pid, signal.SIGTERM)
        self.terminal.send("\r")

    def _look(self) -> None:
        """Compare the terminal with a fresh paint, cell by cell, until no difference is left.

        Cells that differ at every look, between which nothing is typed, are torn; or stale, if only a paint for which
        all widgets render anew has other ones. The rest was on its way: a timer was still to come.
        """
        lasting: set[tuple[int, int]] = set()
        kind = ""
        for number in range(_LOOKS):
            seen = self._compare()
            kind = kind or ("torn" if seen.torn else "stale")
            places = {(x, y) for x, y, _, _ in [*seen.torn, *seen.stale]}
            lasting = places & lasting if number else places
            if not lasting:
                self.counts["looks again"] += number
                return
            time.sleep(_AGAIN_S)
        self._violate_cells(kind, seen, seen.torn or seen.stale)

    def _compare(self) -> Seen:
        with self._asked() as ask:
            mark = f"look-{next(self._looks)}"
            file = self._place / mark
            reply = ask(f"look {file}")
            assert not reply.startswith("failed"), reply
            if reply.startswith(("moving", "lent")):
                return self._skipped(reply)
            columns, lines, screen = reply.split()
            if (int(columns), int(lines)) != self.terminal.size:
                return self._skipped("the signal of the size is on its way")
            self.terminal.until_written(mark)
            shown = self.terminal.cells()
            wanted = self.terminal.paint(file.read_text(errors="surrogateescape"), mark)
            self.counts["looks"] += 1
            ask(f"fresh {file}")
            fresh = self.terminal.paint(file.read_text(errors="surrogateescape"), f"{mark}-fresh")
            file.unlink()
        late = [one for one in differences(shown, fresh) if not {one[2].text, one[3].text} <= _CLOCK]
        seen = Seen(screen, differences(shown, wanted), late, shown, fresh)
        if seen.torn or seen.stale:
            cells = [[x, y, *a, *b] for x, y, a, b in (seen.torn or seen.stale)[:6]]
            self.journal.write("differs", screen=screen, torn=len(seen.torn), stale=len(seen.stale), cells=cells)
        return seen

    def _skipped(self, why: str) -> Seen:
        self.counts["skipped looks"] += 1
        self.journal.write("skipped", why=why)
        return Seen("", [], [], [], [])

    def _violate_cells(self, kind: str, seen: Seen, differ: list[Difference]) -> None:
        where = f"on {seen.screen} {self.terminal.size}"
        parts = [f"column {x} line {y}: shown {one}, wanted {other}" for x, y, one, other in differ]
        page = ["--- shown", _lines(seen.shown), "--- wanted", _lines(seen.wanted)]
        self._violate(kind, f"{len(differ)} cells {where}: {'; '.join(parts[:3])}", "\n".join([*page, *parts]))

    def _violate(self, kind: str, text: str, evidence: str) -> None:
        number = len(self.journal.violations) + 1
        path = self._report / f"violation-{number}.txt"
        words = f"{self._replay} --acts {self._act.number}"
        acts = "\n".join(
            json.dumps([line["number"], line["kind"], line["data"], line["came"]])
            for line in self.journal.lines[-80:] if line["event"] == "act"
        )  # fmt: skip
        path.write_text(
            f"{kind}: {text}\nseed {self.seed}, act {self._act}\nreplay: {words}\n\n{evidence}\n\n"
            f"--- the acts before\n{acts}\n",
            errors="surrogateescape",
        )
        self.journal.violate(kind, f"{text}\n  in {path}, act {self._act.number}; again: {words}", self.journal.now())

    # The end

    def close(self) -> list[str]:
        """End the console and the mesh; what they left behind."""
        self.terminal.close()
        return self.world.close()


def _waited_s(pid: int) -> float:
    """How long a process's first thread has waited for a processor so far."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0  # it has exited


def _lines(cells: list[list[Cell]]) -> str:
    return "\n".join("".join(cell.text for cell in row).rstrip() for row in cells)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""  # it has exited
