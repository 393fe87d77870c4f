"""Reports of sections: the lines, the server, and the clients in examples/sections against the real server."""

import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.yodio.yodreport import LONGEST, MOST, MOST_UNKNOWN, Refused, Report, ReportServer, parse
from tests.support.waiting import PATIENCE_S

EXAMPLES = Path(__file__).parents[3] / "examples" / "sections"


class Served:
    """A server in a thread of its own, as a worker has it, and what it was told."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self._poll = select.poll()
        self.server = ReportServer(self._poll, self.reports.append)
        self.environ = self.server.begin("17 b")
        self._stop, self._stopped = socket.socketpair()
        self._poll.register(self._stopped, select.POLLIN)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if not self.server.handle(fd):
                    return

    def send(self, data: bytes) -> bytes:
        host, port = self.server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(4096), b""))

    def close(self) -> None:
        self._stop.close()
        self._thread.join()
        self._stopped.close()
        self.server.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


class Polled(ReportServer):
    """A server whose poll object the test calls."""

    def __init__(self) -> None:
        self.poll = select.poll()
        self.reports: list[Report] = []
        super().__init__(self.poll, self.reports.append)
        self.token = self.begin("17")["REDMESH_TOKEN"].encode()

    def serve(self) -> None:
        """Handle what has arrived."""
        while ready := self.poll.poll(0):
            for fd, _ in ready:
                self.handle(fd)


@pytest.fixture
def server() -> Iterator[Polled]:
    server = Polled()
    yield server
    server.close()


def connected(server: ReportServer) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def test_lines_and_what_is_refused() -> None:
    assert parse(b"t0 started 17 b\r", "t0", "17 b") == Report("started", None, "")
    assert parse(b"t0 progress 17 b 0.42 half of it", "t0", "17 b") == Report("progress", 0.42, "half of it")
    assert parse(b"t0 error 17 b no input", "t0", "17 b") == Report("error", None, "no input")
    for line, told in (
        (b"t1 started 17 b", "token"), (b"", "token"), (b"t0", "second word"), (b"t0 begun 17 b", "second word"),
        (b"t0 started 1", "17 b"), (b"t0 started 17 bc", "17 b"), (b"t0 progress 17 b", "0 to 1"),
        (b"t0 progress 17 b nan x", "0 to 1"), (b"t0 progress 17 b 1.01", "0 to 1"), (b"t0 error 17 b \xff", "ASCII"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=told):
            parse(line, "t0", "17 b")
    with pytest.raises(Refused):
        parse(b" started 17 b", "", "17 b")  # between two sections there is no token


def test_many_lines_on_one_connection_are_all_answered(served: Served) -> None:
    token = served.environ["REDMESH_TOKEN"].encode()
    lines = token + b" started 17 b\n\n" + token + b" progress 17 b 0.5\nnonsense\n" + token + b" finished 17 b"
    answers = served.send(lines).decode().splitlines()
    assert [answer.split(":")[0] for answer in answers] == ["ok", "ok", "refused", "ok"]
    assert [report.kind for report in served.reports] == ["started", "progress", "finished"]


def test_a_line_without_an_end_is_refused_and_the_next_client_served(served: Served) -> None:
    assert b"512 bytes at most" in served.send(b"x" * (LONGEST + 100))
    token = served.environ["REDMESH_TOKEN"].encode()
    assert served.send(token + b" finished 17 b\n") == b"ok\n"


def test_a_program_that_never_pauses_is_read_piece_by_piece(server: Polled) -> None:
    """A call of the server returns, whatever arrives, and so does the end of the section."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                sock.sendall(b"\n" * 65536)
            except OSError:
                return

    with connected(server) as sock:
        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(20):
            for fd, _ in server.poll.poll(PATIENCE_S * 1000):
                assert server.handle(fd)
        server.end()
        stop.set()
        writer.join()


