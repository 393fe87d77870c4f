"""OpenSSH's known_hosts files, parsed as OpenSSH does. No network, no paramiko."""

import base64
import enum
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Verdict(enum.Enum):
    """The result of checking a host's key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"  # the files have another key for this host
    REVOKED = "revoked"


class Pin(NamedTuple):
    """A line of a file."""

    names: str
    kind: str
    key: str  # base64
    marker: str
    place: str  # file:line


class KnownHosts:
    """The keys in ``paths``; missing files have none. ``unreadable`` names a file that is there and cannot be read.

    Lines marked ``@cert-authority`` are ignored, because host certificates are not supported.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._exact: dict[str, list[Pin]] = {}
        self._patterns: list[Pin] = []
        self._hashed: list[Pin] = []
        self._revoked: dict[str, str] = {}
        self.unreadable = ""
        for path in paths:
            try:
                for pin in _read(path):
                    self._take(pin)
            except OSError as error:
                self.unreadable = f"{path} ({error.strerror})"

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
        """The keys of a host, by the name from :func:`pin_name`."""
        found = list(self._exact.get(name.lower(), ()))
        found += [pin for pin in self._patterns if _matches(pin.names, name)]
        return found + [pin for pin in self._hashed if _is_hash_of(pin.names, name)]

    def check(self, names: Sequence[str], key: bytes) -> tuple[Verdict, str]:
        """Check ``key`` (the public blob) for the first of ``names`` that is known; return also the place (file:line).

        A key of another type than the known ones counts as changed: a man in the middle could offer such a key.
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
        """The types of the host's known keys: the connection requests one of these."""
        for name in names:
            if pins := self.of(name):
                return [pin.kind for pin in pins]
        return []

    def add(self, path: str, name: str, kind: str, key: bytes, *, hashed: bool = False) -> None:
        """Add a key, in memory and to the file ``path`` (created with mode 0600). Raises OSError."""
        text = base64.b64encode(key).decode()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        line = f"{_hash(name) if hashed else name} {kind} {text}\n"
        # A single write, so that two commands that add keys at the same time do not mix their lines.
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
    """The name of a host in known_hosts files."""
    return host if port == 22 else f"[{host}]:{port}"


def fingerprint(key: bytes) -> str:
    """The fingerprint as shown by ssh and ssh-keygen."""
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
        # In OpenSSH's patterns, brackets are plain characters.
        plain = pattern.lstrip("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name.lower(), plain):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _is_hash_of(text: str, name: str) -> bool:
    _, _, salt, _ = (text + "|||").split("|", 3)
    try:
        return hmac.compare_digest(_hash(name, base64.b64decode(salt)).encode(), text.encode())
    except ValueError:
        return False


def _hash(name: str, salt: bytes = b"") -> str:
    salt = salt or os.urandom(20)
    digest = hmac.new(salt, name.lower().encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
