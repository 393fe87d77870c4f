"""``make screenshots``: writes pictures of the console on a real mesh with real launches into screenshots/."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from console.settings import load
from console.tui.app import ConsoleApp
from console.tui.model.launch import Phase
from console.tui.widgets.launch_summary import Completion
from tests.support import scenes
from tests.support.console import screen_text, until
from tests.support.mesh import PrivateMesh
from tests.support.waiting import PATIENCE_S

FOLDER = Path(__file__).parents[2] / "screenshots"
EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"small": (80, 24), "": (120, 40)}
LOOK_SIZES = {**SIZES, "large": (200, 60)}

#: Programs of the guide "Find out why it hangs" (docs/guides/why-it-hangs.md): picture, file in examples/deadlock.
HANGS = (("hang-c", "deadlock.c"), ("hang-slow", "slow.c"))

#: Programs whose launches the pictures show: file name → Python source.
PROGRAMS = {
    "heat.py": """
import math, os, time
rank = int(os.environ["YOD_RANK"]); size = int(os.environ["YOD_SIZE"])
print(f"strip {rank + 1} of {size}: rows {rank * 64} to {rank * 64 + 63} on {os.environ['YOD_NODE']}", flush=True)
for step in range(1, 100000):
    time.sleep(0.4 + 0.02 * rank)
    print(f"step {step * 50:6}  residual {math.exp(-step / 7 - rank / 40):.3e}", flush=True)
""",
    "exchange.py": """
import os, signal, time
rank = int(os.environ["YOD_RANK"])
def receive_halo(): signal.pause()
def wait_for_all(): time.sleep(1000)
def exchange(): receive_halo() if rank == 7 else wait_for_all()
print("grid of 4096 x 4096 cells", flush=True)
for step in range(1, 4):
    print(f"step {step}: halo exchanged", flush=True)
exchange()
""",
    "train.py": "import time\nfor epoch in range(10000):\n    print('epoch', epoch, flush=True); time.sleep(1)\n",
    "ring.py": """
import os, sys, time
rank = int(os.environ["YOD_RANK"])
print(f"token passed on to rank {(rank + 1) % int(os.environ['YOD_SIZE'])}", flush=True)
time.sleep(0.3 + rank / 50)
if rank == 5:
    print("ring.py: rank 6 does not answer", file=sys.stderr, flush=True)
    sys.exit(3)
if rank == 11:
    os.abort()
""",
}


def main() -> int:
    """Write all pictures; return 1 if the mesh left anything behind.

    ``--look FOLDER`` writes every size and theme as PNG into another folder, for a look at them.
    """
    look = Path(sys.argv[2]) if sys.argv[1:2] == ["--look"] else None
    folder = look or FOLDER
    folder.mkdir(exist_ok=True)
    mesh = PrivateMesh(64, 4)
    os.environ.update(mesh.env)  # the console runs mesh status, which is to find this mesh
    try:
        launchers = begin(mesh)
        for theme in ("dark", "light", "mono") if look else ("dark",):
            for suffix, size in (LOOK_SIZES if look else SIZES).items():
                name = "-".join(filter(None, (suffix, "" if theme == "dark" else theme)))
                shots = Shots(mesh, folder, name, svg=look is None)
                asyncio.run(shots.take(size, theme, launchers))
                if look:
                    asyncio.run(shots.take_fixed(size, theme))
    finally:
        left = mesh.close()
    print(f"{len(list(folder.glob('*.png')))} screenshots in {folder}", *left, sep="\n")
    return 1 if left else 0


def begin(mesh: PrivateMesh) -> dict[str, int]:
    """Start the mesh and the launches of ``PROGRAMS``; return the launchers' ids by file name."""
    for name, text in PROGRAMS.items():
        (mesh.work / name).write_text(text)
    mesh.up()
    started = {}
    for words in (
        ("-sz", "24", "--input=all", "python3", "heat.py", "--grid", "1536x1024"),
        ("-sz", "9", "python3", "train.py", "--model", "small"),
        ("-sz", "12", "python3", "exchange.py"),
        ("-sz", "16", "-bt", "python3", "ring.py"),
    ):
        name = next(word for word in words if word.endswith(".py"))
        started[name] = int(mesh.run("yod", "--detach", *words, check=True).stdout)
    mesh.run("mesh", "reserve", "nobody", "60..63", check=True)
    return started


