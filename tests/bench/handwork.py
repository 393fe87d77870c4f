"""What our own replacements of library code gain: each switched off alone, in turn with the program as it is.

``python -m tests.bench.handwork [PIECE …]`` on a quiet machine (some ten minutes for all). A piece is switched off in a
copy of the source tree, where the library takes its place. The ratio is *with* over *without* it: a piece that shows no
ratio of 0.9 or less saves less than a tenth of anything, and may go.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

from tests.bench import consoles
from tests.bench.meshes import ROOT, pss_kib
from tests.bench.ratios import in_turn, seconds
from tests.support.big_machine import storm
from tests.support.mesh import BIN, PrivateMesh

_LEAN = """
if not TYPE_CHECKING:
    import signal
    import socket
    from collections import deque
    from enum import Enum
    from socket import socket as Socket
"""
_SEAL = """
if not TYPE_CHECKING:
    import hmac
    from hashlib import sha256

    def seal(key, data):
        return hmac.digest(key, data, "sha256")
"""
_SCREEN = """

class PromptScreen(Screen):
    pass


class PromptApp(App):
    pass
"""
#: Each piece: in which file which text becomes which; "" stands for the end of the file.
PIECES: dict[str, list[tuple[str, str, str]]] = {
    "Enum": [("agents/link/lean.py", "", "\nif not TYPE_CHECKING:\n    from enum import Enum\n")],
    "lean": [("agents/link/lean.py", "", _LEAN)],
    "_json": [
        ("agents/wire/control.py", "from _json", "import json\nfrom _json"),
        ("agents/link/journal.py", "from _json", "import json\nfrom _json"),
    ],
    "_ssl": [("agents/link/tls.py", "    import _ssl as ssl", "    import ssl as _\n    import _ssl as ssl")],
    "seal": [("agents/wire/seal.py", "", _SEAL)],
    "vfork": [("agents/pct/ranks/vfork.py", "", "\nRUN_SYSCALLS = None\n")],
    "compositor": [("console/tui/terminal/compositor.py", "", _SCREEN)],
    "ssh": [],
}
PIECES["together"] = [edit for name, edits in PIECES.items() if name != "compositor" for edit in edits]
_ROOMS = "from redmesh.start_command import find_rooms; find_rooms(); import "
#: What a process loads, by what it is.
LOADS = {
    "yod of a plain launch loads": "console.cli.yod.command, console.launch.stdio.frontend, console.launch.engine",
    "keeper and PCT of a host load": "agents.keeper.__main__, agents.pct.remote.gateway, agents.pct.node.contact",
    "TLS is loaded": "agents.link.tls",
}
_REST_S = 0.5


def variant(directory: Path, piece: str) -> dict[str, str]:
    """A copy of the source tree without the piece ("": with all); the environment in which our commands run it."""
    for name in ("agents", "console", "db", "redmesh", "simulated"):
        copytree(ROOT / name, directory / name, ignore=ignore_patterns("__pycache__"))
    for name, old, new in PIECES.get(piece, ()):
        file = directory / name
        text = file.read_text()
        assert old in text, f"{name} has no {old!r} any more: mend PIECES"
        file.write_text(text.replace(old, new, 1) if old else text + new)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(directory)], check=True, env=_without_variables())
    return {**_without_variables(), "PYTHONPATH": str(directory)}


def _without_variables() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "REDMESH_", "YOD_"))}


@contextlib.contextmanager
def mesh_of(env: dict[str, str]) -> Iterator[PrivateMesh]:
    """64 nodes that run the copy."""
    made = PrivateMesh(256, 64, PYTHONPATH=env["PYTHONPATH"])
    made.env.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        made.up()
        yield made
    finally:
        for what in made.close():
            print(f"left behind: {what}", file=sys.stderr)


def _timed(command: list[str], env: dict[str, str]) -> Callable[[], float]:
    return lambda: 1000 * seconds(command, env)


def starts(whole: dict[str, str], without: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, with and without: processes that start (ms)."""
    for what, modules in LOADS.items():
        command = [sys.executable, "-P", "-c", _ROOMS + modules]
        mine, other = in_turn(_timed(command, whole), _timed(command, without), runs=31)
        assert other is not None
        yield f"{what} (ms)", mine, other


