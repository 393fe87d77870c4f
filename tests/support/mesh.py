"""Real personal meshes for tests, started by the command line in private directories.

After a test, whether it passed or not, its mesh is taken down. Processes, sockets and files that the mesh left behind
are removed and fail the test.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.forked_command import run_mesh
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, Process, freeze, wait_until

BIN = Path(sys.executable).parent
Run = subprocess.CompletedProcess[str]


class PrivateMesh:
    """A personal mesh with private state, configuration and runtime directories, and the commands that use it."""

    def __init__(self, processors: int = 4, nodes: int = 2, cpas: int = 1, database: str = "", **variables: str):
        self.size = (processors, nodes, cpas)
        # The path is short because the path of a Unix socket has at most 107 bytes.
        self.home = private_directory("redmesh-t-")
        self.work = self.home / "work"  # where the commands run
        for name in ("state", "config", "work", "run"):
            (self.home / name).mkdir(mode=0o700)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("REDMESH_", "YOD_", "XDG_"))}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            # After a load that took too long on a busy machine, its node is soon tried again.
            "REDMESH_FAILED_S": "2",
            "PATH": f"{BIN}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            **variables,
        }
        if database:
            self.env["REDMESH_DATABASE"] = database
        self.state = self.home / "state" / "redmesh"
        self._started: list[subprocess.Popen[Any]] = []
        self._shm = set(os.listdir("/dev/shm"))

    @property
    def run_dir(self) -> Path:
        """The mesh's run directory, which has its sockets."""
        return Path(os.readlink(self.state / "run"))

    @property
    def database(self) -> str:
        """The URL of the system database that viewers use."""
        return self.env.get("REDMESH_DATABASE") or f"sqlite://{self.state}/mesh.db"

    def run(
        self,
        *command: str,
        check: bool = False,
        timeout_s: float = PATIENCE_S,
        input: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | str | None = None,
    ) -> Run:
        """Run a command (``yod``, ``mesh`` …) to its end; with ``check`` its exit status must be 0."""
        done = subprocess.run(
            command,
            env={**self.env, **(env or {})},
            cwd=cwd or self.work,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout_s,
        )
        if check:
            assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *command: str, **options: Any) -> "subprocess.Popen[Any]":
        """Start a command; ``close`` kills it if it still runs."""
        env = {**self.env, **options.pop("env", {})}
        options.setdefault("stdin", subprocess.DEVNULL)
        process = Process(command, env=env, cwd=self.work, **options)
        self._started.append(process)
        return process

    def json(self, *command: str, env: dict[str, str] | None = None) -> Any:
        """Run a command with ``--json``; return the parsed output."""
        return json.loads(self.run(*command, "--json", check=True, env=env).stdout)

    def up(self, *options: str) -> Run:
        """Run ``mesh up`` with this mesh's size."""
        processors, nodes, cpas = self.size
        size = ("--processors", str(processors), "--nodes", str(nodes), "--cpas", str(cpas))
        done = self._mesh("up", *size, *options, cwd=self.work)
        assert done.returncode == 0, f"mesh up ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def _mesh(self, *words: str, cwd: Path) -> Run:
        """Run ``mesh`` for the test, not as what it tests: in a forked process, unless it is another program."""
        same = all(self.env.get(name) == os.environ.get(name) for name in ("PYTHONPATH", "PYTHONHOME"))
        if type(self) is PrivateMesh and same and self.env["PATH"].startswith(f"{BIN}:") and not self._has_open_files():
            return run_mesh(*words, env=self.env, cwd=cwd, patience_s=PATIENCE_S)
        return self.run("mesh", *words, cwd=cwd)

    def _has_open_files(self) -> bool:
        """Whether this process has a file of the mesh open: a database that is open may not be used after a fork."""
        for entry in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing is closed
                if os.readlink(f"/proc/self/fd/{entry}").startswith(f"{self.home}/"):
                    return True
        return False

    def down(self) -> Run:
        """Run ``mesh down --force``, which also ends running launches."""
        return self.run("mesh", "down", "--force")

    def restart(self) -> None:
        """Take the mesh down from any state, also with frozen or killed daemons, and start it again."""
        self._signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self.down()
        self._signal(signal.SIGKILL)
        wait_until(lambda: not self.processes(), lambda: f"no process of the mesh is left: {self.processes()}")
        self.up()

    def _signal(self, number: int) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def keeper(self) -> dict[str, Any]:
        """Return the keeper's status: its pid, and the name, pid and restarts of each daemon."""
        from agents.link.client import Client

        with Client(str(self.run_dir / "keeper.sock"), "admin") as client:
            return client.call({"op": "status"})

    def pid_of(self, daemon: str) -> int:
        """Return the pid of ``keeper``, ``rca``, ``cpa-0``, ``n0`` …"""
        told = self.keeper()
        if daemon == "keeper":
            return int(told["pid"])
        return next(int(one["pid"]) for one in told["daemons"] if one["name"] == daemon)

    def answers(self, daemon: str) -> bool:
        """Return whether a daemon accepts connections."""
        from agents.link.client import Client, Unreachable

        try:
            Client(str(self.run_dir / f"{daemon}.sock"), "admin").close()
        except Unreachable:
            return False
        return True

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> int:
        """Signal a daemon; return its pid. Raises ProcessLookupError while the keeper restarts the daemon."""
        pid = self.pid_of(daemon)
        if pid <= 1:  # os.kill(0) would signal the process group of the tests
            raise ProcessLookupError(f"{daemon} is between two lives")
        if number == signal.SIGSTOP:
            freeze(pid)
        else:
            os.kill(pid, number)
        return pid

    def processes(self) -> dict[int, str]:
        """Map the pids of processes that have this mesh's state directory in their environment to their command lines.

        Zombies are not included, because they have no environment.
        """
        mark = os.fsencode(f"XDG_STATE_HOME={self.env['XDG_STATE_HOME']}")
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                        found[int(entry)] = b" ".join(words).decode("utf-8", "replace").strip()
                except OSError:
                    pass  # the process has exited meanwhile, or belongs to another user
        return found

    def end_commands(self) -> None:
        """Kill the commands that ``start`` began and that still run, and close their streams."""
        while self._started:
            process = self._started.pop()
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def close(self) -> list[str]:
        """Take the mesh down and remove what is left of it; return a description of what was left."""
        self.end_commands()
        left = self._down_if_up()
        left += self._processes_left()
        left += self._run_files()
        ours = self.home.name
        left += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - self._shm if ours in name]
        if left:
            left += [self.logs()]
        shutil.rmtree(self.home, ignore_errors=True)
        return left

    def _run_files(self) -> list[str]:
        return [f"file {path}" for path in (self.home / "run").rglob("*") if not path.is_dir()]

    def _down_if_up(self) -> list[str]:
        """Run ``mesh down`` unless the test has done so; return what it complains of."""
        may_have_hosts = (self.home / "config" / "redmesh").exists()
        if not (may_have_hosts or self.processes() or self._run_files()):
            return []
        try:
            down = self._mesh("down", "--force", cwd=self.home)  # a test's mesh.toml may be broken
        except subprocess.TimeoutExpired:
            return ["mesh down did not end"]
        return [f"mesh down ended with {down.returncode}: {down.stderr.strip()}"] if down.returncode else []

    def logs(self, lines: int = 12) -> str:
        """Return the last ``lines`` lines of every daemon's log."""
        parts = []
        for path in sorted((self.state / "log").glob("*")):
            text = path.read_text(errors="replace").splitlines()[-lines:]
            if text:
                parts.append(f"--- {path.name}\n" + "\n".join(text))
        return "\n".join(parts)

    def _processes_left(self) -> list[str]:
        left = []
        try:
            wait_until(lambda: not self.processes(), lambda: f"no process of the mesh is left: {self.processes()}")
        except AssertionError as error:
            left.append(str(error))
        while self.processes():
            self._signal(signal.SIGKILL)
        return left


