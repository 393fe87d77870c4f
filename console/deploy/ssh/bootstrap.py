"""The program that runs on a host over SSH: examines the host, and starts, changes and ends the agent there.

It is sent as text on standard input to ``python -I -S`` (3.9 or newer), so it uses little of the standard library and
no module of Redmesh. A request is a line with a Python literal, followed by the contents of files. An answer is a line
with a marker word and JSON: the marker tells it from what the account's start-up files print.
"""

from __future__ import annotations

import _socket as socket  # importing the module socket would take 6 ms on each host
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = dict[str, Any]
    Blobs = dict[str, bytes]


def home() -> str:
    return os.path.expanduser("~")


def base() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(state if state.startswith("/") else os.path.join(home(), ".local/state"), "redmesh")


def place(node: str) -> tuple[str, str]:
    """The directories of a node's files and sockets; many nodes may share a host."""
    # Root does not use /tmp: after a reboot, any user could create the directory before the agent does.
    above = "/run" if os.geteuid() == 0 else "/tmp"
    return os.path.join(base(), "nodes", node), "%s/redmesh-%d/%s" % (above, os.geteuid(), node)


class Trouble(Exception):
    """An error: a code, a message, and a hint what to do."""


def read(path: str, default: str = "") -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return default


def room(path: str) -> int:
    """Free bytes at ``path``, or where it would be; -1 if unknown."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    try:
        there = os.statvfs(path)
    except OSError:
        return -1
    return there.f_bavail * there.f_frsize


#: For the files of launches.
RAM_DISK = "/dev/shm"


def program_places() -> list[str]:
    """The directories in which programs may be copied, in the agent's order (agents/pct/images/ram_disk.py)."""
    temporary = os.environ.get("TMPDIR", "")
    found = [RAM_DISK, os.path.realpath(temporary)] if temporary.startswith("/") else [RAM_DISK]
    return list(dict.fromkeys([*found, "/tmp"]))


def unusable(path: str) -> str:
    """Why programs cannot be copied to ``path``; "" if they can."""
    if not os.path.isdir(path):
        return "does not exist"
    there = os.stat(path)
    if there.st_uid not in (0, os.geteuid()) or (there.st_mode & 0o022 and not there.st_mode & 0o1000):
        return "lets other users rename what is in it"  # the agent leaves it out, too
    flags = os.statvfs(path).f_flag
    if flags & os.ST_RDONLY:
        return "is read-only"
    if flags & os.ST_NOEXEC:
        return "is mounted noexec"
    return "" if os.access(path, os.W_OK | os.X_OK) else "cannot be written"


