"""``mesh demo``: starts a mesh of 16 processors on 4 nodes, computes a picture on all of them, and runs showmesh during
and after it.

All files are in one directory, which is removed at the end. The exit status is 0 only if the picture is complete and
nothing is left behind.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from console.demo.mandelbrot import DEPTH, HEIGHT, STEPS, WIDTH, escape
from redmesh.start_command import start_command

PROGRAM = Path(__file__).resolve().with_name("mandelbrot.py")
SIZE, NODES, PATIENCE_S = 16, 4, 120
COLOURS = (196, 202, 208, 214, 220, 190, 154, 118, 84, 50, 45, 39, 33, 63, 99, 135)


class Stage:
    """The demo's directory and its output: in colour on a terminal."""

    def __init__(self, home: str) -> None:
        size = shutil.get_terminal_size()
        self.live = sys.stdout.isatty() and size.columns >= WIDTH and size.lines > HEIGHT + 2
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("REDMESH_", "YOD_"))}
        for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
            self.env[variable] = os.path.join(home, variable[4:7].lower())
            os.mkdir(self.env[variable], 0o700)
        self.home = home

    def show(self, *command: str) -> None:
        """Print a command line as if a user had typed it."""
        line = " ".join(command)
        try:
            print(f"\n\x1b[1m$ {line}\x1b[0m" if sys.stdout.isatty() else f"\n$ {line}", flush=True)
        except BrokenPipeError:
            pass  # the reader of standard output has exited; still take down what was started

    def run(self, *command: str) -> None:
        """Print and run a command. Raises CalledProcessError if it fails."""
        self.show(*command)
        words = [*start_command(command[0]), *command[1:]]
        subprocess.run(words, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=True)

    def picture(self) -> None:
        """Run the parallel program; draw each row in its place when it arrives."""
        self.show("yod", "-sz", str(SIZE), "python3", "mandelbrot.py")
        command = [*start_command("yod"), "-sz", str(SIZE), sys.executable, "-S", "-E", str(PROGRAM)]
        begun = time.monotonic()
        with subprocess.Popen(
            command, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as yod:
            assert yod.stdout is not None
            rows: dict[int, str] = {}
            ranks = set()
            signal.signal(signal.SIGALRM, lambda *_: yod.kill())
            signal.alarm(PATIENCE_S)
            for line in yod.stdout:
                number, rank, shades = line.split()
                if not rows:  # the first row: all ranks are running
                    self.run("showmesh")
                    print("\n" * (HEIGHT + 1 if self.live else 1), end="")
                ranks.add(rank)
                rows[int(number)] = self._coloured(shades.replace("_", " "), int(rank))
                if self.live:
                    up = HEIGHT - int(number)
                    print(f"\x1b[{up}A\r{rows[int(number)]}\x1b[{up}B\r", end="", flush=True)
            status = yod.wait()
            signal.alarm(0)
        if status or len(rows) != HEIGHT or len(ranks) != SIZE:
            raise RuntimeError(f"yod ended with {status}; {len(rows)} of {HEIGHT} rows from {len(ranks)} ranks")
        if not self.live:
            print("\n".join(rows[number] for number in range(HEIGHT)))
        print(f"{HEIGHT} rows by {SIZE} processes on {NODES} nodes in {time.monotonic() - begun:.1f} s", flush=True)

    def _coloured(self, shades: str, rank: int) -> str:
        return f"\x1b[38;5;{COLOURS[rank % len(COLOURS)]}m{shades}\x1b[0m" if self.live else shades


def marked(home: str) -> list[str]:
    """Pids of processes with the demo's directory in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and f"={home}/".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(entry)
        except OSError:
            pass
    return found


def estimated_s(cores: int) -> float:
    """The demo's estimated seconds, from timing a few thousand steps of the picture."""
    begun = time.perf_counter()
    for _ in range(20):
        escape(0j)
    step_s = (time.perf_counter() - begun) / 20 / DEPTH
    return 3 + step_s * STEPS / min(cores, SIZE)


def next_command(cores: int) -> str:
    """A command that works now, in the form that the caller must type."""
    beside = Path(sys.executable).with_name("yod")
    yod = "yod" if shutil.which("yod") or not beside.exists() else os.path.relpath(beside)
    return f"{yod} -sz {min(cores, 2)} hostname"


def demonstrate() -> int:
    """Run the demo; returns 0 if the picture is complete and nothing is left behind."""
    cores = len(os.sched_getaffinity(0))
    print(
        f"A mesh of its own on this machine: {NODES} nodes, {SIZE} processors (shared by {cores} cores),"
        f" then a picture\nthat {SIZE} processes compute. About {estimated_s(cores):.0f} seconds; ^C ends it"
        " and leaves nothing behind.",
        flush=True,
    )
    home = tempfile.mkdtemp(prefix="redmesh-demo-")
    stage = Stage(home)
    failure = ""
    try:
        try:
            stage.run("mesh", "up", "--processors", str(SIZE), "--nodes", str(NODES))
            stage.picture()
            stage.run("showmesh")
        finally:
            stage.run("mesh", "down", "--force")
        deadline = time.monotonic() + 3
        while (left := marked(home)) and time.monotonic() < deadline:
            time.sleep(0.02)  # poll: these processes are no children
        if left or os.listdir(stage.env["XDG_RUNTIME_DIR"]):
            failure = f"left behind: processes {left}, files {os.listdir(stage.env['XDG_RUNTIME_DIR'])}"
    except (subprocess.SubprocessError, RuntimeError, ValueError, BrokenPipeError) as error:
        failure = str(error)
    except KeyboardInterrupt:
        failure = "interrupted"
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    print(f"\nThe mesh is down and nothing is left of it. Next: {next_command(cores)}")
    return 0
