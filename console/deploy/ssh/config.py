"""Determines how OpenSSH would connect to a host, from ``~/.ssh/config`` and ``/etc/ssh/ssh_config``.

The files are read here, and ``ssh -G`` is asked (console/deploy/ssh/openssh.py) where they hold ``Match`` or anything
else that paramiko does not read as OpenSSH does. Asking it for every host would start a process for each: 363 ms for 32
hosts against 2 ms, measured by ``python -m tests.bench.handwork``.
"""

import getpass
import glob
import os
import re
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from console.deploy.hosts.description import Host
from console.deploy.ssh import openssh
from console.errors import ConsoleError

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
#: The depth limit of files that include each other.
_DEEPEST = 16
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
DEFAULT_PINS = ("known_hosts", "known_hosts2")
GLOBAL_PINS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
#: The criteria of ``Match`` that paramiko reads as OpenSSH does, without and with an argument. It takes others as met.
_BARE_CRITERIA, _CRITERIA = ("all", "canonical", "final"), ("host", "originalhost", "user", "localuser")


class Route(NamedTuple):
    """The parameters of an SSH connection."""

    host: str
    port: int
    user: str
    keys: tuple[str, ...]
    keys_only: bool
    agent: bool
    pins: tuple[str, ...]  # known_hosts files
    pin_to: str  # the user's known_hosts file to which keys are added; "" if there is none
    pin_as: str  # the name for the host's key, if it differs from ``host``
    pins_hashed: bool
    accepts_new: bool  # keys of hosts that have none; no other value of StrictHostKeyChecking loosens the check
    jumps: tuple[str, ...]
    command: str  # ProxyCommand

    @property
    def where(self) -> str:
        """The route as text for messages: ``user@host port N``."""
        return f"{self.user}@{self.host}" + (f" port {self.port}" if self.port != 22 else "")


class SshConfig:
    """The configuration files, read once; ``path`` replaces both. Raises ConsoleError if ``path`` cannot be read.

    ``notes`` has a line for whatever was left out because it cannot be read.
    """

    def __init__(self, path: str = "") -> None:
        from console.deploy.ssh.library import paramiko

        self._user_file = path or os.path.expanduser("~/.ssh/config")
        self._path = path
        self._config = paramiko.SSHConfig()
        self._lock = threading.Lock()  # a look-up may fill caches
        self._openssh: openssh.OpenSsh | None = None
        self.notes: list[str] = []
        # Each file is parsed by itself, because an open block (Host …) must not continue in the next file.
        files = [_File(one, needed=bool(path)) for one in ([path] if path else [self._user_file, SYSTEM_CONFIG])]
        if not all(file.is_plain and _parses(file.texts) for file in files):
            self._openssh = self._find()
        if self._openssh is None:
            for file in files:
                self._config.parse(file.readable())
        self.notes += [note for file in files for note in file.notes]

    def _find(self) -> openssh.OpenSsh | None:
        return openssh.find(self._path, self._user_file, SYSTEM_CONFIG)

    def route(self, host: Host) -> Route:
        """The route to a host of the mesh."""
        return self.route_to(host.address, host.port, host.user)

    def route_to(self, name: str, port: int = 0, user: str = "") -> Route:
        """The route to ``name``; arguments have priority over the files. Raises ConsoleError."""
        for what, value in (("host", name), ("account", user)):
            _refuse_dash(what, value, name)
        found = self._found(name, port, user)
        jump = _first(found, "proxyjump", "none")
        own = _files(_first(found, "userknownhostsfile", " ".join(f"~/.ssh/{one}" for one in DEFAULT_PINS)))
        told = _first(found, "port", "22")
        if not port and not (told.isdecimal() and 0 < int(told) < 65_536):
            raise ConsoleError(f"~/.ssh/config, for {name}: the port {told!r} is not a number from 1 to 65535")
        route = Route(
            host=_first(found, "hostname", name),
            port=port or int(told),
            user=user or _first(found, "user", "") or _own_name(),
            keys=tuple(_key_files(found)),
            keys_only=_first(found, "identitiesonly", "no").lower() == "yes",
            agent=_first(found, "identityagent", "SSH_AUTH_SOCK") != "none",
            pins=(*own, *_files(_first(found, "globalknownhostsfile", GLOBAL_PINS))),
            pin_to=own[0] if own else "",
            pin_as=_first(found, "hostkeyalias", ""),
            pins_hashed=_first(found, "hashknownhosts", "no").lower() == "yes",
            accepts_new=_first(found, "stricthostkeychecking", "yes").lower() == "accept-new",
            jumps=() if jump.lower() == "none" else tuple(part.strip() for part in jump.split(",")),
            command=_first(found, "proxycommand", "") if jump.lower() == "none" else "",
        )
        for what, value in (("host", route.host), ("account", route.user)):
            _refuse_dash(what, value, name)
        return route

    def _found(self, name: str, port: int, user: str) -> Mapping[str, Sequence[str]]:
        """The values of each keyword, in lower case."""
        if self._openssh is None:
            try:
                with self._lock:
                    found = self._config.lookup(name)
                values = {key: [value] if isinstance(value, str) else value for key, value in found.items() if value}
                if not _has_tokens(values):
                    return values
                by_ssh = self._find()
                return by_ssh.ask(name, port, user) if by_ssh else openssh.expanded(name, values, port, user)
            except ConsoleError:
                raise
            except Exception as error:  # for example an unknown token, or CanonicalizeHostname without domains
                self._openssh = self._find()
                if self._openssh is None:
                    raise ConsoleError(f"~/.ssh/config, for {name}: {error}", "ssh_config names another file") from None
        return self._openssh.ask(name, port, user)


