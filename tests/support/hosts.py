"""Hosts that a test may ssh to: network namespaces (for root), or sshds on loopback (for any user).

A namespace host has its own address, host name, processes (the kernel kills them all when its init exits), HOME, /tmp,
/run, /dev/shm, boot id and, with cgroup v2, its own hierarchy; its /etc is a copy of the machine's. It shares the
machine's other files, like a network file system. A bridge in another network namespace, the *login processor*,
connects the hosts; the login processor has the machine's files but /etc and /dev/shm. The namespaces have no names on
the machine, so a test run that is killed leaves none behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.linux.cgroup import members, remove
from tests.support.addresses import address, free_port
from tests.support.reaper import private_directory, watch
from tests.support.ssh_keys import Keys, run
from tests.support.waiting import PATIENCE_S, wait_until

NOT_ROOT = "namespace hosts need root"
#: Makes the kernel kill the hosts when the test run dies, so that nothing is left behind. They are in sessions of their
#: own: a signal for the tests' group (^C) must not end the hosts before the meshes on them are taken down.
_DIE_WITH_US = ["setpriv", "--pdeathsig", "KILL", "setsid"]
#: Path of the source tree on a host: its own path may be below a directory that the host replaces (/root, /home, /tmp).
PROJECT = "/run/project"
#: Words that start a Python program on a host with this interpreter and its packages.
PYTHON = (
    "env", f"PYTHONPATH={':'.join(path for path in sys.path if path.endswith('-packages'))}",
    f"/run/python/bin/python{sys.version_info.major}.{sys.version_info.minor}",
)  # fmt: skip
_PREFIX = "10.78.0."
LOGIN_ADDRESS = _PREFIX + "254"
_CGROUPS = Path("/sys/fs/cgroup/unified") if Path("/sys/fs/cgroup/unified").is_dir() else Path("/sys/fs/cgroup")
_FIRST_UID = 21001
NOWHERE = "02:00:00:00:fe:fe"  # a hardware address that no interface has

#: Shell script of a host's first process: waits for the network, mounts the file systems, executes sshd.
_INIT = r"""
set -e
read -r go
mount -t proc proc /proc
mount --bind "$H/boot_id" /proc/sys/kernel/random/boot_id
hostname "$NAME"
ip link set lo up; ip link set eth0 up; ip addr add "$ADDRESS/24" dev eth0
[ -z "$RATE" ] || tc qdisc add dev eth0 root tbf rate "$RATE" burst 256kb latency 50ms
mount -t sysfs sysfs /sys
mkdir -p /sys/fs/cgroup 2>/dev/null && mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null || true
mount --bind "$ETC" /etc
for f in hosts passwd group; do mount --bind "$H/$f" /etc/$f; done
mount -t tmpfs -o mode=755,size=16m run /run
mkdir -p /run/sshd /run/host /run/project /run/python
mount --bind "$H" /run/host
mount --bind "$PROJECT" /run/project
mount --bind "$PYTHON" /run/python
mount -t tmpfs -o mode=1777,size="$SHM" shm /dev/shm
mount --bind "$H/root" /root
mount -t tmpfs -o mode=755 homes /home
for u in $USERS; do mkdir "/home/$u"; mount --bind "$H/home-$u" "/home/$u"; done
[ -z "$SMALL_HOME" ] || { mount -t tmpfs -o mode=700,size="$SMALL_HOME" small /root; cp -r "$H/root/.ssh" /root/; }
cd /
mount -t tmpfs -o mode=1777,size=128m tmp /tmp
exec /usr/sbin/sshd -D -f /run/host/sshd_config -E /run/host/sshd.log
"""

_SSHD = """
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
StrictModes no
MaxStartups 512
MaxSessions 512
Subsystem sftp internal-sftp
"""


class NamespaceHost:
    """One host of :class:`NamespaceHosts`; ``number`` counts from 1."""

    port = 22

    def __init__(self, hosts: NamespaceHosts, number: int) -> None:
        self.hosts, self.number = hosts, number
        self.name = f"h{number}"
        self.address = f"{_PREFIX}{number}"
        self.directory = hosts.directory / self.name
        self.home = self.directory / "root"  # root's HOME on the host
        self._port_name = f"v{number}"
        self._starter: subprocess.Popen[bytes] | None = None
        self.init = 0  # pid of the host's first process, in the machine's pid namespace
        self._enter_cgroup: Path | None = None
        self._make_files()

    def _make_files(self) -> None:
        for user in ("root", *(f"home-{user}" for user in self.hosts.users)):
            (self.directory / user / ".ssh").mkdir(parents=True, mode=0o700)
            (self.directory / user / ".ssh" / "authorized_keys").write_text(self.hosts.keys.user_public)
        for index, user in enumerate(self.hosts.users):
            uid = _FIRST_UID + index
            for path in (self.directory / f"home-{user}", *(self.directory / f"home-{user}").rglob("*")):
                os.chown(path, uid, uid)
        for name in ("passwd", "group", "hosts"):
            shutil.copy(self.hosts.directory / name, self.directory / name)
        shutil.copy(self.hosts.keys.directory / "hostkey", self.directory / "hostkey")
        (self.directory / "sshd_config").write_text(
            f"ListenAddress {self.address}\nHostKey /run/host/hostkey\nPidFile none\n{_SSHD}"
        )

    def begin(self) -> None:
        """Start the host's first process, which waits for the network."""
        (self.directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.directory / "sshd.log").write_text("")
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "H": str(self.directory), "NAME": self.name,
            "ADDRESS": self.address, "RATE": self.hosts.rate, "USERS": " ".join(self.hosts.users),
            "SHM": self.hosts.shm, "SMALL_HOME": self.hosts.small_home,
            "PROJECT": str(Path(__file__).parents[2]), "PYTHON": sys.base_prefix, "ETC": str(self.hosts.etc),
        }  # fmt: skip
        self._enter_cgroup = self._cgroup()
        command = [*_DIE_WITH_US, "unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup",
                   "--fork", "--kill-child", "sh", "-c", _INIT]  # fmt: skip
        with open(self.directory / "init.log", "wb") as log:
            self._starter = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, preexec_fn=self._join_cgroup
            )

    def _cgroup(self) -> Path | None:
        # The directory's name makes the path unique: a repeated test makes its hosts while the first ones still exist.
        path = _CGROUPS / f"redmesh-{os.getpid()}-{self.hosts.directory.name}-{self.name}"
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return None
        watch(path)
        return path

    def _join_cgroup(self) -> None:
        if self._enter_cgroup is not None:
            (self._enter_cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def join(self) -> None:
        """Connect the host to the bridge, and let its first process continue."""
        assert self._starter is not None and self._starter.stdin is not None
        self.init = wait_until(self._first_process, f"{self.name} has begun")
        port = self._port_name
        batch = [
            f"link add {port} type veth peer name eth0 address 02:00:00:00:00:{self.number:02x} netns {self.init}",
            f"link set {port} master br0 up",
        ]
        self.hosts.ip(*batch)
        if self.hosts.rate:
            limit = ["root", "tbf", "rate", self.hosts.rate, "burst", "256kb", "latency", "50ms"]
            run(*self.hosts.enter, "tc", "qdisc", "add", "dev", port, *limit)
        self._starter.stdin.write(b"go\n")
        self._starter.stdin.close()

    def _first_process(self) -> int:
        assert self._starter is not None
        assert self._starter.poll() is None, f"{self.name} did not start"
        pid = self._starter.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def wait(self) -> None:
        """Wait until the host's sshd listens."""

        def listens() -> bool:
            assert self._starter is not None and self._starter.poll() is None, f"{self.name} has ended: {self._said()}"
            return "Server listening" in (self.directory / "sshd.log").read_text()

        wait_until(listens, f"the sshd of {self.name} listens")

    def _said(self) -> str:
        return "".join((self.directory / name).read_text() for name in ("init.log", "sshd.log"))

    def kill(self) -> None:
        """Kill the host with all its processes and memory file systems; its HOME stays."""
        if self._starter is not None:
            if self.init:
                try:
                    os.kill(self.init, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self._starter.wait(PATIENCE_S)
            self._starter, self.init = None, 0
        cgroup, self._enter_cgroup = self._enter_cgroup, None
        if cgroup is not None:
            # launch children made control groups below it, which must be removed first
            wait_until(lambda: not members(str(cgroup)) and remove(str(cgroup)), "its cgroup is empty")

    def start(self) -> None:
        """Start the host again after :meth:`kill`, with a new boot id."""
        self.begin()
        self.join()
        self.wait()

    def reboot(self) -> None:
        """Kill the host and start it again."""
        self.kill()
        self.start()

    @property
    def enter(self) -> list[str]:
        """The words before a command that run it on the host as root, without ssh."""
        return ["nsenter", "-t", str(self.init), "--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--"]

    def glob(self, pattern: str) -> list[Path]:
        """Return the host's files that match ``pattern``, a path below /, as this process can read them."""
        return sorted(Path(f"/proc/{self.init}/root").glob(pattern))

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the host without ssh; this also works while the host is cut off."""
        return subprocess.run([*self.enter, *command], capture_output=True, text=True, timeout=PATIENCE_S, **options)

    def processes(self) -> dict[int, str]:
        """Map the pids (on the machine) of the host's processes, but its sshd, to their command lines."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self.init:
                continue
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") == space:
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    found[int(entry)] = b" ".join(words).decode("utf-8", "replace").strip()
            except OSError:
                pass  # the process has exited meanwhile
        return {pid: words for pid, words in found.items() if words and not words.startswith(("sshd:", "nsenter"))}

    def received(self) -> int:
        """Return how many bytes have come to the host by the network."""
        (line,) = [one for one in Path(f"/proc/{self.init}/net/dev").read_text().splitlines() if "eth0:" in one]
        return int(line.partition(":")[2].split()[0])

    # Faults of the network

    def cut(self, way: str = "both") -> None:
        """Drop, without any error, what the host sends (``out``), what it should receive (``in``), or ``both``."""
        if way == "both":
            self.hosts.ip(f"link set {self._port_name} down")
            return
        others = [host for host in self.hosts if host is not self and host.init]
        if way == "out":
            names = [LOGIN_ADDRESS, *(host.address for host in others)]
            self._ip(*(f"neigh replace {name} lladdr {NOWHERE} dev eth0 nud permanent" for name in names))
            return
        entry = f"neigh replace {self.address} lladdr {NOWHERE} dev %s nud permanent"
        self.hosts.ip(entry % "br0")
        for host in others:
            host._ip(entry % "eth0")

    def heal(self) -> None:
        """Undo :meth:`cut`."""
        self.hosts.ip(f"link set {self._port_name} up")
        others = [host for host in self.hosts if host is not self and host.init]
        if self.init:
            self._ip(
                *(f"neigh flush to {name} nud permanent" for name in (LOGIN_ADDRESS, *(h.address for h in others)))
            )
        self.hosts.ip(f"neigh flush to {self.address} nud permanent")
        for host in others:
            host._ip(f"neigh flush to {self.address} nud permanent")

    def limit(self, rate: str, *, to_it_alone: bool = False) -> None:
        """Change the rate of the host's link, in both directions or (``to_it_alone``) only towards the host.

        The link must have been made with a rate. A slow link gets a larger buffer, as real slow links have: a buffer
        for two packets would drop so many that TCP pauses for seconds.
        """
        latency = "400ms" if rate.endswith("kbit") else "50ms"
        words = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", latency)
        run(*self.hosts.enter, "tc", "qdisc", "change", "dev", self._port_name, *words)
        if not to_it_alone:
            run("nsenter", "-t", str(self.init), "--net", "--", "tc", "qdisc", "change", "dev", "eth0", *words)

    def _ip(self, *lines: str) -> None:
        run("nsenter", "-t", str(self.init), "--net", "--", "ip", "-batch", "-", input="\n".join(lines) + "\n")


class NamespaceHosts:
    """``count`` namespace hosts h1…, and the login processor h0, on which :attr:`enter` runs commands."""

    user = "root"

    def __init__(
        self, count: int, rate: str = "", users: Sequence[str] = (), shm: str = "64m", small_home: str = ""
    ) -> None:
        self.rate, self.users, self.shm, self.small_home = rate, tuple(users), shm, small_home
        self.directory = private_directory("rm-hosts-")
        self.directory.chmod(0o755)
        self.keys = Keys(self.directory)
        self._write_etc(count)
        self._hub: subprocess.Popen[bytes] | None = None
        self._all: list[NamespaceHost] = []
        try:
            self._start_hub()
            self._all = [NamespaceHost(self, number) for number in range(1, count + 1)]
            for step in (NamespaceHost.begin, NamespaceHost.join, NamespaceHost.wait):
                for host in self._all:
                    step(host)
        except BaseException:
            self.close()
            raise
        self.keys.write_config([(host.name, host.address, 22) for host in self._all], self.user)

    def __iter__(self) -> Iterator[NamespaceHost]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> NamespaceHost:
        return self._all[index]

    @property
    def etc(self) -> Path:
        """A copy of /etc, which is /etc on every host.

        What replaces a file of the machine's /etc (useradd, a package) unmounts everything that is mounted on the file,
        in every namespace.
        """
        return self.directory / "etc"

    def _write_etc(self, count: int) -> None:
        subprocess.run(["cp", "-a", "/etc", str(self.etc)], stderr=subprocess.DEVNULL)  # files may vanish meanwhile
        lines = ["127.0.0.1 localhost", f"{LOGIN_ADDRESS} h0", *(f"{_PREFIX}{i} h{i}" for i in range(1, count + 1))]
        (self.directory / "hosts").write_text("\n".join(lines) + "\n")
        ids = [(user, _FIRST_UID + index) for index, user in enumerate(self.users)]
        passwd = [f"{user}:x:{uid}:{uid}::/home/{user}:/bin/sh\n" for user, uid in ids]
        (self.directory / "passwd").write_text(Path("/etc/passwd").read_text() + "".join(passwd))
        group = [f"{user}:x:{uid}:\n" for user, uid in ids]
        (self.directory / "group").write_text(Path("/etc/group").read_text() + "".join(group))

    def _start_hub(self) -> None:
        script = (
            'hostname h0; mount --bind "$D/etc" /etc; '
            'for f in hosts passwd group; do mount --bind "$D/$f" /etc/$f; done; '
            "mount -t tmpfs -o mode=1777,size=64m shm /dev/shm; "
            'ip link set lo up; ip link add br0 type bridge; ip addr add "$A/24" dev br0; ip link set br0 up; '
            "echo up; exec sleep infinity"
        )
        self._hub = subprocess.Popen(
            [*_DIE_WITH_US, "unshare", "--net", "--mount", "--uts", "sh", "-ec", script],
            env={**os.environ, "D": str(self.directory), "A": LOGIN_ADDRESS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._hub.stdout is not None
        assert self._hub.stdout.readline() == b"up\n", "no network namespace for the login processor"

    @property
    def enter(self) -> list[str]:
        """The words before a command that run it on the login processor, in the directory /."""
        assert self._hub is not None
        return ["nsenter", "-t", str(self._hub.pid), "--net", "--mount", "--uts", "--"]

    def command(self, *words: str, cwd: Path | str = "/") -> list[str]:
        """Return the command line that runs ``words`` on the login processor in ``cwd``."""
        return [*self.enter, "env", "-C", str(cwd), *words]

    def ip(self, *lines: str) -> None:
        """Run ``ip`` commands on the login processor."""
        run(*self.enter, "ip", "-batch", "-", input="\n".join(lines) + "\n")

    def close(self) -> None:
        """Kill every host and remove their files."""
        for host in self._all:
            host.kill()
        if self._hub is not None:
            self._hub.kill()
            self._hub.wait(PATIENCE_S)
            assert self._hub.stdout is not None
            self._hub.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class LoopbackHost:
    """A loopback address on which a private sshd of the calling user listens."""

    def __init__(self, number: int, port: int) -> None:
        self.name = f"lo{number}"
        self.address = address(number)
        self.port = port


class LoopbackHosts:
    """``count`` loopback addresses, on which sshds of the calling user listen; all share this machine's files."""

    def __init__(self, count: int) -> None:
        import pwd

        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.directory = private_directory("rm-hosts-")
        self.keys = Keys(self.directory)
        (self.directory / "authorized_keys").write_text(self.keys.user_public)
        self.home = self.directory / "home"  # HOME of every login, so that the user's own .bashrc does not run
        self.home.mkdir(mode=0o700)
        port = free_port(address(1))
        self._all = [LoopbackHost(number, port) for number in range(1, count + 1)]
        self._daemons: list[subprocess.Popen[bytes]] = []
        try:
            for first in range(0, count, 16):  # one sshd listens on at most 16 addresses
                self._start(first, self._all[first : first + 16], port)
        except BaseException:
            self.close()
            raise
        self.keys.write_config([(host.name, host.address, host.port) for host in self._all], self.user)

    def __iter__(self) -> Iterator[LoopbackHost]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> LoopbackHost:
        return self._all[index]

    def _start(self, first: int, hosts: Sequence[LoopbackHost], port: int) -> None:
        config, log = self.directory / f"sshd_config.{first}", self.directory / f"sshd.{first}.log"
        listen = "".join(f"ListenAddress {host.address}\n" for host in hosts)
        config.write_text(
            f"Port {port}\n{listen}HostKey {self.directory}/hostkey\nPidFile none\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nSetEnv HOME={self.home}\n{_SSHD}"
        )
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        log.write_text("")
        daemon = subprocess.Popen(
            [*_DIE_WITH_US, "/usr/sbin/sshd", "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL
        )
        self._daemons.append(daemon)

        def listens() -> bool:
            text = log.read_text()
            assert daemon.poll() is None, text
            return text.count("Server listening") >= len(hosts)

        wait_until(listens, "the sshd listens")

    def close(self) -> None:
        """Kill every sshd and remove their files."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait(PATIENCE_S)
        shutil.rmtree(self.directory, ignore_errors=True)


class MakeHosts:
    """Makes hosts for one test or module, and removes them at its end."""

    def __init__(self, kind: type[NamespaceHosts] | type[LoopbackHosts]) -> None:
        self._kind = kind
        self._made: list[Any] = []

    def __call__(self, count: int, **options: Any) -> Any:
        self._made.append(self._kind(count, **options))
        return self._made[-1]

    def close(self) -> None:
        for hosts in self._made:
            hosts.close()


def can_have_namespaces() -> bool:
    """Return whether this process can make namespace hosts."""
    if os.geteuid() or not all(shutil.which(name) for name in ("ip", "unshare", "nsenter", "ssh-keygen")):
        return False
    # root in a container may not be allowed to make namespaces
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--cgroup", "--fork", "true"], capture_output=True)
    return tried.returncode == 0 and os.path.exists("/usr/sbin/sshd")


@pytest.fixture(scope="module")
def netns_hosts() -> Iterator[MakeHosts]:
    """``netns_hosts(4, rate="400mbit", users=("ada",))`` makes namespace hosts, or skips the test."""
    if not can_have_namespaces():
        pytest.skip(NOT_ROOT)
    make = MakeHosts(NamespaceHosts)
    try:
        yield make
    finally:
        make.close()


@pytest.fixture(scope="module")
def loopback_hosts() -> Iterator[MakeHosts]:
    """``loopback_hosts(4)`` makes hosts from private sshds on loopback addresses."""
    if not os.path.exists("/usr/sbin/sshd"):
        pytest.skip("no sshd is installed")
    make = MakeHosts(LoopbackHosts)
    try:
        yield make
    finally:
        make.close()