def launches(whole: dict[str, str], without: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, with and without: launches (ms), and what a PCT weighs (MiB)."""
    with mesh_of(whole) as one, mesh_of(without) as other:
        for size in (1, 64, 256):
            command = [str(BIN / "yod"), "-sz", str(size), "/bin/true"]
            times = in_turn(_timed(command, one.env), _timed(command, other.env), runs=15)
            assert times[1] is not None
            yield f"{size} processes over 64 PCTs (ms)", times[0], times[1]
        yield "a PCT at rest, PSS (MiB)", _weight(one), _weight(other)


def _weight(one: PrivateMesh) -> float:
    pcts = [daemon["pid"] for daemon in one.keeper()["daemons"] if daemon["name"].startswith("n")]
    return statistics.median(map(pss_kib, pcts)) / 1024


def console(whole: dict[str, str], without: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, with and without: the console's bytes to its terminal, and what it takes from a key to the screen."""
    found: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory(prefix="redmesh-bench-") as folder:
        database = storm(Path(folder))
        for env in (whole, without):
            os.environ["PYTHONPATH"] = env["PYTHONPATH"]
            try:
                with consoles.changing(database), consoles.screen(database.url, Path(folder)) as one:
                    found.append(_use(one))
            finally:
                del os.environ["PYTHONPATH"]
        database.close()
    for what, mine, other in zip(
        ("bytes a second (KiB)", "share of a core (%)", "key to screen, p95 (ms)"), *found, strict=True
    ):
        yield f"console: {what}", mine, other


def _use(one: consoles.Screen) -> tuple[float, float, float]:
    time.sleep(2.0)
    cpu, written, began = one.cpu_s, one.written, time.perf_counter()
    time.sleep(8.0)
    took_s = time.perf_counter() - began
    rates = (one.written - written) / took_s / 1024, 100 * (one.cpu_s - cpu) / took_s
    keys = []
    for _ in range(60):
        for key, text in (("l", "processor 2 and"), ("h", "processor 0 and")):
            time.sleep(0.03)
            keys.append(1000 * one.key(key, text))
    return (*rates, sorted(keys)[int(0.95 * len(keys))])


def ssh(_whole: dict[str, str], _without: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, ours and the OpenSSH client's: the routes to 32 hosts by the user's and the system's configuration."""
    from console.deploy.ssh.config import SshConfig

    names = [f"node{number:03}" for number in range(32)]

    def ours() -> float:
        began = time.perf_counter()
        config = SshConfig()
        for name in names:
            config.route_to(name)
        return 1000 * (time.perf_counter() - began)

    mine, other = in_turn(ours, lambda: 1000 * sum(seconds(["ssh", "-G", name]) for name in names))
    assert other is not None
    yield "routes to 32 hosts; without: ssh -G (ms)", mine, other


def main(pieces: list[str]) -> int:
    """Print the table as it comes."""
    unknown = set(pieces) - set(PIECES)
    if unknown:
        print(f"no piece is called {', '.join(sorted(unknown))}; there are: {', '.join(PIECES)}", file=sys.stderr)
        return 2
    print("| piece | what | with | without | ratio |\n|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="redmesh-handwork-") as folder:
        whole = variant(Path(folder, "whole"), "")
        for piece in pieces or PIECES:
            without = variant(Path(folder, f"without-{piece}"), piece)
            for figures in {"compositor": (console,), "ssh": (ssh,)}.get(piece, (starts, launches)):
                for what, mine, other in figures(whole, without):
                    print(f"| {piece} | {what} | {mine:.2f} | {other:.2f} | {mine / other:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
