"""Host keys that are pinned: OpenSSH's known_hosts files, read as OpenSSH reads them. No network, no paramiko."""

import base64
import enum
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Verdict(enum.Enum):
    """What the files say of a key that a host has shown."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"  # they have another key of this host
    REVOKED = "revoked"


class Pin(NamedTuple):
    """One line of a file."""

    names: str
    kind: str
    key: str  # base64
    marker: str
    place: str  # file:line


class KnownHosts:
    """The pins in ``paths``; files that do not exist hold none.

    Lines marked ``@cert-authority`` count for nothing, for host certificates are not asked for.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._exact: dict[str, list[Pin]] = {}
        self._patterns: list[Pin] = []
        self._hashed: list[Pin] = []
        self._revoked: dict[str, str] = {}
        for path in paths:
            for pin in _read(path):
                self._take(pin)

    def _take(self, pin: Pin) -> None:
        if pin.marker == "@revoked":
            self._revoked[pin.key] = pin.place
        elif pin.marker:
            return
        elif pin.names.startswith("|1|"):
            self._hashed.append(pin)
        elif any(char in pin.names for char in "*?!"):
            self._patterns.append(pin)
        else:
            for name in pin.names.split(","):
                self._exact.setdefault(name.lower(), []).append(pin)

    def of(self, name: str) -> list[Pin]:
        """The pins of a host, by the name that :func:`pin_name` gives it."""
        found = list(self._exact.get(name.lower(), ()))
        found += [pin for pin in self._patterns if _matches(pin.names, name)]
        return found + [pin for pin in self._hashed if _is_hash_of(pin.names, name)]

    def check(self, names: Sequence[str], key: bytes) -> tuple[Verdict, str]:
        """What is known of ``key`` (the public blob) at a host under the first of ``names`` that is known, and where.

        A key of another type than those pinned counts as changed: whoever stands between us and the host could
        offer one.
        """
        text = base64.b64encode(key).decode()
        if text in self._revoked:
            return Verdict.REVOKED, self._revoked[text]
        for name in names:
            pins = self.of(name)
            for pin in pins:
                if pin.key == text:
                    return Verdict.KNOWN, pin.place
            if pins:
                return Verdict.CHANGED, pins[0].place
        return Verdict.UNKNOWN, ""

    def kinds(self, names: Sequence[str]) -> list[str]:
        """The types of key that are pinned for a host, so that it is asked for one of them."""
        for name in names:
            if pins := self.of(name):
                return [pin.kind for pin in pins]
        return []

    def add(self, path: str, name: str, kind: str, key: bytes, *, hashed: bool = False) -> None:
        """Pin a key, for us and in the file ``path`` (made when missing, mode 0600). OSError."""
        text = base64.b64encode(key).decode()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        line = f"{_hash(name) if hashed else name} {kind} {text}\n"
        # one write, so that two commands that pin at once do not mix their lines
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = "\n" + line
            os.write(fd, line.encode())
        finally:
            os.close(fd)
        self._exact.setdefault(name.lower(), []).append(Pin(name, kind, text, "", path))


def pin_name(host: str, port: int) -> str:
    """How known_hosts files call a host."""
    return host if port == 22 else f"[{host}]:{port}"


def fingerprint(key: bytes) -> str:
    """The fingerprint that ssh and ssh-keygen show."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _read(path: str) -> Iterator[Pin]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                marker = words.pop(0) if words and words[0].startswith("@") else ""
                if len(words) >= 3 and not words[0].startswith("#"):
                    yield Pin(words[0], words[1], words[2], marker, f"{path}:{number}")
    except (FileNotFoundError, NotADirectoryError):
        return


def _matches(patterns: str, name: str) -> bool:
    found = False
    for pattern in patterns.lower().split(","):
        # in OpenSSH's patterns brackets are plain characters
        plain = pattern.lstrip("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name.lower(), plain):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _is_hash_of(text: str, name: str) -> bool:
    _, _, salt, _ = (text + "|||").split("|", 3)
    try:
        return hmac.compare_digest(_hash(name, base64.b64decode(salt)), text)
    except ValueError:
        return False


def _hash(name: str, salt: bytes = b"") -> str:
    salt = salt or os.urandom(20)
    digest = hmac.new(salt, name.lower().encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
