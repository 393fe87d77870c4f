"""The program that a batch system starts for each rank (``--parent=rank``): it connects to the launch child and
becomes the rank.

It runs as ``python3 -I -S -c TEXT`` and imports only built-in modules, because every other one would cost each rank
milliseconds. REDMESH_STARTER is ``NAME TOKEN HOST``, or ``NAME TOKEN $VARIABLE`` if the batch system sets the host in a
variable: the launch child of this host listens at the abstract socket ``redmesh-NAME-HOST``. Both must run as the same
user, and the token proves that the starter belongs to the launch. The answer is the rank's start data; its descriptors
come as SCM_RIGHTS. The connection stays open over the exec: REDMESH_QUERY_FD is its descriptor.
"""

import _socket
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

#: Seconds in which the launch child must listen, and answer.
PATIENCE_S = 60.0
_POLL_S = 0.005
#: The signals of agents/linux/batch_signals.py; SIGTSTP.
FORWARDED = (1, 2, 3, 10, 12, 14, 15, 18, 20, 24, 26, 27, 29, 30)
TSTP = 20


def _die(text: str) -> None:
    posix.write(2, b"redmesh starter: " + text.encode() + b"\n")
    posix._exit(125)


def connect(environ: "dict[bytes, bytes]") -> "tuple[_socket.socket, bytes]":
    """A connection to the launch child, verified to be our user's; and the token."""
    name, token, host = environ.get(b"REDMESH_STARTER", b"").split(b" ", 2)
    if host[:1] == b"$":
        host = environ.get(host[1:], b"")
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            sock.connect(b"\0redmesh-" + name + b"-" + host)
            break
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                _die("no launch child of host %r waits for this rank" % host.decode("utf-8", "replace"))
            time.sleep(_POLL_S)  # poll: an abstract socket does not report its creation
    peer = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    if int.from_bytes(peer[4:8], sys.byteorder) != posix.geteuid():
        _die("who answers is another user's process")
    yama(int.from_bytes(peer[:4], sys.byteorder))
    return sock, token


def yama(launch_child: int) -> None:
    """Permit the launch child to trace us if only ancestors may (Yama's ptrace_scope 1)."""
    try:
        fd = posix.open("/proc/sys/kernel/yama/ptrace_scope", posix.O_RDONLY)
    except OSError:
        return
    scope = posix.read(fd, 8)
    posix.close(fd)
    if scope.strip() == b"1":
        import ctypes

        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(launch_child), 0, 0, 0)


def new_session() -> None:
    """Create a session and process group of our own, without which the launch child refuses us.

    The leader of a group must first join another one and wait until the group is empty: Slurm puts all tasks of a step
    on a host into the group of the first.
    """
    give_up = time.monotonic() + PATIENCE_S
    while posix.getsid(0) != posix.getpid() and time.monotonic() < give_up:
        try:
            posix.setsid()
            return
        except PermissionError:
            pass
        try:
            posix.setpgid(0, posix.getpgid(posix.getppid()))
        except OSError:
            return
        time.sleep(_POLL_S)  # poll: a process group does not report that it is empty


def receive(sock: "_socket.socket") -> "tuple[list[bytes], list[int]]":
    """The fields of the answer, and its descriptors."""
    data, ancillary, _flags, _address = sock.recvmsg(1 << 16, 256)
    fds = [
        int.from_bytes(part[at : at + 4], sys.byteorder)
        for _level, _kind, part in ancillary
        for at in range(0, len(part), 4)
    ]
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = sock.recv(1 << 16)
        if not more:
            posix._exit(125)  # the launch ended before it began
        data += more
    return data[4:].split(b"\0"), fds


def become(sock: "_socket.socket", fields: "list[bytes]", fds: "list[int]") -> None:
    """Exec the rank; never returns. A failure is reported to the launch child: the step and the errno."""
    path, cwd, numbers, entries = fields[0], fields[1], fields[2].split(), fields[3:]
    umask, terminal, kept, count = (int(number) for number in numbers)
    step = 1
    try:
        # Higher than every descriptor that is set below.
        query = max([kept, 63, *fds]) + 1
        posix.dup2(sock.fileno(), query, True)
        high = [posix.dup2(fd, query + 1 + at, False) for at, fd in enumerate(fds)]
        for target, fd in zip((0, 1, 2, kept), high):  # noqa: B905  (strict needs Python 3.10)
            posix.dup2(fd, target, True)
        for fd in fds:  # these came without close-on-exec
            if fd not in (0, 1, 2, kept):
                posix.close(fd)
        if terminal:
            import fcntl
            import termios

            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        posix.umask(umask)
        step = 2
        posix.chdir(cwd)
        step = 3
        for number in range(1, _signal.NSIG):
            if number not in (_signal.SIGKILL, _signal.SIGSTOP, 32, 33):
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        environ = dict(entry.split(b"=", 1) for entry in entries[count:])
        environ[b"REDMESH_QUERY_FD"] = b"%d" % query
        limit(environ.pop(b"REDMESH_RANK_LIMITS", b""))
        posix.execve(path, entries[:count], environ)
    except (OSError, MemoryError) as error:  # MemoryError: the limits leave this interpreter nothing
        number = getattr(error, "errno", 12) or 0
        sock.send(bytes((step,)) + number.to_bytes(4, "big"))
        posix._exit(127 if number == 2 else 126)


def limit(limits: bytes) -> None:
    """Set soft limits, ``NUMBER:SOFT`` separated by commas, as far as the hard limits allow (-1: unlimited)."""
    if limits:
        import resource

        for pair in limits.split(b","):
            number, soft = map(int, pair.split(b":"))
            hard = resource.getrlimit(number)[1]
            most = soft if hard == -1 or -1 < soft <= hard else hard
            resource.setrlimit(number, (most, hard))


def stay(pids: "list[int]") -> None:
    """Pass the batch system's signals on to the ranks, whose sessions it does not know, until all have exited; exit
    with the highest status. A death by a signal becomes an exit status."""

    def forward(number: int, _frame: object) -> None:
        for pid in pids:
            try:
                posix.killpg(pid, _signal.SIGSTOP if number == TSTP else number)
            except OSError:
                pass

    for number in FORWARDED:
        _signal.signal(number, forward)
    statuses = []
    while pids:
        info = posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOWAIT)
        assert info is not None  # without WNOHANG
        pids.remove(info.si_pid)  # before the pid is free for another process
        statuses.append(posix.waitpid(info.si_pid, 0)[1])
    posix._exit(max(128 + (status & 127) if status & 127 else status >> 8 for status in statuses))


def main() -> None:
    """Connect to the launch child and become the rank that it names.

    With REDMESH_STARTER_STAYS, so many children do that, and this process stays as their parent.
    """
    count = int(posix.environ.get(b"REDMESH_STARTER_STAYS", b"0"))
    pids: "list[int]" = []
    while len(pids) < count:
        pid = posix.fork()
        if not pid:
            break
        pids.append(pid)
    else:
        if pids:
            stay(pids)
    sock, token = connect(posix.environ)
    new_session()
    sock.send(token)
    become(sock, *receive(sock))


if __name__ == "__main__":
    main()