def _has_tokens(found: Mapping[str, Sequence[str]]) -> bool:
    """True if a file of ours has a token in its name that paramiko does not know: it leaves it as it is."""
    return any(re.search(r"%\S|\$\{", value) for key in openssh.FILES for value in found.get(key, ()))


def _refuse_dash(what: str, value: str, name: str) -> None:
    if value.startswith("-"):  # a command, such as a ProxyCommand, would take it for an option
        raise ConsoleError(f"{name}: {value!r} is not the name of {'a host' if what == 'host' else 'an account'}")


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        told = f"this user (uid {os.getuid()}) has no account here, so the one on the hosts is unknown"
        raise ConsoleError(told, "`user` in mesh.toml names it") from None


def _first(found: Mapping[str, Sequence[str]], key: str, default: str) -> str:
    return found[key][0] if found.get(key) else default


def _files(text: str) -> list[str]:
    """The paths of a value. ``ssh -G``, and paramiko if there is one path, print paths with blanks without quotes."""
    try:
        paths = shlex.split(text) if '"' in text else re.split(r"\s+(?=[/~])", text)
    except ValueError:  # a quotation mark that is not closed
        paths = text.split()
    if any(not path.startswith(("/", "~")) for path in paths) and '"' not in text:
        paths = text.split()
    return [os.path.expanduser(path) for path in paths if path not in ("none", "/dev/null")]


def _key_files(found: Mapping[str, Sequence[str]]) -> list[str]:
    named = [os.path.expanduser(one) for one in found.get("identityfile", ())]
    if named == ["none"]:
        return []
    return named or [os.path.expanduser(f"~/.ssh/{name}") for name in DEFAULT_KEYS]


class _Line(NamedTuple):
    """A line of a file, and its place for messages (file:line)."""

    text: str
    place: str

    @property
    def keyword(self) -> str:
        found = re.match(r"\s*(\w+)", self.text)
        return found[1].lower() if found else ""

    @property
    def value(self) -> str:
        return re.sub(r"^\s*\w+[\s=]*", "", self.text).strip()


class _File:
    """The lines of a configuration file with those of included files, which paramiko does not read.

    ``is_plain`` is false if OpenSSH may understand them otherwise than paramiko. A file that does not exist has no
    lines; if it is ``needed``, and cannot be read, ConsoleError is raised.
    """

    def __init__(self, path: str, *, needed: bool) -> None:
        self.notes: list[str] = []
        self.is_plain = True
        self._has_loop = False
        try:
            self._lines = list(self._read(path, 0))
        except OSError as error:
            if needed:
                raise ConsoleError(f"ssh_config {path}: {error.strerror}") from None
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                self.notes.append(f"{path} is left out: {error.strerror}")
            self._lines = []

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self._lines]

    def _read(self, path: str, depth: int) -> Iterator[_Line]:
        block = everywhere = _Line("Host *", path)
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, 1):
                line = _Line(text, f"{path}:{number}")
                if line.keyword in ("host", "match"):
                    block = everywhere if line.keyword == "host" and line.value == "*" else line
                    self.is_plain = self.is_plain and line.keyword == "host"
                if line.keyword == "include" and block is everywhere and not self._is_too_deep(depth + 1):
                    yield from self._included(line, path, depth + 1)
                    yield block
                else:  # paramiko passes over an Include
                    self.is_plain = self.is_plain and line.keyword != "include"
                    yield line

    def _is_too_deep(self, depth: int) -> bool:
        # Once for all: files that include each other several times would be read without end.
        self._has_loop = self._has_loop or depth > _DEEPEST
        return self._has_loop

    def _included(self, line: _Line, path: str, depth: int) -> Iterator[_Line]:
        for pattern in line.value.replace('"', "").split():
            for name in sorted(glob.glob(_beside(path, pattern))):
                try:
                    yield from self._read(name, depth)
                except IsADirectoryError:
                    pass  # as OpenSSH does
                except OSError as error:
                    self.notes.append(f"{name} is left out: {error.strerror}")

    def readable(self) -> list[str]:
        """The lines that paramiko reads as OpenSSH does; ``notes`` gets a line for each other one.

        Nothing of a block is kept if its first line cannot be read: it would be taken for hosts that it is not for.
        """
        if self.is_plain and _parses(self.texts):
            return self.texts
        kept: list[str] = []
        in_block = True
        for line in self._lines:
            heads = line.keyword in ("host", "match")
            is_read = (
                line.keyword != "include"
                and _parses([line.text])
                and (line.keyword != "match" or _has_known_criteria(line.value))
            )
            if heads:
                in_block = is_read
            if is_read and in_block:
                kept.append(line.text)
            elif not is_read and (heads or in_block):
                self.notes.append(
                    f"{line.place} cannot be read without OpenSSH's ssh: {line.text.strip()!r}"
                    f"{' and what follows it' if heads else ''} is left out"
                )
        return kept


def _parses(texts: Sequence[str]) -> bool:
    """Whether paramiko accepts these lines."""
    from console.deploy.ssh.library import paramiko

    try:
        paramiko.SSHConfig().parse(texts)
    except (paramiko.SSHException, ValueError):  # ValueError: quotation marks of a Match that are not closed
        return False
    return True


def _has_known_criteria(value: str) -> bool:
    words = iter(shlex.split(value))
    for word in words:
        criterion = word.removeprefix("!")
        if criterion not in _BARE_CRITERIA and (criterion not in _CRITERIA or next(words, None) is None):
            return False
    return True


def _beside(path: str, pattern: str) -> str:
    pattern = os.path.expanduser(pattern)
    home = "/etc/ssh" if path.startswith("/etc/") else os.path.expanduser("~/.ssh")
    return pattern if pattern.startswith("/") else os.path.join(home, pattern)
