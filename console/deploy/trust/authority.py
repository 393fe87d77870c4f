"""The mesh's own certificate authority and keys, on the login processor (docs/security.md).

``STATE/trust/`` has mode 0700, and its files 0600: ``ca.key`` (all accepted generations of keys, the active one first)
and the files that daemons read: ``ca.pem``, ``master.key``, ``login.pem`` (key and certificate of this login
processor's CPAs and RCA), ``beat.key`` (the RCA's). :meth:`Authority.node_files` returns a node's files.

A rotation has three steps, and every node gets its files of a step before the next one begins (:class:`Stage`): no
daemon ever refuses keys that another one still uses, so launches continue.
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

#: Valid node names, for certificates, paths and addresses.
NODE_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?\Z")
LOGIN_ROLES = ("cpa", "rca")


class TrustError(ConsoleError):
    """Unusable keys or certificates."""


class Stage(Enum):
    """The stage of a rotation of keys."""

    SETTLED = "settled"  # one generation
    INTRODUCED = "introduced"  # daemons that have their new files accept the next generation; none uses it yet
    TURNED = "turned"  # the next generation is used, the old one still accepted


#: The next stage, once every node has its files of the present one.
TRANSITIONS = {Stage.SETTLED: Stage.INTRODUCED, Stage.INTRODUCED: Stage.TURNED, Stage.TURNED: Stage.SETTLED}


class _Generation(NamedTuple):
    key: certificates.Key
    certificate: x509.Certificate
    master: bytes

    def as_message(self) -> dict[str, str]:
        """The JSON form."""
        return {
            "key": certificates.key_pem(self.key).decode("ascii"),
            "certificate": certificates.pem_of(self.certificate).decode("ascii"),
            "master": self.master.hex(),
        }


def identity(mesh: str, role: str, name: str) -> str:
    """The URI for an identity in a certificate. Raises TrustError for ambiguous names."""
    if not NODE_NAME.match(name):
        raise TrustError(f"{name[:80]!r} cannot be a node's name", "letters, digits, dots, dashes and underscores can")
    return f"redmesh://{mesh}/{role}/{name}"


def authority(state_dir: str, mesh: str) -> "Authority":
    """The authority of the mesh ``mesh`` with keys in ``state_dir``/trust, created if missing. Raises TrustError."""
    return Authority(state_dir, mesh)


class Authority:
    """A mesh's CA and master key. Every method may be repeated; files are replaced atomically."""

    def __init__(self, state_dir: str, mesh: str) -> None:
        self.directory, self.mesh = os.path.join(state_dir, "trust"), mesh
        #: Revoked login processors that know keys still accepted → whether a new generation was made since.
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

    # Files for others

    def node_files(self, node: str, addresses: Sequence[str]) -> dict[str, bytes]:
        """The files in the trust directory of ``node``, by name; its private key is created here and not stored."""
        return {
            "ca.pem": self.ca_pem,
            "node.pem": self.issue([identity(self.mesh, "pct", node)], addresses),
            "launch.key": keys.as_file([keys.launch_key(g.master, self.mesh, node) for g in self._generations]),
            "beat.key": keys.as_file(
                [keys.beat_key(keys.beat_master(g.master, self.mesh), node) for g in self._generations]
            ),
        }

    def login_files(self, login: str, addresses: Sequence[str]) -> dict[str, bytes]:
        """The files for the CPAs and the RCA of the login processor ``login``."""
        return {
            "ca.pem": self.ca_pem,
            "login.pem": self.issue([identity(self.mesh, role, login) for role in LOGIN_ROLES], addresses),
            "master.key": keys.as_file([g.master for g in self._generations]),
            "beat.key": keys.as_file([keys.beat_master(g.master, self.mesh) for g in self._generations]),
        }

    def equip_login(self, login: str, addresses: Sequence[str], run: str) -> None:
        """Write this login processor's own files, and ``RUN/ca.pem`` for local yods."""
        with self._locked():
            for name, content in self.login_files(login, addresses).items():
                write_private(self._path(name), content)
        public = bool(os.stat(run).st_mode & 0o001)  # system mode
        own_directory(run, public=public)
        write_private(os.path.join(run, "ca.pem"), self.ca_pem)
        if public:
            os.chmod(os.path.join(run, "ca.pem"), 0o644)  # every user's yod verifies nodes with it

    @property
    def ca_pem(self) -> bytes:
        """The certificates of all accepted CAs, the active one first."""
        return b"".join(certificates.pem_of(g.certificate) for g in self._generations)

    @property
    def fingerprints(self) -> list[str]:
        """The SHA-256 fingerprints of the certificates of all accepted CAs."""
        return [certificates.fingerprint(g.certificate) for g in self._generations]

    @property
    def expires_at(self) -> float:
        """When the active CA expires (seconds, UTC)."""
        return self._generations[0].certificate.not_valid_after_utc.timestamp()

    def issue(
        self, identities: Sequence[str], addresses: Sequence[str], lasts_days: float = certificates.LEAF_LASTS
    ) -> bytes:
        """A new private key with its certificate, as one file."""
        key, now = certificates.new_key(), self._generations[0]
        certificate = certificates.daemon(now.certificate, now.key, key, identities, addresses, lasts_days)
        return certificates.key_pem(key) + certificates.pem_of(certificate)

    # Rotation of keys

    def rotate(self, tell: Callable[["Authority"], None]) -> None:
        """Rotate CA and keys; ``tell`` sends every node and this login processor their new files after each step.

        An exception from ``tell`` stops the rotation; the next call continues it, and first sends all files again. The
        rotation is repeated if a revoked login processor may know the new keys.
        """
        if self.stage is Stage.SETTLED:
            self._step()
        while True:
            tell(self)
            if self.stage is Stage.SETTLED and not self.revoked:
                return
            self._step()

    def distrust(self, login: str) -> None:
        """Record that ``login`` is revoked: a rotation is complete only when all keys were made after this call."""
        if login not in self.revoked:
            with self._locked():
                self.revoked = {**self.revoked, login: False}
                self._write(self._generations, self.stage)

    def absolve(self, login: str) -> None:
        """Undo :meth:`distrust`, because ``login`` was not a login processor."""
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

    # Files

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
        # ca.key is the source, replaced atomically; the other files are derived for daemons.
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
    """Replace the file at ``path`` atomically; the new file has mode 0600 from its creation on. Raises OSError."""
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
