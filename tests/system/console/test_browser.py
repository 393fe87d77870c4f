"""``mesh serve`` in a real browser, on a real mesh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.addresses import held_port
from tests.support.browser import CHROMIUM, Browser
from tests.support.mesh import MakeMesh

PROGRAM = """
import os, signal
def wait_for_news():
    signal.pause()
print("begun on rank", os.environ["YOD_RANK"], flush=True)
wait_for_news()
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
async def test_a_launch_is_watched_in_two_browsers_and_after_a_lost_connection(mesh: MakeMesh) -> None:
    small = mesh(processors=4, nodes=2)
    program = Path(small.work) / "waits.py"
    program.write_text(PROGRAM)
    with held_port() as port:
        serving = small.start("mesh", "serve", "--port", str(port), stdout=subprocess.PIPE, text=True)
        address = serving.stdout.readline().strip()
    try:
        async with Browser() as first, Browser(900, 600) as second:
            await first.open(address)
            await first.wait_heard("4 of 4 free")
            await first.press("n")  # nobody has clicked
            await first.wait_heard("new launch")
            await first.evaluate("document.activeElement.blur()")
            await first.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # the tab comes back
            await first.press(f"python3 {program}", "tab", "2", "enter")
            await first.wait_heard("begun on rank 0")
            await first.press("s")
            await first.wait_heard("wait_for_news")
            await first.wait_heard("signal.pause()")
            await first.press("Y")
            await first.wait_heard("copied")
            assert "\x1b]52;c;" in await first.evaluate("window.__heard")
            await second.open(address)
            await second.wait_heard("waits.py")
            await first.forget()
            await first.resize(700, 500)
            await first.wait_heard("wait_for_news")
            await first.evaluate("window.__sockets.at(-1).close()")  # the network is gone
            await first.open(address)
            await first.wait_heard("waits.py")
    finally:
        serving.terminate()
        serving.wait()
