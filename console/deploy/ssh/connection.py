"""Connections over SSH, by paramiko, which only this module and console/deploy/ssh/config.py use.

The host's key is checked before authentication: it must be in OpenSSH's known_hosts files, otherwise the host is
refused with the key's fingerprint. Authentication is by key: first those of ssh-agent, then the files in ~/.ssh/config.
"""

import base64
import logging
import os
import shlex
import socket
import subprocess
import threading
import time
from typing import Any

from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import HostFailed
from console.deploy.ssh import known_hosts
from console.deploy.ssh.config import Route, SshConfig
from console.deploy.ssh.library import paramiko

# paramiko logs tracebacks of its threads; its errors are also raised as exceptions, so the log is discarded.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False

#: An sshd with many simultaneous connections drops some (MaxStartups): seconds before each retry.
AGAIN_S = (0.1, 0.3, 0.9)
#: Seconds in which ssh-agent must list its keys, to be used at all.
AGENT_S = 5.0
#: The most jump hosts of one route.
_DEEPEST = 8
#: Messages of ssh-agent's protocol (draft-ietf-sshm-ssh-agent): the request of its keys, and the type of the answer.
_LIST_KEYS, _KEYS = b"\0\0\0\1\x0b", b"\x0c"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class _Dropped(Exception):
    """The sshd closed the connection before authentication, perhaps because it is busy."""


