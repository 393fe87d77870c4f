"""A private MariaDB server for tests: its files and socket are in a temporary directory, and it uses no network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from console.deploy.trust.authority import authority
from tests.support.once import made_once
from tests.support.reaper import private_directory
from tests.support.waiting import PATIENCE_S, freeze

INSTALLER = "mariadb-install-db"
_MEMORY, _ROOM_BYTES = "/dev/shm", 2 << 30
#: The server syncs nothing to the disk: tests kill the server, never the machine, so the kernel keeps what was written.
_UNSYNCED = ["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=OFF"]
#: Makes the kernel kill the server when the test run dies.
DIE_WITH_US = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def find_server() -> str | None:
    """Return the path of the server's program, or None if it is not installed."""
    for name in ("mariadbd", "mysqld"):
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if found:
            return found
    return None


class Server:
    """One server process; tests may kill it, stop it (SIGSTOP) and start it again on the same files."""

    def __init__(self, directory: str, small: bool = True, data: str = "") -> None:
        self.directory = directory
        self._data = data or os.path.join(directory, "data")
        self._sizes = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", *_UNSYNCED] if small else []
        self.socket = os.path.join(directory, "s")
        #: The server offers TLS, as MariaDB 11.4 and MySQL 8 do by themselves.
        self._certificate = os.path.join(directory, "tls.pem")
        self.process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def install(self) -> None:
        # 6 MB; the rest of its 110 MB are holes
        copy = ["cp", "-a", "--sparse=always", f"{made_once('mariadb', _install)}/.", self._data]
        subprocess.run(copy, check=True, stdin=subprocess.DEVNULL)
        with open(self._certificate, "wb") as file:
            file.write(authority(self.directory, "tests").node_files("db", [])["node.pem"])

    def start(self) -> None:
        program = find_server()
        assert program is not None
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [
                    *DIE_WITH_US,
                    program,
                    "--no-defaults",
                    *_user(),
                    *self._places(),
                    f"--socket={self.socket}",
                    f"--pid-file={self.directory}/pid",
                    f"--ssl-cert={self._certificate}",
                    f"--ssl-key={self._certificate}",
                    "--skip-networking",
                    "--skip-log-bin",
                    *self._sizes,
                    "--performance-schema=OFF",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,  # a signal for the tests' group ends the server after the meshes
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.admin("SELECT 1")
                return
            except pymysql.err.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
            time.sleep(0.02)

    def admin(self, *statements: str) -> tuple[tuple[object, ...], ...]:
        """Run statements as root; return the rows of the last one."""
        connection = pymysql.connect(
            unix_socket=self.socket, user="root", autocommit=True, connect_timeout=PATIENCE_S, ssl_disabled=True
        )
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return cursor.fetchall()
        finally:
            connection.close()

    def url(self, database: str, user: str = "root", password: str = "") -> str:
        account = f"{user}:{password}" if password else user
        return f"mysql://{account}@localhost/{database}?unix_socket={self.socket}"

    def new_database(self) -> str:
        """Create an empty database; return its URL."""
        self._databases += 1
        name = f"redmesh_{os.getpid()}_{self._databases}"
        self.admin(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = url.partition("://")[2].partition("/")[2].partition("?")[0]
        self.admin(f"DROP DATABASE `{name}`", f"DROP DATABASE IF EXISTS `{name}__view`")

    def signal(self, number: int) -> None:
        assert self.process is not None
        if number == signal.SIGSTOP:
            freeze(self.process.pid)
        else:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the server with SIGKILL, like a crash."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def revive(self) -> None:
        """Let the server run again, whatever a test did to it."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.start()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _places(self) -> list[str]:
        # A starting server removes the temporary tables of other servers from a shared tmpdir such as /tmp.
        return [f"--datadir={self._data}", f"--tmpdir={self.directory}"]


def _user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _install(data: Path) -> None:
    """Write the files of a server that has no database yet into ``data``."""
    places = [f"--datadir={data}", f"--tmpdir={data.parent}"]
    words = [INSTALLER, "--no-defaults", *_user(), *places, "--skip-test-db"]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def private_server(small: bool = True) -> Iterator[Server]:
    """Yield a running server; stop it and remove its files at the end. Its path is short, as socket paths must be.

    A ``small`` server starts sooner, and keeps its data in memory if there is room, because creating tables on a busy
    disk takes most of a test's time. Otherwise the server has MariaDB's default sizes, which measurements need.
    """
    directory = str(private_directory("rm-sql-"))
    data = str(private_directory("rm-sql-", _MEMORY)) if small and _has_room() else ""
    server = Server(directory, small, data)
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
        if data:
            shutil.rmtree(data, ignore_errors=True)


def _has_room() -> bool:
    """Return True if /dev/shm has room for a server's data."""
    try:
        memory = os.statvfs(_MEMORY)
    except OSError:
        return False
    return memory.f_bavail * memory.f_frsize > _ROOM_BYTES and os.access(_MEMORY, os.W_OK)
