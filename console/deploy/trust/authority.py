"""The mesh's own certificate authority and keys, on the login processor (docs/security.md).

``STATE/trust/``, 0700, every file 0600 from its first byte: ``ca.key`` (all generations that are accepted, the one in
force first) and what daemons read of it: ``ca.pem``, ``master.key``, ``login.pem`` (what this login processor's CPAs
and RCA show: key and certificate), ``beat.key`` (the RCA's). What a node gets, :meth:`Authority.node_files` says.

Keys change in three steps, each told to every node before the next (:class:`Stage`): at no moment does anybody refuse
what another still shows, so launches go on.
"""

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from cryptography import x509

from agents.link.sockets import own_directory
from agents.wire import keys
from agents.wire.errors import AgentError
from console.deploy.trust import certificates
from console.errors import ConsoleError

#: Names of nodes as they may stand in a certificate, a path and an address.
NODE_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?\Z")
LOGIN_ROLES = ("cpa", "rca")


class TrustError(ConsoleError):
    """Keys or certificates that cannot be used."""


class Stage(Enum):
    """How far a change of keys is."""

    SETTLED = "settled"  # one generation
    INTRODUCED = "introduced"  # the next one is accepted by whoever has been told, and used by nobody
    TURNED = "turned"  # the next one is used, the former still accepted


#: What follows what, when every node has been told.
TRANSITIONS = {Stage.SETTLED: Stage.INTRODUCED, Stage.INTRODUCED: Stage.TURNED, Stage.TURNED: Stage.SETTLED}


class _Generation(NamedTuple):
    key: certificates.Key
    certificate: x509.Certificate
    master: bytes

    def as_message(self) -> dict[str, str]:
        """It as JSON has it."""
        return {
            "key": certificates.key_pem(self.key).decode("ascii"),
            "certificate": certificates.pem_of(self.certificate).decode("ascii"),
            "master": self.master.hex(),
        }


def identity(mesh: str, role: str, name: str) -> str:
    """The URI that a certificate says somebody is. TrustError for names that could be read as something else."""
    if not NODE_NAME.match(name):
        raise TrustError(f"{name[:80]!r} cannot be a node's name", "letters, digits, dots, dashes and underscores can")
    return f"redmesh://{mesh}/{role}/{name}"


def authority(state_dir: str, mesh: str) -> "Authority":
    """The authority of the mesh ``mesh``, whose keys are in ``state_dir``/trust; made when missing. TrustError."""
    return Authority(state_dir, mesh)