def start_built(mesh: PrivateMesh, file: str, *options: str) -> int:
    """Compile an MPI program of examples/deadlock and start four ranks of it; return the launcher's id."""
    source, program = EXAMPLES / "deadlock" / file, mesh.work / file.removesuffix(".c")
    compiler = shutil.which("mpicc.mpich") or shutil.which("mpicc")
    if compiler is None:
        raise SystemExit("the pictures of the guide need an MPI compiler (mpicc)")
    shutil.copy(source, mesh.work / file)
    subprocess.run([compiler, "-g", "-O0", "-o", program, mesh.work / file], check=True)
    words = ("yod", "--detach", *options, "-sz", "4", str(program))
    return int(mesh.run(*words, check=True).stdout)


class Shots:
    """Takes the pictures of one size and theme."""

    def __init__(self, mesh: PrivateMesh, folder: Path, suffix: str, *, svg: bool) -> None:
        self._mesh, self._folder, self._suffix, self._svg = mesh, folder, suffix, svg

    async def take(self, size: tuple[int, int], theme: str, launchers: dict[str, int]) -> None:
        """Take a picture of every screen."""
        app = ConsoleApp(load(environ=self._mesh.env))
        app.theme = f"redmesh-{theme}"
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: "launchers (" in screen_text(app) and app.machine.launchers, "the map")
            await self._machine(app, pilot)
            await self._form(app, pilot)
            await self._running(app, pilot, launchers["heat.py"])
            await self._waiting(app, pilot, launchers["exchange.py"])
            await self._ended(app, pilot, launchers["ring.py"])
            await self._hanging(app, pilot, launchers)
            app.session.keep(theme, [])

    async def take_fixed(self, size: tuple[int, int], theme: str) -> None:
        """Take a picture of every scene on fixed content: large machines, jobs, all that goes wrong."""

        async def write(app: Any, name: str) -> None:
            self.write(app, f"fixed-{name}")

        with tempfile.TemporaryDirectory() as folder:
            await scenes.play(Path(folder), size, theme, write)

    async def _machine(self, app: Any, pilot: Any) -> None:
        await pilot.press("l", "l", "l")
        await pilot.pause(3.0)
        self.write(app, "mesh")
        await pilot.press("question_mark")
        await pilot.pause(0.3)
        self.write(app, "help")
        await pilot.press("escape", "ctrl+p")
        await pilot.pause(0.5)
        self.write(app, "palette")
        await pilot.press("escape")
        tables = [("1", "launchers"), ("3", "nodes"), ("4", "events")]
        for key, name in tables if self._svg else [*tables, ("2", "partitions"), ("7", "jobs")]:
            await pilot.press(key)
            await pilot.pause(0.5)
            self.write(app, name)
        await pilot.press("m")

    async def _form(self, app: Any, pilot: Any) -> None:
        await pilot.press("n", *"python3", "space", *"heat.p")
        await until(pilot, lambda: "heat.p" in screen_text(app), "the program")
        await pilot.press("tab", *"12", "tab", "tab", "right")
        await pilot.pause(0.3)
        self.write(app, "launch")
        await pilot.press("ctrl+l", "escape")

    async def _running(self, app: Any, pilot: Any, launcher: int) -> None:
        app.attach(launcher)
        await until(pilot, lambda: "residual" in screen_text(app), "output")
        await pilot.pause(1.0)
        self.write(app, "run")
        await pilot.press("t")
        await pilot.pause(0.3)
        self.write(app, "question")
        await pilot.press("escape", "f", *"rank:0-3 strip", "enter")
        await pilot.pause(0.3)
        self.write(app, "filter")
        await pilot.press("escape")

    async def _waiting(self, app: Any, pilot: Any, launcher: int) -> None:
        app.attach(launcher)
        await until(pilot, lambda: "halo" in screen_text(app), "output")
        await pilot.press("equals_sign")
        await pilot.pause(0.5)
        self.write(app, "gathered")
        await pilot.press("s")
        await until(pilot, lambda: "taken" in screen_text(app), "the stacks")
        await pilot.pause(0.3)
        self.write(app, "stacks")
        await pilot.press("escape", "equals_sign")

    async def _ended(self, app: Any, pilot: Any, launcher: int) -> None:
        app.attach(launcher)
        await until(pilot, lambda: app.runs[launcher].phase is Phase.ENDED, "the end of the ring")
        await pilot.pause(0.5)
        self.write(app, "completion")
        app.screen.query_one(Completion).focus()
        await pilot.press("j", "enter")
        await pilot.pause(0.3)
        self.write(app, "stack")
        await pilot.press("escape")

    async def _hanging(self, app: Any, pilot: Any, launchers: dict[str, int]) -> None:
        """Take the pictures of the guide: a stack tree with source code, two ranks side by side, a crash."""
        for name, file in (*HANGS, ("hang-python", "exchange.py")):
            launcher = launchers[file] if file in launchers else start_built(self._mesh, file)
            await until(pilot, lambda one=launcher: one in app.machine.launchers, "the launch")  # type: ignore[misc]
            app.attach(launcher)
            await until(pilot, lambda: app.screen.query("#output"), "the run")
            await pilot.pause(0.5)
            await pilot.press("s")
            await until(pilot, lambda: "taken" in screen_text(app) and "▶" in screen_text(app), "the source")
            await pilot.pause(0.5)
            self.write(app, name)
            if name == "hang-c":
                await pilot.press("S", "enter")
                await until(pilot, lambda: screen_text(app).count("▶") == 2, "two ranks")
                await pilot.press("j")
                await pilot.pause(0.5)
                self.write(app, "hang-beside")
                await pilot.press("escape")
            await pilot.press("escape")
            if file not in launchers:  # each rank that waits in MPI uses a whole processor
                self._mesh.run("yod", "-signal", "KILL", str(launcher), check=True)
        crash = start_built(self._mesh, "crash.c", "-bt", "-kill")
        app.attach(crash)
        await until(pilot, lambda: app.runs[crash].phase is Phase.ENDED, "the crash")
        await pilot.pause(0.5)
        app.screen.query_one(Completion).focus()
        await pilot.press("enter")  # the crashed rank is in the first row
        await until(pilot, lambda: "▶" in screen_text(app), "its stack and source")
        await pilot.pause(0.3)
        self.write(app, "hang-crash")
        await pilot.press("escape")

    def write(self, app: Any, name: str) -> None:
        """Write one screen as SVG and PNG; the folder screenshots/ gets PNG only for the large size."""
        name = f"{name}-{self._suffix}" if self._suffix else name
        svg = app.export_screenshot(title="mesh console")
        svg = re.sub(r"\bterminal-\d+", "terminal", svg)  # the number is random
        svg = re.sub(r"/tmp/redmesh-t-\w{8}", "/home/ada/programs/mesh", svg)  # as long as the text it replaces
        if self._svg:
            (self._folder / f"{name}.svg").write_text(svg)
        if not self._svg or not self._suffix:
            # The SVG names a font that is fetched from the network; use an installed one instead.
            local = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
            paint(local, self._folder / f"{name}.png")


def paint(svg: str, path: Path) -> None:
    """Convert SVG to PNG with Chromium, which joins box-drawing lines without gaps, or else with cairosvg."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        import cairosvg

        cairosvg.svg2png(bytestring=svg.encode(), write_to=str(path))
        return
    width, height = re.findall(r'viewBox="0 0 ([0-9]+)[0-9.]* ([0-9]+)', svg)[0]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "screen.svg")
        source.write_text(svg.replace("font-size: 20px", "font-size: 21px"))  # makes a line of text as high as a row
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
             f"--screenshot={path}", f"--window-size={width},{height}", str(source)],
            check=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