Mesh = TypeVar("Mesh", bound=PrivateMesh)


@contextmanager
def while_up(made: Mesh, up: bool = True) -> Iterator[Mesh]:
    """Bring a mesh of any kind up, yield it, and take it down; raise AssertionError if it leaves anything behind.

    A PrivateMesh has its nodes on this machine; a TlsMesh too, but reaches them like other machines' nodes; the nodes
    of a FarMesh, and of a SystemMesh, which serves several users, are namespace hosts; those of a LoopbackMesh are
    reached by SSH on loopback addresses. Without ``up`` the test brings the mesh up itself.
    """
    left: list[str] = []
    try:
        if up:
            made.up()
        yield made
    finally:
        left = made.close()
    assert not left, "left behind:\n" + "\n".join(left)


@contextmanager
def restarted_on_failure(shared: PrivateMesh) -> Iterator[None]:
    """Restart a mesh of several tests if the block fails, so that the tests after this one do not fail too."""
    try:
        yield
    except BaseException:  # also a time limit of pytest-timeout, which is no Exception
        shared.restart()
        raise


MakeMesh = Callable[..., PrivateMesh]


@pytest.fixture
def mesh() -> Iterator[MakeMesh]:
    """``mesh(processors=4, nodes=2, cpas=1, database="", up=True, VARIABLE="…")`` makes a PrivateMesh and starts it."""
    with ExitStack() as made:

        def make(*args: Any, up: bool = True, **options: Any) -> PrivateMesh:
            return made.enter_context(while_up(PrivateMesh(*args, **options), up))

        yield make