class Authority:
    """A mesh's CA and master key. Every method may be called again; files are replaced whole."""

    def __init__(self, state_dir: str, mesh: str) -> None:
        self.directory, self.mesh = os.path.join(state_dir, "trust"), mesh
        #: Login processors that were revoked and know keys that are accepted; whether the next ones were made since.
        self.revoked: dict[str, bool] = {}
        try:
            own_directory(state_dir)
            own_directory(self.directory)
            with self._locked():
                if not os.path.exists(self._path("ca.key")):
                    self._write([_new_generation(mesh)], Stage.SETTLED)
                self._generations, self.stage = self._read()
        except AgentError as error:
            raise TrustError(error.message, error.hint) from None
        except OSError as error:
            raise TrustError(f"{error.filename or self.directory}: {error.strerror}") from None

    # what others get

    def node_files(self, node: str, addresses: Sequence[str]) -> dict[str, bytes]:
        """What stands in the trust directory of ``node``, by name; its key is made here and kept nowhere."""
        return {
            "ca.pem": self.ca_pem,
            "node.pem": self.issue([identity(self.mesh, "pct", node)], addresses),
            "launch.key": keys.as_file([keys.launch_key(g.master, self.mesh, node) for g in self._generations]),
            "beat.key": keys.as_file(
                [keys.beat_key(keys.beat_master(g.master, self.mesh), node) for g in self._generations]
            ),
        }

    def login_files(self, login: str, addresses: Sequence[str]) -> dict[str, bytes]:
        """What the CPAs and the RCA of the login processor ``login`` read."""
        return {
            "ca.pem": self.ca_pem,
            "login.pem": self.issue([identity(self.mesh, role, login) for role in LOGIN_ROLES], addresses),
            "master.key": keys.as_file([g.master for g in self._generations]),
            "beat.key": keys.as_file([keys.beat_master(g.master, self.mesh) for g in self._generations]),
        }

    def equip_login(self, login: str, addresses: Sequence[str], run: str) -> None:
        """Write this login processor's own files, and ``RUN/ca.pem`` for the yods that run here."""
        with self._locked():
            for name, content in self.login_files(login, addresses).items():
                write_private(self._path(name), content)
        public = bool(os.stat(run).st_mode & 0o001)  # system mode
        own_directory(run, public=public)
        write_private(os.path.join(run, "ca.pem"), self.ca_pem)
        if public:
            os.chmod(os.path.join(run, "ca.pem"), 0o644)  # every user's yod checks nodes by it

    @property
    def ca_pem(self) -> bytes:
        """The certificates of every CA that is accepted, the one in force first."""
        return b"".join(certificates.pem_of(g.certificate) for g in self._generations)

    @property
    def fingerprints(self) -> list[str]:
        """SHA-256 of each of them."""
        return [certificates.fingerprint(g.certificate) for g in self._generations]

    @property
    def expires_at(self) -> float:
        """When the CA in force runs out (seconds, UTC)."""
        return self._generations[0].certificate.not_valid_after_utc.timestamp()

    def issue(
        self, identities: Sequence[str], addresses: Sequence[str], lasts_days: float = certificates.LEAF_LASTS
    ) -> bytes:
        """A new key, and its certificate behind it, as one file."""
        key, now = certificates.new_key(), self._generations[0]
        certificate = certificates.daemon(now.certificate, now.key, key, identities, addresses, lasts_days)
        return certificates.key_pem(key) + certificates.pem_of(certificate)

    # a change of keys

    def rotate(self, tell: Callable[["Authority"], None]) -> None:
        """Change CA and keys; ``tell`` gives every node and login processor its new files, after each step.

        What ``tell`` raises ends it where it is; the next call goes on from there: first everybody is told again. Once
        more where somebody was revoked who may know those that come into force by this.
        """
        if self.stage is Stage.SETTLED:
            self._step()
        while True:
            tell(self)
            if self.stage is Stage.SETTLED and not self.revoked:
                return
            self._step()

    def distrust(self, login: str) -> None:
        """What ``login`` knows is to be of no use: a change of keys is not over before all of them were made since."""
        if login not in self.revoked:
            with self._locked():
                self.revoked = {**self.revoked, login: False}
                self._write(self._generations, self.stage)

    def absolve(self, login: str) -> None:
        """It was not a login processor."""
        with self._locked():
            self.revoked = {name: since for name, since in self.revoked.items() if name != login}
            self._write(self._generations, self.stage)

    def _step(self) -> None:
        following = TRANSITIONS[self.stage]
        with self._locked():
            now = self._generations
            if following is Stage.INTRODUCED:
                now = [now[0], _new_generation(self.mesh)]
                self.revoked = dict.fromkeys(self.revoked, True)
            elif following is Stage.TURNED:
                now = [now[1], now[0]]
            else:
                now = now[:1]
                self.revoked = {name: False for name, since in self.revoked.items() if not since}
            self._write(now, following)
            self._generations, self.stage = now, following

    # files

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _write(self, generations: Sequence[_Generation], stage: Stage) -> None:
        # ca.key is the truth, replaced at one stroke; the others are what daemons read of it
        made = [generation.as_message() for generation in generations]
        whole = {"stage": stage.value, "revoked": self.revoked, "generations": made}
        write_private(self._path("ca.key"), json.dumps(whole, indent=1).encode("ascii") + b"\n")
        write_private(self._path("master.key"), keys.as_file([g.master for g in generations]))
        write_private(self._path("ca.pem"), b"".join(certificates.pem_of(g.certificate) for g in generations))

    def _read(self) -> tuple[list[_Generation], Stage]:
        try:
            with open(self._path("ca.key"), "rb") as file:
                whole = json.load(file)
            self.revoked = {str(name): bool(since) for name, since in whole.get("revoked", {}).items()}
            return [_generation(entry) for entry in whole["generations"]], Stage(whole["stage"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "mesh down, move that directory away, mesh up: every node gets new files"
            raise TrustError(f"the keys in {self.directory} cannot be used: {error}", hint) from None


def _new_generation(mesh: str) -> _Generation:
    key = certificates.new_key()
    return _Generation(key, certificates.authority(mesh, key), secrets.token_bytes(keys.SIZE))


def _generation(entry: Mapping[str, str]) -> _Generation:
    key = certificates.read_key(entry["key"].encode("ascii"))
    (certificate,) = certificates.read_certificates(entry["certificate"].encode("ascii"))
    if key.public_key() != certificate.public_key():
        raise ValueError("a key and its certificate do not belong together")
    return _Generation(key, certificate, bytes.fromhex(entry["master"]))


def write_private(path: str, content: bytes) -> None:
    """Replace the file at ``path`` as a whole, 0600 from its first byte. OSError."""
    temporary = f"{path}.{secrets.token_hex(4)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
