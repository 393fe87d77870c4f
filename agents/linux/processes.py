"""Processes in /proc: start times, states, trees; and signals that never reach a wrong process.

No ctypes here, because yod, RCA and CPA import this module. Kernel calls that need it are in agents/linux/prctl.py.
"""

from __future__ import annotations

import errno
import os

from agents.link.lean import signal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

    #: pid -> parent, session, start time
    Families = Dict[int, Tuple[int, int, int]]

#: The variable in every rank's environment that identifies strays of a dead launch child: mesh/node/launcher.
MARK = "REDMESH_LAUNCH"


def _stat(pid: int) -> List[bytes]:
    # Fields of /proc/PID/stat from the third on; the second (the name) may contain blanks and parentheses.
    # Without a file object, which doubles the time: some callers read all processes.
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.read(fd, 1024)
    except OSError:
        return []
    finally:
        os.close(fd)
    return data[data.rfind(b")") + 2 :].split()


def start_time(pid: int) -> int:
    """The start time of ``pid`` in clock ticks since boot (field 22 of /proc/PID/stat); 0 if it does not exist."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def state(pid: int) -> str:
    """The state letter (R, S, D, T, t, Z, X …) of ``pid``; empty if it does not exist."""
    fields = _stat(pid)
    return fields[0].decode("ascii") if fields else ""


def exit_code(pid: int) -> Optional[int]:
    """The wait(2) status of an unreaped ``pid``; otherwise None."""
    fields = _stat(pid)
    return int(fields[49]) if len(fields) > 49 and fields[0] == b"Z" else None


def alive(pid: int, started: int = 0) -> bool:
    """True if ``pid`` runs (a zombie does not), and began at ``started`` if given."""
    fields = _stat(pid)
    if len(fields) <= 19 or fields[0] in (b"Z", b"X"):
        return False
    return not started or int(fields[19]) == started


def is_gone(pid: int, started: int) -> bool:
    """True if it is certain that the process ``pid`` that began at ``started`` (0: any) has exited.

    ``alive`` is also False if /proc cannot be read, for example because this process has no descriptor left.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it belongs to another user
    fields = _stat(pid)
    if len(fields) <= 19:
        return False
    return fields[0] in (b"Z", b"X") or (started > 0 and int(fields[19]) != started)


def start_time_of_user(pid: int, uid: int) -> int:
    """The start time of ``pid`` if it runs and one of its uids is ``uid``; otherwise 0.

    A pid that the kernel reported for a user's connection may belong to another user's process by now.
    """
    began = start_time(pid)
    return began if began and uid in uids(pid) and alive(pid, began) else 0


def uids(pid: int) -> List[int]:
    """Real, effective, saved and file system uid of ``pid``; empty if it does not exist."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            lines = file.read(4096).split(b"\n")
    except OSError:
        return []
    return next(([int(word) for word in line.split()[1:]] for line in lines if line.startswith(b"Uid:")), [])


def threads(pid: int) -> List[int]:
    """The threads of ``pid``, including itself; empty if it does not exist."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def parent(pid: int) -> int:
    """The parent of ``pid``; 0 if it does not exist."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def ancestors(pid: int) -> Set[int]:
    """``pid``, its parent, and so on to the first process."""
    found: Set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        pid = parent(pid)
    return found


def nearest_ancestor(pid: int, name: str) -> Tuple[int, int]:
    """Pid and start time of the nearest ancestor whose command name (/proc/PID/comm) is ``name``; (0, 0): none."""
    child, seen = pid, {0, pid}
    while (found := parent(child)) not in seen:
        seen.add(found)
        try:
            with open(f"/proc/{found}/comm", encoding="utf-8", errors="replace") as file:
                is_it = file.read().rstrip("\n") == name
        except OSError:
            return 0, 0
        if is_it:
            started = start_time(found)
            # Its pid may be in use again: then the child has another parent by now.
            return (found, started) if started and parent(child) == found else (0, 0)
        child = found
    return 0, 0


def family(pid: int) -> Optional[Tuple[int, int, int]]:
    """Parent, session and start time of ``pid``; None if it does not exist or is a zombie."""
    fields = _stat(pid)
    if len(fields) <= 19 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


def families() -> Families:
    """:func:`family` of every process, by pid."""
    table = {}
    for pid in pids():
        found = family(pid)
        if found is not None:
            table[pid] = found
    return table


def pids() -> List[int]:
    """The pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children(pid: int) -> List[int]:
    """The direct children of ``pid``, including zombies."""
    found: List[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                while True:
                    data = file.read(65536)
                    if not data:
                        break
                    found += map(int, data.split())
        return found
    except FileNotFoundError:
        # It does not exist, or the kernel lacks CONFIG_PROC_CHILDREN.
        return [child for child in pids() if parent(child) == pid] if os.path.exists(f"/proc/{pid}") else []
    except OSError as error:
        if error.errno == errno.ESRCH:
            return []
        raise


def descendants(pid: int) -> List[int]:
    """Children, grandchildren … of ``pid``, parents before their children."""
    found: List[int] = []
    ahead = [pid]
    seen: Set[int] = {pid}
    while ahead:
        for child in children(ahead.pop()):
            if child not in seen:
                seen.add(child)
                found.append(child)
                ahead.append(child)
    return found


def environment(pid: int) -> Dict[str, str]:
    """The initial environment of ``pid``; empty if it is unreadable."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            data = file.readall()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name.decode("latin-1"): value.decode("latin-1") for name, _, value in pairs}


def marked(mark: str, among: Optional[Iterable[int]] = None) -> List[int]:
    """Processes (of ``among``) whose environment marks them as part of a launch.

    ``mark`` is mesh/node/launcher, or mesh/node/.
    """
    wanted = f"{MARK}={mark}".encode("latin-1")
    whole = not mark.endswith("/")
    found = []
    for pid in pids() if among is None else among:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                data = b"\0" + file.readall()
        except OSError:
            continue
        if b"\0" + wanted + (b"\0" if whole else b"") in data:
            found.append(pid)
    return found


def is_agent(pid: int, name: bytes = b"redmesh-") -> bool:
    """True if ``pid`` has an agent's name and our rights, because any process may have any name.

    A launch child that acts as a user has our uid as its saved uid. Also True for a process that has exited.
    """
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            lines = file.read(4096).split(b"\n")
    except OSError:
        return True
    uids: List[bytes] = next((line.split() for line in lines if line.startswith(b"Uid:")), [])
    return lines[0].partition(b":\t")[2].startswith(name) and len(uids) == 5 and int(uids[3]) == os.geteuid()


def send_signal(pid: int, number: int, started: int = 0) -> bool:
    """Signal ``pid`` if it is still the process that began at ``started`` (0: any). Returns whether it existed.

    Raises PermissionError if it belongs to another user.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        handle = -1  # an old kernel: the check before the signal must suffice
    try:
        if started and start_time(pid) != started:
            return False
        if handle < 0:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)


#: In a launch child that acts as a user: runs a function as root (agents/pct/multiuser/identity.py).
as_root: Optional[Callable[[Callable[[], Any]], Any]] = None


def kill_all(victims: Iterable[int]) -> List[int]:
    """SIGKILL each process; returns those that may not be killed."""
    refused = []
    for pid in victims:
        try:
            send_signal(pid, signal.SIGKILL)
        except PermissionError:
            refused.append(pid)
    if refused and as_root is not None and os.geteuid():
        found: List[int] = as_root(lambda: kill_all(refused))  # programs that changed their uid
        return found
    return refused
