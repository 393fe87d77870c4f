"""The node's topology in hwloc's format, determined once instead of by every rank.

MPICH asks hwloc at MPI_Init for the machine's topology, for which hwloc reads some hundred files of /sys: half of the
work of a small program's start. hwloc can read a file instead (HWLOC_XMLFILE), and ignores a missing or damaged one.
"""

from __future__ import annotations

import ctypes
import os
import signal

LIBRARY = "libhwloc.so.15"  # hwloc 2; other 2.x versions can read its output
_ALL_DEVICES = 0  # HWLOC_TYPE_FILTER_KEEP_ALL


def offered(run: str) -> str:
    """The file, if it exists; otherwise "", and a helper starts to create it for later launches."""
    path = os.path.join(run, "hwloc.xml")
    if os.path.exists(path):
        return path
    _, user, saved = os.getresuid()
    if user != saved:
        return ""  # system mode: this directory belongs to one launch and goes with it
    try:
        helper = os.fork()
    except OSError:
        return ""
    if helper == 0:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.closerange(3, 1 << 16)  # the helper must not keep the launch child's links open
            make(path)
        finally:
            os._exit(0)
    return ""


def make(path: str) -> None:
    """Write the file atomically. Raises OSError if hwloc is not installed."""
    library = ctypes.CDLL(LIBRARY)
    topology = ctypes.c_void_p()
    part = f"{path}.{os.getpid()}"
    if library.hwloc_topology_init(ctypes.byref(topology)):
        raise OSError("no topology")
    library.hwloc_topology_set_io_types_filter(topology, _ALL_DEVICES)  # MPIs look for network cards
    if library.hwloc_topology_load(topology):
        raise OSError("no topology")
    if library.hwloc_topology_export_xml(topology, os.fsencode(part), ctypes.c_ulong(0)):
        raise OSError("the topology cannot be written")
    os.rename(part, path)
