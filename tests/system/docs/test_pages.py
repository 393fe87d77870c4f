"""Every command block of the tutorial, the README and the examples' pages runs, and prints what stands below it."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.mpis import ROOT

#: Blocks that need hosts, Slurm or a whole installation are ```console, not ```sh; the page says what runs them.
PAGES = ("docs/tutorial.md", *(f"examples/{name}/README.md" for name in ("farm", "hello", "mandelbrot", "python")))
MPI_PAGES = tuple(f"examples/{name}/README.md" for name in ("ring", "heat", "coupled", "deadlock")) + ("docs/mpi.md",)


class Block:
    """A block of commands, and the lines that its output must have in it, in any order."""

    def __init__(self, line: int, commands: str, wanted: list[str]) -> None:
        self.line, self.commands, self.wanted = line, commands, wanted


def blocks_of(page: str) -> list[Block]:
    """The ``sh`` blocks of a page; a ``text`` block next to one is its output, where ``?`` is any letter."""
    text = (ROOT / page).read_text()
    blocks = []
    for found in re.finditer(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.M | re.S):
        line = text.count("\n", 0, found.start()) + 1
        blocks.append(Block(line, found[1], (found[2] or "").splitlines()))
    return blocks


def run_page(mesh: PrivateMesh, page: str) -> None:
    """Run the blocks of a page in one directory, the next where the last one ended."""
    blocks = blocks_of(page)
    assert blocks, f"{page} has no commands"
    where = mesh.work / page.replace("/", "-")
    shutil.copytree((ROOT / page).parent, where) if page.startswith("examples/") else where.mkdir()
    (where / "examples").symlink_to(ROOT / "examples")
    for block in blocks:
        keep = f'\necho "$PWD $OLDPWD" > {mesh.home}/where'
        done = mesh.run("bash", "-eu", "-o", "pipefail", "-c", block.commands + keep, cwd=where, timeout_s=60)
        told = f"{page}:{block.line}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, told
        for wanted in block.wanted:
            assert re.search(re.escape(wanted).replace(r"\?", "[A-Za-z]"), done.stdout), f"no {wanted!r}: {told}"
        now, before = (mesh.home / "where").read_text().split()
        where, mesh.env["OLDPWD"] = Path(now), before


def test_every_command_of_the_pages_runs(mesh: MakeMesh) -> None:
    one = mesh(2, 1)
    python = Path(sys.executable)
    one.env["PATH"] = f"{python.parent}:{one.env['PATH']}"
    for page in (*PAGES[1:], PAGES[0]):  # the tutorial ends the mesh
        run_page(one, page)


@pytest.mark.skipif(not shutil.which("mpicc.mpich"), reason="MPICH's compiler is not installed")
def test_every_command_of_the_mpi_pages_runs(mesh: MakeMesh) -> None:
    one = mesh(2, 1)
    for page in MPI_PAGES:
        run_page(one, page)