class Ssh:
    """Connects to hosts as OpenSSH would; thread-safe.

    ``accept_new`` stores the keys of unknown hosts, as ``StrictHostKeyChecking accept-new`` does.
    """

    def __init__(self, config: SshConfig, timeout_s: float, *, accept_new: bool = False) -> None:
        self._config, self._timeout_s, self._accept_new = config, timeout_s, accept_new
        self._lock = threading.Lock()
        self._pins: dict[tuple[str, ...], known_hosts.KnownHosts] = {}
        self._keys: dict[str, Any] = {}
        self._jumps: dict[str, _Jump] = {}
        self._agent_lock = threading.Lock()
        self._no_agent: str | None = None

    def connect(self, host: Host) -> "Connection":
        """Return an authenticated connection to ``host``. Raises HostFailed; ConsoleError for its configuration."""
        route = self._config.route(host)
        try:
            return Connection(self._reach(route, 0))
        except (paramiko.SSHException, OSError, EOFError) as error:  # whatever it is, other hosts may be reached
            raise HostFailed("ssh", f"{route.where}: {_told(error)}") from None

    def _reach(self, route: Route, depth: int) -> paramiko.Transport:
        deadline = time.monotonic() + self._timeout_s
        for again_s in (*AGAIN_S, None):
            try:
                return self._try(route, depth, deadline)
            except _Dropped as error:
                if again_s is None or time.monotonic() + again_s > deadline:
                    hint = "its sshd may be out of places (MaxStartups), or no sshd"
                    if route.command:
                        hint = f"does its ProxyCommand work? {route.command}"
                    raise HostFailed("ssh", f"{route.where}: {error}", hint) from None
                time.sleep(again_s)  # the server refused a connection: a later one may find a place
        raise AssertionError("unreachable")

    def _try(self, route: Route, depth: int, deadline: float) -> paramiko.Transport:
        transport = None
        sock = self._socket(route, depth, deadline)
        try:
            transport = paramiko.Transport(sock)
            transport.daemon = True
            transport.banner_timeout = transport.auth_timeout = self._timeout_s
            known = self._known(route)
            self._greet(transport, route, known, deadline)
            self._check(transport, route, known)
            self._log_in(transport, route)
            return transport
        except BaseException:
            (transport or sock).close()
            raise

    def _socket(self, route: Route, depth: int, deadline: float) -> Any:
        left_s = max(0.1, deadline - time.monotonic())
        if route.jumps:
            if depth >= _DEEPEST:
                raise HostFailed("ssh", f"{route.host}: jumps through more than {_DEEPEST} hosts", "ProxyJump")
            return self._through(route, depth, left_s)
        if route.command:
            return _proxy(route)
        try:
            sock = socket.create_connection((route.host, route.port), left_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            raise _no_way(route, error, self._timeout_s) from None

    def _through(self, route: Route, depth: int, left_s: float) -> Any:
        # All hosts behind one jump host share a connection to it.
        *before, last = route.jumps
        with self._lock:
            jump = self._jumps.setdefault(",".join(route.jumps), _Jump())
        with jump.lock:
            if jump.transport is None or not jump.transport.is_active():
                user, _, rest = last.rpartition("@")
                name, port = _host_and_port(rest)
                step = self._config.route_to(name, port, user)
                if before:
                    step = step._replace(jumps=tuple(before), command="")
                jump.transport = self._reach(step, depth + 1)
        try:
            return jump.transport.open_channel(
                "direct-tcpip", (route.host, route.port), ("127.0.0.1", 0), timeout=left_s
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostFailed("route", f"{route.host}, by way of {last}: {_told(error)}", "ProxyJump") from None

    def _known(self, route: Route) -> known_hosts.KnownHosts:
        with self._lock:
            if route.pins not in self._pins:
                self._pins[route.pins] = known_hosts.KnownHosts(route.pins)
            return self._pins[route.pins]

    def _greet(
        self, transport: paramiko.Transport, route: Route, known: known_hosts.KnownHosts, deadline: float
    ) -> None:
        kinds: list[str] = []
        for kind in known.kinds(_pin_names(route)):
            kinds += _RSA if kind == "ssh-rsa" else (kind,)
        options = transport.get_security_options()
        first = [kind for kind in kinds if kind in options.key_types]
        options.key_types = [*first, *(kind for kind in options.key_types if kind not in first)]
        try:
            transport.start_client(timeout=max(0.1, deadline - time.monotonic()))
        except (paramiko.SSHException, OSError, EOFError) as error:
            if "Incompatible" in str(error):
                hint = "its sshd offers nothing that we speak: is it an old one?"
                raise HostFailed("ssh", f"{route.where}: {_told(error)}", hint) from None
            raise _Dropped(f"no SSH came about: {_told(error)}") from None
        if not transport.initial_kex_done:  # paramiko reports a time-out this way
            raise _Dropped(f"no SSH came about within {self._timeout_s:g} s")

    def _check(self, transport: paramiko.Transport, route: Route, known: known_hosts.KnownHosts) -> None:
        shown = transport.get_remote_server_key()
        kind, blob = shown.get_name(), shown.asbytes()
        name = _pin_names(route)[0]
        told = f"{kind} {known_hosts.fingerprint(blob)}"
        with self._lock:
            verdict, place = known.check(_pin_names(route), blob)
            accepts = self._accept_new or route.accepts_new
            if verdict is known_hosts.Verdict.UNKNOWN and accepts and route.pin_to and not known.unreadable:
                self._pin(known, route, name, kind, blob)
                return
        if verdict is known_hosts.Verdict.KNOWN:
            return
        if verdict is known_hosts.Verdict.UNKNOWN:
            if known.unreadable:
                raise HostFailed(
                    "host_key_unknown",
                    f"the host key of {name} ({told}) is not known: {known.unreadable} cannot be read",
                    "make it a file that you can read: the key, or its revocation, may be there",
                )
            if accepts:
                told_why = f"the host key of {name} ({told}) is not known, and no file may keep it"
                raise HostFailed("host_key_unknown", told_why, "UserKnownHostsFile in SSH's configuration names one")
            raise HostFailed(
                "host_key_unknown",
                f"the host key of {name} is not known yet: {told}",
                "compare it on the host (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then mesh up --accept-new",
            )
        if verdict is known_hosts.Verdict.REVOKED:
            raise HostFailed("host_key_revoked", f"{name} shows a host key that {place} revokes: {told}")
        file = place.rpartition(":")[0]
        raise HostFailed(
            "host_key_changed",
            f"the host key of {name} is not the one in {place}: it shows {told}. Another machine may answer for it",
            f"if the host is new: ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(file)}, then mesh up --accept-new",
        )

    def _pin(self, known: known_hosts.KnownHosts, route: Route, name: str, kind: str, blob: bytes) -> None:
        try:
            known.add(route.pin_to, name, kind, blob, hashed=route.pins_hashed)
        except OSError as error:
            raise HostFailed(
                "host_key_unknown", f"the host key of {name} cannot be pinned: {route.pin_to}: {error.strerror}"
            ) from None

    def _log_in(self, transport: paramiko.Transport, route: Route) -> None:
        tried: list[str] = []
        for told, key in self._candidates(route, tried):
            try:
                more = transport.auth_publickey(route.user, key)
            except paramiko.BadAuthenticationType as error:
                allowed = ", ".join(error.allowed_types) or "nothing"
                raise HostFailed("auth", f"{route.where} accepts no keys, only: {allowed}") from None
            except paramiko.AuthenticationException:
                tried.append(told)
                continue
            except (paramiko.SSHException, OSError, EOFError) as error:
                hint = "ssh-agent may hold more keys than the host lets one try: IdentitiesOnly yes in ~/.ssh/config"
                raise HostFailed("auth", f"{route.where} hung up: {_told(error)}", hint if tried else "") from None
            if more:
                raise HostFailed("auth", f"{route.where} asks for more than a key: {', '.join(more)}")
            return
        what = f"tried {', '.join(tried)}" if tried else "there is none to try"
        port = f" -p {route.port}" if route.port != 22 else ""
        hint = (
            f"is there an account {route.user!r} with a home, and not locked (there: passwd -S {route.user})?"
            f" ssh-copy-id{port} {shlex.quote(f'{route.user}@{route.host}')} gives it our key"
        )
        raise HostFailed("auth", f"{route.where} accepts none of your keys ({what})", hint)

    def _candidates(self, route: Route, tried: list[str]) -> Any:
        """Yield the keys to try, in OpenSSH's order: configured keys that ssh-agent has, its other keys, key files."""
        path = os.environ.get("SSH_AUTH_SOCK", "") if route.agent else ""
        if path and (silent := self._why_no_agent(path)):
            tried.append(f"ssh-agent at {path} ({silent})")
            path = ""
        agent, held = None, []
        try:
            if path:
                try:
                    agent = paramiko.Agent()
                    held = list(agent.get_keys())
                except Exception as error:  # any error of the underlying libraries
                    tried.append(f"ssh-agent at {path} ({_told(error)})")
            named = {_public_of(path) for path in route.keys}
            held.sort(key=lambda key: key.asbytes() not in named)
            for key in held:
                if not route.keys_only or key.asbytes() in named:
                    yield f"{key.get_name()} of ssh-agent", key
            there = {key.asbytes() for key in held}
            for path in route.keys:
                loaded = self._key(path)
                if isinstance(loaded, str):
                    tried.append(loaded)
                elif loaded is not None and loaded.asbytes() not in there:
                    yield path, loaded
        finally:
            if agent is not None:
                agent.close()

    def _why_no_agent(self, path: str) -> str:
        """Why ssh-agent is of no use, found out once; "" if it lists its keys, or if nothing listens at ``path``."""
        with self._agent_lock:
            if self._no_agent is None:
                self._no_agent = _why_no_agent(path)
            return self._no_agent

    def _key(self, path: str) -> Any:
        """The key in a file, read once; None if the file does not exist, or text with the reason why it is unusable."""
        with self._lock:
            if path not in self._keys:
                self._keys[path] = _load_key(path)
            return self._keys[path]

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for jump in self._jumps.values():
            if jump.transport is not None:
                jump.transport.close()


class _Jump:
    """A connection to a jump host."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transport: paramiko.Transport | None = None


class Connection:
    """An authenticated connection to a host."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._transport = transport

    def run(self, command: str, timeout_s: float) -> paramiko.Channel:
        """Start ``command`` on the host; return its channel. Raises HostFailed."""
        try:
            channel = self._transport.open_session(timeout=timeout_s)
            channel.settimeout(timeout_s)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HostFailed("ssh", f"no command can be run there: {_told(error)}") from None
        return channel

    def close(self) -> None:
        """Disconnect."""
        self._transport.close()


def _pin_names(route: Route) -> list[str]:
    if route.pin_as:
        return [route.pin_as]
    names = [known_hosts.pin_name(route.host, route.port)]
    return names if route.port == 22 else [*names, route.host]


def _host_and_port(text: str) -> tuple[str, int]:
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
        port = port.lstrip(":")
    else:
        name, _, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
    if not name or name.startswith("-") or (port and not port.isdigit()):
        raise HostFailed("ssh", f"ProxyJump {text!r} is not a host")
    return name, int(port or 0)


class _Proxy(socket.socket):
    """A connection to a ProxyCommand, which is terminated when the connection is closed.

    paramiko's own reads without a pause when the command has exited, until the connection times out.
    """

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        try:
            with theirs:
                fd = theirs.fileno()
                self._process = subprocess.Popen(shlex.split(command), stdin=fd, stdout=fd, stderr=subprocess.DEVNULL)
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        super().close()
        if self._process.poll() is None:
            self._process.terminate()


def _proxy(route: Route) -> _Proxy:
    try:
        return _Proxy(route.command)
    except (OSError, ValueError) as error:  # ValueError: a quotation mark that is not closed
        why = error.strerror if isinstance(error, OSError) else error
        told = f"{route.host}: the ProxyCommand {route.command!r} cannot run: {why}"
        raise HostFailed("route", told, "it is run without a shell: try it as it stands") from None


def _no_way(route: Route, error: OSError, timeout_s: float) -> HostFailed:
    place = f"{route.host} port {route.port}"
    if isinstance(error, socket.gaierror):
        hint = "`address` in mesh.toml says where it is, HostName in ~/.ssh/config does too"
        return HostFailed("name", f"no address is known for {route.host}: {error.strerror}", hint)
    if isinstance(error, TimeoutError):
        hint = "is it up, and does a firewall let SSH through? connect_s is the patience"
        return HostFailed("timeout", f"{place} does not answer within {timeout_s:g} s", hint)
    if isinstance(error, ConnectionRefusedError):
        return HostFailed("refused", f"no sshd listens at {place}", "start it, or say its `port` in mesh.toml")
    return HostFailed("route", f"{place}: {error.strerror or error}", "is it up and on the network?")


def _told(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _why_no_agent(path: str) -> str:
    # paramiko waits for an agent without end; one that has hung up, or answers an error, ends with an exception.
    with socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(AGENT_S)
        try:
            agent.connect(path)
        except OSError:
            return ""  # none runs, which is what paramiko takes it for too
        try:
            agent.sendall(_LIST_KEYS)
            answer = b""
            while len(answer) < 5 and (more := agent.recv(4096)):
                answer += more
        except TimeoutError:
            return f"it does not answer within {AGENT_S:g} s"
        except OSError as error:
            return str(error.strerror)
    if answer[4:5] == _KEYS:
        return ""
    return "it does not list its keys" if answer else "it hangs up"


def _public_of(path: str) -> bytes:
    try:
        with open(f"{path}.pub", encoding="ascii", errors="replace") as file:
            return base64.b64decode(file.read(65_536).split()[1])
    except (OSError, IndexError, ValueError):
        return b""


def _load_key(path: str) -> Any:
    try:
        status = os.stat(path)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:  # OpenSSH refuses it too
            return f"{path} (its mode {status.st_mode & 0o777:04o} lets others read it: chmod 600 {shlex.quote(path)})"
        return paramiko.PKey.from_path(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{path} ({error.strerror})"
    except (paramiko.PasswordRequiredException, TypeError):
        return f"{path} (it has a passphrase: ssh-add it)"
    except Exception as error:  # any error of the underlying libraries
        return f"{path} ({_told(error)})"
