"""Every command block of the tutorial, the guides and the examples' pages runs, and prints what stands below it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.addresses import address
from tests.support.loopback_mesh import LoopbackMesh
from tests.support.managers.job import Job
from tests.support.mesh import PrivateMesh, while_up
from tests.support.mpis import ROOT, python_with
from tests.support.shared_mesh import borrowed
from tests.support.waiting import wait_until
from tests.support.yods import free

#: Blocks that need hosts, Slurm or a whole installation are ```console, not ```sh; the page says what runs them.
PAGES = (
    "docs/guides/arrays.md",
    "docs/guides/slurm.md",
    "docs/guides/notebooks.md",
    *(f"examples/{name}/README.md" for name in ("farm", "hello", "mandelbrot", "python")),
)
TUTORIAL = "docs/tutorial.md"
MPI_PAGES = (
    *(f"examples/{name}/README.md" for name in ("ring", "heat", "coupled", "deadlock")),
    *(f"docs/{name}.md" for name in ("mpi", "guides/mpi", "guides/why-it-hangs")),
)
#: Guides that a test of their own runs; one_mesh_for_everybody has none that could (its page says what runs it).
GUIDES = ("pytorch", "ssh-hosts", "inside-slurm", "sections")


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


Runner = Callable[..., subprocess.CompletedProcess[str]]


def run_page(run: Runner, page: str, where: Path) -> None:
    """Run the blocks of a page in the empty directory ``where``, the next where the last one ended."""
    blocks = blocks_of(page)
    assert blocks, f"{page} has no commands"
    shutil.copytree((ROOT / page).parent, where) if page.startswith("examples/") else where.mkdir()
    (where / "examples").symlink_to(ROOT / "examples")
    state, before = where / ".where", where
    for block in blocks:
        commands = f'cd "{before}"; cd "{where}"\n{block.commands}\necho "$PWD $OLDPWD" > {state}'
        done = run("bash", "-eu", "-o", "pipefail", "-c", commands)
        told = f"{page}:{block.line}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, told
        for wanted in block.wanted:
            assert re.search(re.escape(wanted).replace(r"\?", "[A-Za-z]"), done.stdout), f"no {wanted!r}: {told}"
        where, before = map(Path, state.read_text().split())


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """The mesh of the pages; each begins in a directory of its own."""
    with while_up(PrivateMesh(2, 1)) as made:
        yield made


@pytest.fixture
def mesh(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The mesh of the pages, for pages that do not end it."""
    with borrowed(one_mesh):
        yield one_mesh


def runs_pages(mesh: PrivateMesh, *pages: str, python: str = sys.executable) -> None:
    """Run pages one after another in a mesh, with the commands and the Python of ``python``'s environment."""
    path = f"{Path(python).parent}:{Path(sys.executable).parent}:{mesh.env['PATH']}"
    for page in pages:
        wait_until(lambda: free(mesh) == 2, "what the page before this one ran has released its processors")
        run_page(partial(mesh.run, env={"PATH": path}), page, mesh.work / page.replace("/", "-"))


def test_every_command_of_the_pages_runs(mesh: PrivateMesh) -> None:
    runs_pages(mesh, *PAGES)


@pytest.mark.skipif(not shutil.which("mpicc.mpich"), reason="MPICH's compiler is not installed")
def test_every_command_of_the_mpi_pages_runs(mesh: PrivateMesh) -> None:
    runs_pages(mesh, *MPI_PAGES)


@pytest.mark.parametrize("guide, module", [("pytorch", "torch"), ("sections", "numpy")])
def test_every_command_of_a_guide_that_needs_a_library_runs(mesh: PrivateMesh, guide: str, module: str) -> None:
    runs_pages(mesh, f"docs/guides/{guide}.md", python=python_with(module))


def test_every_command_of_the_tutorial_runs(one_mesh: PrivateMesh) -> None:
    """The last of this mesh's tests: it ends the mesh."""
    runs_pages(one_mesh, TUTORIAL)


def test_every_command_of_the_guide_to_hosts_runs(loopback_hosts: Any) -> None:
    hosts = loopback_hosts(4)
    one = LoopbackMesh(hosts)
    try:
        # what stands in ~/.ssh/config of a user: the names of the hosts
        aliases = one.home / "ssh_config"
        lines = [f"Host node{n}\n  HostName {host.address}\n  Port {host.port}\n" for n, host in enumerate(hosts, 1)]
        aliases.write_text("".join(lines) + hosts.keys.config.read_text())
        del one.env["REDMESH_CONFIG"]
        one.env["PATH"] = f"{Path(sys.executable).parent}:{one.env['PATH']}"
        settings = f'ssh_config = "{aliases}"\nlogin_address = "{address(200)}"\nagent_port = {one.port}\n'

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            made = where / "mesh.toml"
            if made.exists() and settings not in (text := made.read_text()):
                made.write_text(settings + text)
            return one.run(*words)

        where = one.work / "hosts"
        run_page(run, "docs/guides/ssh-hosts.md", where)
        assert not one.left_on_hosts()
    finally:
        one.close()


def test_every_command_of_the_guide_to_slurm_runs() -> None:
    job = Job("slurm")
    try:
        run_page(job.run, "docs/guides/inside-slurm.md", job.directory / "work")
        assert not job.refused.exists(), job.refused.read_text()
    finally:
        job.close()


def test_every_guide_with_commands_is_run() -> None:
    run = {*PAGES, TUTORIAL, *MPI_PAGES, *(f"docs/guides/{name}.md" for name in GUIDES)}
    pages = [str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "guides").glob("*.md")]
    assert [page for page in pages if blocks_of(page) and page not in run] == []
