"""``make screenshots``: the console over a real mesh with real launches, written into screenshots/ as SVG and PNG."""

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from console.settings import load
from console.tui.app import ConsoleApp
from console.tui.run import Phase
from tests.support.console import screen_text, until
from tests.support.mesh import PrivateMesh

FOLDER = Path(__file__).parents[2] / "screenshots"
SIZES = {"small": (80, 24), "": (120, 40)}

#: Programs worth looking at; they end when they are told to.
PROGRAMS = {
    "heat.py": """
import math, os, time
rank = int(os.environ["YOD_RANK"]); size = int(os.environ["YOD_SIZE"])
print(f"strip {rank + 1} of {size}: rows {rank * 64} to {rank * 64 + 63} on {os.environ['YOD_NODE']}", flush=True)
for step in range(1, 100000):
    time.sleep(0.4 + 0.02 * rank)
    print(f"step {step * 50:6}  residual {math.exp(-step / 7 - rank / 40):.3e}", flush=True)
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
    """Writes them all; 0."""
    FOLDER.mkdir(exist_ok=True)
    mesh = PrivateMesh(64, 4)
    try:
        for name, text in PROGRAMS.items():
            (mesh.work / name).write_text(text)
        mesh.up()
        detached = ("yod", "--detach")
        for words in (
            ("-sz", "24", "python3", "heat.py", "--grid", "1536x1024"),
            ("-sz", "9", "python3", "train.py", "--model", "small"),
            ("-sz", "12", "python3", "heat.py", "--grid", "768x512"),
        ):
            mesh.run(*detached, *words, check=True)
        ended = int(mesh.run(*detached, "-sz", "16", "python3", "ring.py", check=True).stdout)
        mesh.run("mesh", "reserve", "nobody", "60..63", check=True)
        for suffix, size in SIZES.items():
            asyncio.run(take(mesh, suffix, size, ended))
    finally:
        left = mesh.close()
    print(f"{len(list(FOLDER.glob('*.svg')))} screenshots in {FOLDER}", *left, sep="\n")
    return 1 if left else 0


async def take(mesh: PrivateMesh, suffix: str, size: tuple[int, int], ended: int) -> None:
    """Every screen at one size."""
    app = ConsoleApp(load(environ=mesh.env))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "launchers (" in screen_text(app) and app.machine.cells, "the map")
        await pilot.press("l", "l", "l")
        await pilot.pause(0.5)
        write(app, "mesh", suffix)
        await pilot.press("n", *"python3", "space", *"heat.py", "tab", *"12")
        await pilot.pause(0.3)
        write(app, "launch", suffix)
        await pilot.press("escape", "a")
        await until(pilot, lambda: "residual" in screen_text(app), "output")
        await pilot.pause(1.0)
        write(app, "run", suffix)
        await pilot.press("t")
        await pilot.pause(0.3)
        write(app, "question", suffix)
        await pilot.press("escape")
        app.attach(ended)
        await until(pilot, lambda: app.runs[ended].phase is Phase.ENDED, "the end of the ring")
        await pilot.pause(0.5)
        write(app, "completion", suffix)
        await pilot.press("m", "question_mark")
        await pilot.pause(0.3)
        write(app, "help", suffix)


def write(app: Any, name: str, suffix: str) -> None:
    """One screen as SVG, and as PNG for the README."""
    name = f"{name}-{suffix}" if suffix else name
    svg = app.export_screenshot(title="mesh console")
    svg = re.sub(r"\bterminal-\d+", "terminal", svg)  # a number drawn at random
    (FOLDER / f"{name}.svg").write_text(svg)
    # the font it asks for is fetched from the network; this one is installed wherever the tests run
    local = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
    paint(local, FOLDER / f"{name}.png")


def paint(svg: str, path: Path) -> None:
    """SVG to PNG: by Chromium, whose lines meet, or else by cairosvg."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        import cairosvg

        cairosvg.svg2png(bytestring=svg.encode(), write_to=str(path))
        return
    width, height = re.findall(r'viewBox="0 0 ([0-9]+)[0-9.]* ([0-9]+)', svg)[0]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "screen.svg")
        source.write_text(svg.replace("font-size: 20px", "font-size: 21px"))  # as high as the lines are apart
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
             f"--screenshot={path}", f"--window-size={width},{height}", str(source)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
