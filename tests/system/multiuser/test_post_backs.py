"""Post-backs in system mode: to a user's own private sockets, here and on a node, and to nobody else's."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from db.store.store import open_store
from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import python_for_others
from tests.support.system_mesh import USERS, SystemMesh
from tests.support.waiting import wait_until

PORT = 8443  # of the login processor's own network namespace
ADA, BOB = USERS["ada"], USERS["bob"]

#: ``PATH MODE``: listens there, and prints a line for every connection with the peer's uid, and for every post-back.
LISTENER = """
import json, os, socket, struct, sys, threading
path, mode = sys.argv[1], int(sys.argv[2], 8)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, mode)
listener.listen(8)
def frame(told):
    data = json.dumps(told).encode()
    return struct.pack("!BI", 0, len(data)) + data
def serve(sock):
    uid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    print(json.dumps({"uid": uid}), flush=True)
    stream = sock.makefile("rb")
    sock.sendall(frame({"op": "hello", "protocol": int(sys.argv[3]), "role": "launcher", "name": ""}))
    while len(head := stream.read(5)) == 5:
        message = json.loads(stream.read(struct.unpack("!BI", head)[1]))
        if message["op"] == "post_back":
            print(json.dumps(message["post_back"]), flush=True)
            sock.sendall(frame({"re": message["id"]}))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""
#: ``CPA PLACE …``: asks for a processor for each place, prints the answers, and stays until its standard input ends.
REQUESTER = """
import json, os, sys
from agents.link.client import Client
from agents.linux.processes import start_time
from agents.wire.errors import AgentError
whose = {"login": sys.argv[2], "pid": os.getpid(), "pid_started": start_time(os.getpid()), "command": "a job"}
with Client(sys.argv[1], "launcher") as cpa:
    for place in sys.argv[3:]:
        uuid = os.urandom(16).hex()
        try:
            cpa.call({"op": "request", "uuid": uuid, "count": 1, "post_back": place, **whose})
            print(uuid, flush=True)
        except AgentError as error:
            print(error.code, error.message, flush=True)
    sys.stdin.read()
"""
SITE = """
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print("listening", flush=True)
server.serve_forever()
"""


class Started:
    """A process and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[Any], output: Path) -> None:
        self._process, self._output = process, output

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    @property
    def post_backs(self) -> list[dict[str, Any]]:
        return [one for one in self.told if "post_back" in one]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[SystemMesh]:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    hosts = netns_hosts(2, users=("ada", "bob"))
    certificate = hosts.directory / "site.pem"
    made = SystemMesh(hosts, sql_server, 8, post_back_ca=str(certificate))
    site = made.site.read_text()
    made.site.write_text(f'post_back_urls = ["https://127.0.0.1:{PORT}"]\n{site}')
    write_certificate(certificate)
    with while_up(made):
        yield made


def write_certificate(path: Path) -> None:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(
        key.private_bytes(pem, plain, serialization.NoEncryption()) + made.public_bytes(serialization.Encoding.PEM)
    )


@pytest.fixture
def start(mesh: SystemMesh, tmp_path: Path) -> Iterator[Any]:
    """Starts a script as a user (root: ""), on the login processor or as a rank on h1, and ends it."""
    started: list[Started] = []

    def begin(user: str, script: str, *words: str, on: str = "", ready: str = "listening") -> Started:
        output = tmp_path / str(len(started))
        launch = ["yod", "-sz", "1", "-list", on, "/usr/bin/python3"] if on else ["python"]
        with output.open("wb") as file:
            options: dict[str, Any] = {"stdout": file, "stdin": subprocess.PIPE}
            command = [*launch, "-c", script, *words]
            process = mesh.start_as(user, *command, **options) if user else mesh.start(*command, **options)
        started.append(one := Started(process, output))
        if ready:
            wait_until(lambda: ready in one.lines, f"{words[:1]} listens")
        return one

    yield begin
    for one in started:
        one.end()


def ask(mesh: SystemMesh, start: Any, user: str, *places: str) -> list[str]:
    """Ask for a processor for each place, and return the answers: uuids, or the code and the reason."""
    one = start(user, REQUESTER, f"{mesh.run_dir}/cpa-0.sock", login_of(mesh), *places, ready="")
    return list(wait_until(lambda: len(one.lines) == len(places) and one.lines, "the CPA answers"))


def login_of(mesh: SystemMesh) -> str:
    return (mesh.run_dir / "login").read_text().strip()


def protocol() -> str:
    from agents.wire.messages import hello

    return str(hello("launcher")["protocol"])


def test_a_users_own_private_sockets_and_the_sites_urls(mesh: SystemMesh, start: Any) -> None:
    """In a directory of mode 0700, by a socket of mode 0600: the daemons become the user to get there."""
    here, there = f"{mesh.home}/ada/grants.sock", "/home/ada/grants.sock"
    on_login = start("ada", LISTENER, here, "600", protocol())
    on_node = start("ada", LISTENER, there, "600", protocol(), on="h1")
    site = start("", SITE, str(PORT), str(mesh.hosts.directory / "site.pem"))
    url = f"https://127.0.0.1:{PORT}/grants"
    *uuids, refused = ask(
        mesh, start, "ada", f"unix:{here}", f"node:h1:{there}", url, f"https://127.0.0.1:{PORT + 1}/grants"
    )
    assert refused == f"denied request: https://127.0.0.1:{PORT + 1} is not in post_back_urls of this mesh"
    for receiver, uuid in zip((on_login, on_node, site), uuids, strict=True):
        [told] = wait_until(lambda one=receiver: one.post_backs, "the grant arrives")
        assert (told["post_back"], told["missing"], len(told["placed"])) == (uuid, 0, 1)
    assert on_login.told[0] == {"uid": ADA} and on_node.told[0] == {"uid": ADA}, "its peer is the user"
    assert "cookie" not in site.post_backs[0]["placed"][0], "a URL gets no secret"


def test_nobody_elses_sockets_are_opened(mesh: SystemMesh, start: Any) -> None:
    """The daemons are root; what they open for a user is only what the user could open."""
    bobs, roots, everybodys = f"{mesh.home}/bob/own.sock", f"{mesh.home}/root.sock", f"{mesh.home}/all.sock"
    on_node = "/home/bob/own.sock"
    listeners = [
        start("bob", LISTENER, bobs, "600", protocol()),
        start("", LISTENER, roots, "600", protocol()),
        start("bob", LISTENER, on_node, "600", protocol(), on="h2"),
    ]
    open_to_all = start("", LISTENER, everybodys, "666", protocol())
    places = [f"unix:{bobs}", f"unix:{roots}", f"node:h2:{on_node}", f"unix:{everybodys}"]
    assert all(len(uuid) == 32 for uuid in ask(mesh, start, "ada", *places))

    def said(place: str) -> str:
        with open_store(mesh.database) as store:
            rows = store.read("SELECT text FROM event WHERE kind = 'post_back_failed'")
        return next((text for (text,) in rows if place in text), "")

    for place in places:
        wait_until(lambda place=place: said(place), "the processors return")
    for place in places[:3]:
        assert said(place).endswith("Permission denied"), said(place)
    assert said(places[3]).endswith(f"belongs to uid 0, not to uid {ADA}"), said(places[3])
    assert [one.told for one in listeners] == [[], [], []], "nobody has connected"
    assert {one["uid"] for one in open_to_all.told} == {ADA}, "everybody may connect, but root has not"
