"""``make demo``: a mesh of 16 processors on 4 nodes, a picture computed on all, the mesh meanwhile and after.

Everything lives in one directory that is removed at the end; status 0 only if the picture is whole and nothing is left.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mandelbrot import HEIGHT, WIDTH

BIN = Path(sys.executable).parent
PROGRAM = Path(__file__).resolve().with_name("mandelbrot.py")
SIZE, NODES, PATIENCE_S = 16, 4, 120
COLOURS = (196, 202, 208, 214, 220, 190, 154, 118, 84, 50, 45, 39, 33, 63, 99, 135)


class Stage:
    """Where the demo runs and how it speaks: in colour on a terminal, plainly elsewhere."""

    def __init__(self, home: str) -> None:
        size = shutil.get_terminal_size()
        self.live = sys.stdout.isatty() and size.columns >= WIDTH and size.lines > HEIGHT + 2
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("REDMESH_", "YOD_"))}
        for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
            self.env[variable] = os.path.join(home, variable[4:7].lower())
            os.mkdir(self.env[variable], 0o700)
        self.env["PATH"] = f"{BIN}:{self.env.get('PATH', '/usr/bin:/bin')}"
        self.home = home

    def show(self, *command: str) -> None:
        """Print a command line as if somebody had typed it."""
        line = " ".join(command)
        try:
            print(f"\n\x1b[1m$ {line}\x1b[0m" if sys.stdout.isatty() else f"\n$ {line}", flush=True)
        except BrokenPipeError:
            pass  # whoever read us has gone; what was started is still taken down

    def run(self, *command: str) -> None:
        """Show and run a command to its end; CalledProcessError when it fails."""
        self.show(*command)
        subprocess.run(command, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=True)

    def picture(self) -> None:
        """The parallel program; its rows are put into their places as they come."""
        self.show("yod", "-sz", str(SIZE), "python3", "mandelbrot.py")
        command = ["yod", "-sz", str(SIZE), sys.executable, "-S", "-E", str(PROGRAM)]
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
                if not rows:  # the first row: all ranks are at work
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
    """Processes that carry our directory in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and f"={home}/".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(entry)
        except OSError:
            pass
    return found


def main() -> int:
    """Run it all; 0 when the picture is whole and nothing is left behind."""
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
            time.sleep(0.02)
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
    print("\nThe mesh is down, nothing is left of it. Next: .venv/bin/yod -sz 4 hostname")
    return 0


if __name__ == "__main__":
    sys.exit(main())