def names_in(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def facts(node: str) -> Answer:
    """Return the data about this host that the login processor needs."""
    state, run = place(node)
    programs = [path for path in program_places() if not unusable(path)]
    gpus = [name for name in names_in("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    return {
        "python": sys.executable,
        "version": "%d.%d.%d" % sys.version_info[:3],
        "tag": sys.implementation.cache_tag,
        "processors": len(os.sched_getaffinity(0)),
        "gpus": len(gpus),
        "hostname": os.uname().nodename,
        "uid": os.geteuid(),
        "user": user_of(os.geteuid()),
        "policy": policy_file(),
        "neighbours": neighbours(),
        "boot": read("/proc/sys/kernel/random/boot_id").strip(),
        "clock": time.time(),
        "connection": os.environ.get("SSH_CONNECTION", ""),
        "ram_disk": unusable(RAM_DISK),
        "programs": programs[0] if programs else "",
        "shm_free": room(programs[0] if programs else RAM_DISK),
        "tmp_free": room("/tmp"),
        "state_free": room(state),
        "state": state,
        "run": run,
        "writable": can_write(state),
        "agents": [name[:-4] for name in names_in(os.path.join(base(), "agents")) if name.endswith(".pyz")],
        "keeper": keeper(state, run),
        "agent": agent_of(state),
        "config": read(os.path.join(state, "keeper.json")),
    }


def user_of(uid: int) -> str:
    """The name of an account, else "uid N"."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


#: Root's file that says whose meshes use the host (agents/pct/node/host_policy.py), and the bytes of it that are read.
POLICY, MOST_POLICY = "/etc/redmesh/host", 64 << 10


def policy_file(path: str = POLICY) -> list[Any] | None:
    """The text of that file (None: it cannot be read), its owner and its mode; None if there is no file."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    text = None
    if there.st_mode & 0o170000 == 0o100000:  # a regular file: a named pipe would block
        try:
            with open(path, "rb") as file:
                text = file.read(MOST_POLICY).decode("utf-8", "replace")
        except OSError:
            pass
    return [text, there.st_uid, there.st_mode]


#: agents/pct/node/neighbours.py: how the names of PCTs' sockets begin in /proc/net/unix, and the bytes of a message;
#: the sockets that are asked, and seconds for all of them to answer.
NEIGHBOUR, LONGEST_HELLO, MOST_NEIGHBOURS, NEIGHBOURS_S = b"@redmesh-pct-", 1024, 64, 1.0


def neighbours() -> list[Answer]:
    """The PCTs that run on this host, as their sockets answer: what they say, and the uid that the kernel says."""
    import select
    import struct

    names: set[bytes] = set()
    try:
        with open("/proc/net/unix", "rb") as file:
            for line in file.read(8 << 20).split(b"\n"):
                at = line.find(NEIGHBOUR)
                if at > 0 and len(names) < MOST_NEIGHBOURS:
                    names.add(line[at + 1 :])
    except OSError:
        return []
    asked, found = {}, []
    for name in sorted(names):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            probe.connect(b"\0" + name)
            asked[probe.fileno()] = probe
        except OSError:
            probe.close()
    deadline = time.monotonic() + NEIGHBOURS_S
    poll = select.poll()
    for fd in asked:
        poll.register(fd, select.POLLIN)
    while asked and time.monotonic() < deadline:
        for fd, _ in poll.poll(max(1, int((deadline - time.monotonic()) * 1000))):
            probe = asked.pop(fd)
            poll.unregister(fd)
            try:
                uid = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
                said = probe.recv(LONGEST_HELLO).decode("utf-8", "replace")
                found.append({"uid": uid, "user": user_of(uid), "said": said})
            except OSError:
                pass
            probe.close()
    for probe in asked.values():
        probe.close()
    return found


def holder(kind: str, place: tuple[str, int]) -> str:
    """Whose socket holds a port of this host, by /proc/net: ``a process of bob``, the user's own with its pid.

    ``kind``: ``tcp`` or ``udp``. "" if no socket that is there explains a conflict.
    """
    host, port = place
    for name, family in ((kind, socket.AF_INET), (kind + "6", socket.AF_INET6)):
        for line in read("/proc/net/" + name).splitlines()[1:]:
            words = line.split()
            address, _, number = words[1].partition(":")
            listens = kind == "udp" or words[3] == "0A"
            if int(number, 16) == port and listens and may_conflict(family, address, host):
                uid, inode = int(words[7]), words[9]
                pid = owner_of(inode)
                return "a process of %s" % user_of(uid) + (" (%s, process %d)" % pid if pid else "")
    return ""


def may_conflict(family: int, address: str, host: str) -> bool:
    """True unless a socket at an address in /proc/net (hexadecimal words of the host's byte order) leaves ``host``
    free."""
    words = [int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8)]
    there = b"".join(words)
    try:
        ours = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return True  # a name
    mapped = b"\0" * 10 + b"\xff\xff"
    return not any(there) or not any(ours) or ours == there or mapped + ours == there


def owner_of(inode: str) -> tuple[str, int] | None:
    """The name and pid of the process that has a socket; None if this user may not see it."""
    for entry in names_in("/proc"):
        for fd in names_in("/proc/%s/fd" % entry) if entry.isdigit() else ():
            try:
                if os.readlink("/proc/%s/fd/%s" % (entry, fd)) == "socket:[%s]" % inode:
                    return read("/proc/%s/comm" % entry).strip(), int(entry)
            except OSError:
                pass
    return None


def can_write(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK | os.X_OK)


def agent_of(state: str) -> str:
    """SHA-256 of the agent that a node runs, from its link."""
    try:
        return os.path.basename(os.readlink(os.path.join(state, "agent")))[:-4]
    except OSError:
        return ""


def listener(path: str) -> int:
    """The process that listens on a Unix socket; 0: none."""
    import struct

    probe = socket.socket(socket.AF_UNIX)
    probe.settimeout(1)
    directory = -1
    try:
        # The path may be longer than a socket address allows.
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        probe.connect("/proc/self/fd/%d/%s" % (directory, os.path.basename(path)))
        pid: int = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid
    except OSError:
        return 0
    finally:
        probe.close()
        if directory >= 0:
            os.close(directory)


def keeper(state: str, run: str) -> int:
    """The pid of the node's keeper; 0: none."""
    return listener(os.path.join(run, "keeper.sock")) if os.path.isdir(state) else 0


def processes(state: str) -> dict[int, str]:
    """The node's living processes (keeper, pct, launch …): pid -> kind.

    They are recognised by their titles, because sockets may be missing: logind removes their directory.
    """
    found = {}
    for entry in names_in("/proc"):
        title = title_of(entry) if entry.isdigit() else ""
        if title.startswith("redmesh-") and title.endswith(" (%s)" % state) and is_of(int(entry), state):
            found[int(entry)] = read("/proc/%s/comm" % entry).strip()[len("redmesh-") :]
    return found


def title_of(pid: str) -> str:
    # Without a file object: a host has many processes, and this takes half the time.
    try:
        fd = os.open("/proc/%s/cmdline" % pid, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.fsdecode(os.read(fd, 4096)).rstrip("\0")
    except OSError:
        return ""
    finally:
        os.close(fd)


def is_of(pid: int, state: str) -> bool:
    """True if a process belongs to this user and to the node with the directory ``state``, or if that is unknown.

    A process in a container may have another directory under the same path, and then belongs to another node.
    """
    try:
        if os.stat("/proc/%d" % pid).st_uid != os.geteuid():
            return False
        here = os.stat(state)
    except OSError:
        return os.path.exists("/proc/%d" % pid)
    try:
        there = os.stat("/proc/%d/root%s" % (pid, state))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


#: Seconds for a daemon to create a removed socket again; it checks every 2 s (agents/link/sockets.py, LOOK_S).
BACK_S = 5.0


def await_daemons(node: str) -> tuple[int, int]:
    """The pids of the node's keeper and PCT, 0 for a missing one. Raises Trouble if one lives and is unreachable."""
    state, run = place(node)
    deadline = time.monotonic() + BACK_S
    while True:
        there = processes(state)
        found = keeper(state, run), listener(pct_socket(node))
        missing = [(kind, pid) for pid, kind in there.items() if kind in ("keeper", "pct") and pid not in found]
        if found[0] or not missing:
            return found
        if time.monotonic() > deadline:
            told = ", ".join("%s (process %d)" % one for one in missing)
            hint = "kill -CONT continues a process that is stopped; mesh down --force ends the mesh"
            raise Trouble("agent", "its %s runs, but does not answer in %s: nothing was ended" % (told, run), hint)
        time.sleep(0.02)  # poll: sockets do not report their creation


def pct_socket(node: str) -> str:
    """The socket of the node's PCT."""
    return os.path.join(place(node)[1], node.partition("-")[2] + ".sock")


def own_directory(path: str) -> None:
    """Create ``path`` with mode 0700; raise Trouble unless it is a directory that only this user can access."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    there = os.lstat(path)
    if there.st_mode & 0o170077 != 0o040000 or there.st_uid != os.geteuid():
        raise Trouble("unsafe", "%s is not a directory of ours alone (mode 0700)" % path, "remove it")


def write(path: str, content: bytes) -> None:
    """Replace a file atomically; the new file has mode 0600 from its creation on."""
    new = "%s.%d" % (path, os.getpid())
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        os.replace(new, path)
    except OSError:
        os.unlink(new)
        raise


def install(state: str, sha: str, blobs: Blobs) -> str:
    """Install the agent's file, and point the node's link to it; returns its path."""
    directory = os.path.join(base(), "agents")
    own_directory(base())
    own_directory(directory)
    own_directory(os.path.join(base(), "nodes"))
    own_directory(state)
    path = os.path.join(directory, sha + ".pyz")
    # hosts may share a home directory, so another host may have written the file already
    if "agent" in blobs and not os.path.exists(path):
        write(path, blobs["agent"])
    elif not os.path.exists(path):
        raise Trouble("agent", "the agent has gone from %s meanwhile" % directory, "once more")
    check(path, sha)
    blobs.clear()  # forked processes would keep the contents in memory
    link = os.path.join(state, "agent")
    new = "%s.%d" % (link, os.getpid())
    os.symlink("../../agents/%s.pyz" % sha, new)
    os.replace(new, link)
    return path


def check(path: str, sha: str) -> None:
    """Raise Trouble unless the agent's file has the digest ``sha``: after a power failure it may be incomplete."""
    with open(path, "rb") as file:
        if digest(file.read()) == sha:
            return
    remove_file(path)
    raise Trouble("agent", "the agent arrived damaged at %s, or was since" % path, "once more: it has been removed")


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    # OpenSSL's is six times as fast as Python's own, and the keeper loads OpenSSL anyway. A site may have disabled it.
    try:
        from _hashlib import openssl_sha256

        return str(openssl_sha256(data).hexdigest())
    except (ImportError, ValueError):
        own: Any = __import__("_sha256" if sys.version_info < (3, 12) else "_sha2")
        return str(own.sha256(data).hexdigest())


def forget_agents() -> None:
    """Remove agents to which no node of this account links."""
    nodes = os.path.join(base(), "nodes")
    used = {agent_of(os.path.join(nodes, node)) for node in names_in(nodes)}
    directory = os.path.join(base(), "agents")
    for name in names_in(directory):
        if name[:-4] not in used:
            remove_file(os.path.join(directory, name))
    for path in (directory, nodes, base()):
        remove_empty(path)


def remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        pass


def start(node: str, sha: str, config: str, files: Blobs, listen: tuple[str, int], blobs: Blobs) -> Answer:
    """Install the agent and its files, and start its keeper, unless a keeper of this boot of the mesh runs.

    Returns the keeper's pid, and ``already``: whether it ran before.
    """
    state, run = place(node)
    pct = 0
    boot = life(node)
    if mesh_boot(config) == boot:
        pid, pct = await_daemons(node)
        if pid:
            return found_keeper(state, pid, files)
    elif boot or keeper(state, run):
        other = brought_up_by(state, value_in(config, "started_on"), files.get("ca.pem", b"").decode())
        if other:
            told = "its agent belongs to a mesh of the same name that was brought up on %s: nothing was ended" % other
            raise Trouble("agent", told, OTHER_HOME)
        end(state, run, 10)  # daemons of an earlier boot of the mesh
    if not pct:  # a PCT that outlived its keeper still listens on the port; the next keeper adopts it
        check_port(listen)
    path = install(state, sha, blobs)
    own_directory(os.path.dirname(run))
    own_directory(run)
    for name in ("log", "trust"):
        own_directory(os.path.join(state, name))
    renew(state, files)
    write(os.path.join(state, "keeper.json"), config.encode())
    try:
        return {"keeper": begin(state, run, path), "already": False}
    except Trouble:
        pid = await_daemons(node)[0]  # a concurrent ``mesh up`` may have started a keeper
        if not pid:
            raise
        return found_keeper(state, pid, files)


def found_keeper(state: str, pid: int, files: Blobs) -> Answer:
    """Leave a running keeper as it is, but replace its keys and certificates."""
    renew(state, files)  # keys may have been rotated while the host was unreachable
    os.kill(pid, 1)  # SIGHUP: retry at once what failed because of old keys
    return {"keeper": pid, "already": True}


def renew(state: str, files: Blobs) -> None:
    """Replace keys and certificates; daemons read them again."""
    for name, content in files.items():
        write(os.path.join(state, "trust", name), content)


def life(node: str) -> str:
    """The mesh boot id of the node's daemons; "" if there are none. Raises Trouble if it cannot be determined."""
    state, run = place(node)
    found = mesh_boot(read(os.path.join(state, "keeper.json")))
    if not found:  # agents/pct/heartbeat/boot_id.py: the mesh's boot id, a dash and the node's own
        found = read(os.path.join(run, "boot-" + node.partition("-")[2])).partition("-")[0]
    there = processes(state)
    if there and not found:
        told = ", ".join("%s (process %d)" % (kind, pid) for pid, kind in there.items())
        why = "of which mesh cannot be told without %s/keeper.json: nothing was ended" % state
        raise Trouble("agent", "its %s runs, and %s" % (told, why), "mesh down --force ends it, then mesh up")
    return found


def mesh_boot(config: str) -> str:
    """The mesh boot id in a node's keeper.json."""
    return value_in(config, "mesh_boot")


def value_in(config: str, key: str) -> str:
    """A string in a node's keeper.json; "" if it is not there."""
    return config.partition('"%s": "' % key)[2].partition('"')[0]


#: A mesh has its name from the path of its state directory, which may be the same on two machines of one user.
OTHER_HOME = "mesh down there, or XDG_STATE_HOME names another state directory here, and so the mesh"


def brought_up_by(state: str, started_on: str, ca: str) -> str:
    """The other machine whose mesh of the same name has its agent here; "" if there is none, or if that is not certain.

    ``started_on``, ``ca``: this mesh's machine and CA certificates. A machine that was renamed has the same CA.
    """
    there = value_in(read(os.path.join(state, "keeper.json")), "started_on")
    if not there or there == started_on or not processes(state):
        return ""
    end = "-----END CERTIFICATE-----"
    known = read(os.path.join(state, "trust", "ca.pem"))
    return "" if any(one.strip() and one in known for one in ca.split(end)[:-1]) else there


def other_port(kind: str, place: tuple[str, int]) -> str:
    """What to do about a taken port: a port of this host that is free.

    If another mesh's agent has the port, its RCA probably has the UDP port of the same number: one line changes both.
    """
    host, port = place
    socket_kind = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    for number in range(port + 1, min(port + 50, 1 << 16)):
        probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket_kind)
        try:
            probe.bind((host, number))
        except OSError:
            continue
        finally:
            probe.close()
        told = "agent_port = %d at the top of mesh.toml, for all hosts and this mesh's RCA: that port is free there"
        return told % number
    return "agent_port at the top of mesh.toml names another port, for all hosts and this mesh's RCA"


def check_port(listen: tuple[str, int]) -> None:
    """Check that the agent can listen at its address."""
    import errno

    host, port = listen
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    except OSError as error:
        place = "%s, port %d" % (host, port)
        if error.errno == errno.EADDRINUSE:
            who = holder("tcp", listen) or "another program"
            raise Trouble("port", "%s listens at %s" % (who, place), other_port("tcp", listen)) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise Trouble("address", "%s is not an address of this host" % host, "agent_address in mesh.toml") from None
        told = "the agent cannot listen at %s: %s" % (place, error.strerror)
        raise Trouble("port", told, "agent_port in mesh.toml") from None
    finally:
        probe.close()


def begin(state: str, run: str, path: str) -> int:
    """Start the keeper, detached from this process; return its pid once it listens."""
    log = os.path.join(state, "log", "keeper.stderr")
    reader, writer = os.pipe()
    if os.fork() == 0:  # the child is not waited for, because this process exits long before it
        try:
            os.setsid()
            become(state, path, log, writer)
        finally:
            os._exit(127)
    os.close(writer)
    import select

    # The keeper writes its pid when it listens; if it exits before that, the pipe is empty.
    told = os.read(reader, 16) if select.select([reader], [], [], 20)[0] else b"0"
    os.close(reader)
    if not told:
        raise Trouble("agent", "the agent did not start%s" % said(log), "its log is in %s/log" % state)
    if told == b"0":
        raise Trouble("agent", "the agent does not answer%s" % said(log), "its log is in %s/log" % state)
    return int(told)


def become(state: str, path: str, log: str, ready: int) -> None:
    """Become the keeper in this forked process: starting another Python would take ten times as long."""
    null = os.open("/dev/null", os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for fd, number in ((null, 0), (null, 1), (errors, 2), (ready, 3)):
        os.dup2(fd, number)
    os.closerange(4, 256)
    os.chdir("/")
    for name in [name for name in os.environ if name.startswith(("SSH_", "REDMESH_", "YOD_"))]:
        del os.environ[name]
    try:
        import gc
        import zipimport

        gc.disable()  # imports create no garbage; the keeper collects once afterwards (kernel.settle_memory)

        archive: dict[str, Any] = {"__name__": "archive"}
        exec(zipimport.zipimporter(path).get_code("__main__"), archive)  # console/deploy/agent/archive.py
        archive["open_archive"](path)
        os._exit(archive["main"](["keeper", "--config", os.path.join(state, "keeper.json"), "--ready", "3"]))
    except BaseException as error:
        os.write(2, ("%s: %s\n" % (type(error).__name__, error)).encode("utf-8", "backslashreplace"))


def said(path: str) -> str:
    """The last line of a log, as the end of a sentence."""
    lines = read(path)[-2000:].strip().splitlines()
    return ": " + lines[-1][:300] if lines else ""


def end(state: str, run: str, patience_s: float) -> int:
    """End the keeper and all processes of the node; returns how many had to be killed after the time-out."""
    killed = 0
    announce(state)
    pid = keeper(state, run)
    if pid and not gone(pid, 15, patience_s):
        killed += kill_tree(pid)
    for name in names_in(run):  # PCTs and launch children that a killed keeper left
        pid = listener(os.path.join(run, name)) if name.endswith(".sock") else 0
        if pid and not gone(pid, 15, 3):
            killed += kill_tree(pid)
    for kind in ("keeper", "pct", ""):  # processes whose sockets were removed; "": of any kind
        there = processes(state)
        if not there:
            break
        for pid, what in there.items():
            if kind in ("", what) and not gone(pid, 15, patience_s if kind == "keeper" else 3):
                killed += kill_tree(pid)
    return killed


def announce(state: str) -> None:
    """Have the node's daemons obey the SIGTERM that follows (agents/linux/ending.py)."""
    try:
        with open(os.path.join(state, "ending"), "a"):
            pass  # the keeper may have written its reason
    except OSError:
        pass  # nothing is there, or the disk is full: what does not obey is killed


def gone(pid: int, number: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    try:
        os.kill(pid, number)
        while time.monotonic() < deadline:
            if is_dead(pid):
                return True
            time.sleep(0.01)  # poll: not a child, and pidfds need Python 3.9 with Linux 5.3
    except OSError:
        return True
    return False


def is_dead(pid: int) -> bool:
    """True if a process has exited, reaped or not."""
    return read("/proc/%d/stat" % pid, ") Z").rpartition(")")[2].split()[0] == "Z"


def kill_tree(pid: int) -> int:
    """Kill a process and all its descendants, until none is left; returns how many."""
    killed = 0
    for _ in range(50):
        parents: dict[int, list[int]] = {}
        for entry in names_in("/proc"):
            stat = read("/proc/%s/stat" % entry).rpartition(")")[2].split() if entry.isdigit() else ()
            if len(stat) > 1 and stat[0] != "Z":
                parents.setdefault(int(stat[1]), []).append(int(entry))
        tree, at = [pid], 0
        while at < len(tree):
            tree += parents.get(tree[at], [])
            at += 1
        alive = [one for one in tree if not is_dead(one)]
        if not alive:
            return killed
        for one in alive:
            try:
                os.kill(one, 9)
                killed += 1
            except OSError:
                pass
        time.sleep(0.02)  # the kernel ends them
    return killed


def stop(node: str, keep_agent: bool, blobs: Blobs, started_on: str = "", ca: str = "") -> Answer:
    """End the node, and remove all its files but state objects, which are nowhere else.

    ``jobs`` in the answer: the UUIDs of these. With ``started_on``, a node of another machine's mesh is left alone.
    """
    state, run = place(node)
    if started_on and brought_up_by(state, started_on, ca):
        return {"was": False, "there": False, "killed": 0, "jobs": []}
    was = keeper(state, run)
    there = os.path.isdir(state)
    killed = end(state, run, 20)
    remove_tree(run)
    remove_empty(os.path.dirname(run))
    kept = jobs_in(os.path.join(state, "jobs"))
    if not kept:
        remove_tree(state)
    elif not os.path.islink(state):
        for name in names_in(state):
            if name != "jobs":
                remove_file(os.path.join(state, name))
                remove_tree(os.path.join(state, name))
    if not keep_agent:
        forget_agents()
    for path in program_places():
        images = "%s/redmesh-%s%d" % (path, "" if path == RAM_DISK else "programs-", os.geteuid())
        launches = [name for name in names_in(images) if name.startswith("launch-")]
        busy = launches + names_in(os.path.join(images, "images"))
        # Anybody may create that name: what another user has put there is not ours to remove.
        if not busy and not os.path.exists(os.path.dirname(run)) and is_ours(images):
            remove_tree(images)
    return {"was": bool(was), "there": there, "killed": killed, "jobs": kept}


def jobs_in(path: str) -> list[str]:
    """UUIDs of the state objects below a directory, but not of those whose only file there is a copy of an ended job.

    The files are described in agents/objects/holder.py.
    """
    found = set()
    for node in names_in(path):
        for name in names_in(os.path.join(path, node)):
            uuid, middle, ending = name.partition(".job")
            if middle and (
                ending in ("", ".sent", ".arrived", ".fenced")
                or (ending == ".standby" and not has_ended(os.path.join(path, node, name)))
            ):
                found.add(uuid)
    return sorted(found)


def has_ended(path: str) -> bool:
    """True if a state object says that its job has ended; False if that is not known."""
    try:
        import sqlite3
    except ImportError:
        return False
    try:
        job = sqlite3.connect(path)
        try:
            found = job.execute("SELECT value FROM meta WHERE key = 'state'").fetchone()
        finally:
            job.close()
    except sqlite3.Error:
        return False
    return bool(found) and found[0] in ("done", "failed", "cancelled")


def is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        if os.path.isdir(path):
            raise Trouble("files", "%s cannot be removed" % path, "remove it by hand")


def replace(node: str, sha: str, config: str, blobs: Blobs) -> Answer:
    """Replace the agent of a running node, whose launches continue."""
    state, run = place(node)
    pid = keeper(state, run)
    if not pid:
        raise Trouble("agent", "no agent runs there", "mesh up")
    path = install(state, sha, blobs)
    write(os.path.join(state, "keeper.json"), config.encode())
    # Kill the keeper and the PCT, because after SIGTERM they would end the launches; the next keeper adopts what runs.
    pct = listener(pct_socket(node))
    for one in (pid, pct):
        if one:
            gone(one, 9, 5)
    forget_agents()
    return {"keeper": begin(state, run, path), "already": False}


def probe(node: str, listen: tuple[str, int], rca: tuple[str, int], blobs: Blobs) -> Answer:
    """Prepare a test of the network: send a random word to the RCA's UDP port, and listen on the agent's port.

    Returns the word, and ``open``: whether this process listens (false if an agent runs).
    """

    state, run = place(node)
    word = os.urandom(8).hex()
    beat = socket.socket(socket.AF_INET6 if ":" in rca[0] else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        beat.sendto(word.encode(), tuple(rca))
    except OSError:
        pass
    finally:
        beat.close()
    if keeper(state, run) or "pct" in processes(state).values():
        return {"word": word, "open": False}
    check_port(listen)
    door = socket.socket(socket.AF_INET6 if ":" in listen[0] else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(tuple(listen))
    door.listen(1)
    globals()["_door"] = door  # keep the socket open until this process exits
    return {"word": word, "open": True}


def log(node: str, blobs: Blobs) -> Answer:
    """The last log lines of the node's daemons."""
    state, run = place(node)
    told = {}
    for name in names_in(os.path.join(state, "log")):
        told[name] = read(os.path.join(state, "log", name))[-2000:].strip().splitlines()[-4:]
    return {"keeper": keeper(state, run), "pct": listener(pct_socket(node)), "log": told}


def serve(word: str, source: Any, longest: int = 0) -> None:
    """Answer requests until the end of input.

    ``longest``: bytes of a line at most (0: any); the lines of an answer but its last then begin with ``word`` and +.
    """
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:
        from json.encoder import py_encode_basestring_ascii as quoted

    def text(value: Any) -> str:
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, dict):
            return "{%s}" % ", ".join("%s: %s" % (quoted(key), text(one)) for key, one in value.items())
        if isinstance(value, (list, tuple)):
            return "[%s]" % ", ".join(map(text, value))
        if value is None or isinstance(value, bool):
            return "null" if value is None else str(value).lower()
        return repr(value)

    operations: dict[str, Any] = {"start": start, "stop": stop, "replace": replace, "probe": probe, "log": log}
    while True:
        line = source.readline()
        if not line:
            return
        op, options, sizes = eval(line)  # eval is safe here: the sender of the request also sent this program
        blobs = {name: source.read(size) for name, size in sizes}
        try:
            answer = facts(**options) if op == "facts" else operations[op](blobs=blobs, **options)
        except Trouble as trouble:
            answer = dict(zip(("code", "error", "hint"), trouble.args))
        except OSError as error:
            code = {28: "space", 13: "permission", 30: "permission", 122: "space"}.get(error.errno or 0, "system")
            what = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error.strerror or error)
            answer = {"code": code, "error": what, "hint": ""}
        out = text(answer).encode("ascii", "backslashreplace")
        each = longest - len(word) - 2 if longest else len(out)
        lines = [out[at : at + each] for at in range(0, len(out), each)]
        for number, line in enumerate(lines, 1):
            mark = word.encode() + (b"+" if number < len(lines) else b"")
            sys.stdout.buffer.write(b"\n%s %s\n" % (mark, line))
        sys.stdout.buffer.flush()