def test_a_call_reads_one_piece_of_what_has_arrived(server: Polled) -> None:
    with connected(server) as sock:
        ((listening, _),) = server.poll.poll(PATIENCE_S * 1000)
        assert server.handle(listening)
        sock.sendall(b"\n" * 32768)  # many pieces, and less than the kernel keeps
        ((fd, _),) = server.poll.poll(PATIENCE_S * 1000)
        assert server.handle(fd)
        assert [ready for ready, _ in server.poll.poll(0)] == [fd], "there is more"


def test_idle_connections_keep_nobody_out(server: Polled) -> None:
    """Whoever has the token is served, and keeps its connection, however many others connect."""
    first, early = connected(server), connected(server)
    first.sendall(server.token + b" started 17\n")
    server.serve()
    early.sendall(server.token + b" progress 17 0.5\n")  # not read yet when its place is wanted
    idle = [connected(server) for _ in range(MOST)]
    server.serve()
    idle += [connected(server) for _ in range(MOST)]
    server.serve()
    with connected(server) as late:
        for sock in (late, first, early):
            sock.sendall(server.token + b" finished 17\n")
            server.serve()
    assert [report.kind for report in server.reports] == ["started", "progress", *["finished"] * 3]
    assert len(server._connections) == MOST_UNKNOWN + 2
    for sock in (first, early, *idle):
        sock.close()


def test_one_section_has_a_limited_number_of_connections(server: Polled) -> None:
    known = []
    for _ in range(MOST):
        known.append(connected(server))
        known[-1].sendall(server.token + b" started 17\n")
        server.serve()
    with connected(server) as another:
        server.serve()
        assert another.recv(4096).startswith(b"refused: 64 connections of this section are open")
    for sock in known:
        sock.close()


def test_a_report_that_the_owner_cannot_take_is_refused() -> None:
    def told(_report: Report) -> None:
        raise Refused("report less often")

    server = ReportServer(select.poll(), told)
    environ = server.begin("17")
    with connected(server) as sock:
        sock.sendall(environ["REDMESH_TOKEN"].encode() + b" started 17\n")
        sock.shutdown(socket.SHUT_WR)
        server.end()
        assert sock.recv(4096) == b"refused: report less often\n"
    server.close()


def test_the_next_section_has_another_token(served: Served) -> None:
    before = served.environ["REDMESH_TOKEN"].encode()
    served.server.begin("18")
    assert served.send(before + b" finished 18\n").startswith(b"refused: this is not the token")
    assert served.reports == []


CLIENTS = {
    "sh": ["bash", "-c", '. "$0/report.sh" && report progress "0.25 from sh" && report error "no input"'],
    "python": [
        sys.executable, "-c",
        "import sys; sys.path.insert(0, sys.argv[1]); from report import report;"
        " report('progress', '0.25 from python'); report('error', 'no input')",
    ],
    "c": ["gcc", "main.c", "report.c"],
    "fortran": ["gfortran", "report.f90", "main.f90", "report.o"],
}  # fmt: skip
C_MAIN = """int report(const char *, const char *);
int main() {return report("progress", "0.25 from c") + report("error", "no input");}
"""
FORTRAN_MAIN = """program main
use section_reports
call report_section("progress", "0.25 from fortran")
call report_section("error", "no input")
end program
"""


@pytest.mark.parametrize("language", CLIENTS)
def test_the_clients_report(served: Served, language: str, tmp_path: Path) -> None:
    words = CLIENTS[language]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    environ = {**served.environ, "PATH": "/usr/bin:/bin"}
    if language in ("c", "fortran"):
        for name in ("report.c", "report.f90"):
            shutil.copy(EXAMPLES / name, tmp_path)
        (tmp_path / "main.c").write_text(C_MAIN)
        (tmp_path / "main.f90").write_text(FORTRAN_MAIN)
        if language == "fortran":
            subprocess.run(["gcc", "-c", "report.c"], cwd=tmp_path, check=True)
        subprocess.run([*words, "-o", "main"], cwd=tmp_path, check=True)
        words = ["./main"]
    done = subprocess.run([*words, str(EXAMPLES)], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [report.kind for report in served.reports] == ["progress", "error"]
    assert served.reports[0] == Report("progress", 0.25, f"from {language}")
    assert served.reports[1].text == "no input"
