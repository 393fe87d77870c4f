"""The process table for parallel debuggers (MPIR Process Acquisition Interface, MPI Forum 2010).

The interface defines the names: ``MPIR_proctable`` has host, executable and process of every rank, in rank order.
"""

from __future__ import annotations

import os

from agents.wire.address import parse
from console.errors import ConsoleError, next_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.options.request import Request
    from console.launch.plan import Plan
    from console.launch.ranks import Ranks

_SPAWNED = 1  # MPIR_DEBUG_SPAWNED


def table(plan: Plan, request: Request, ranks: Ranks) -> list[dict[str, Any]]:
    """Return an entry for each rank. The host is the one on which a debugger starts its own agent."""
    here = os.uname().nodename
    hosts = [here if node.address.startswith("/") else parse(node.address).host for node in plan.nodes]
    paths = [request.program.path] * plan.size
    if request.program.segments is not None:
        paths = [one.path for one in request.program.segments for _ in range(one.size)]
    return [
        {"host_name": hosts[at], "executable_name": os.path.normpath(os.fsdecode(paths[rank])), "pid": pid}
        for rank, (pid, at) in enumerate(ranks.pids)
    ]


def document(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The table as a JSON document."""
    return {
        "MPIR_debug_state": _SPAWNED,
        "MPIR_i_am_starter": 1,
        "MPIR_proctable_size": len(entries),
        "MPIR_proctable": entries,
    }


def write(path: str, entries: list[dict[str, Any]]) -> None:
    """Write the file atomically, because debuggers wait for it. Raises ConsoleError."""
    import json

    part = f"{path}.{os.getpid()}.part"
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(document(entries), file, indent=1)
            file.write("\n")
        os.rename(part, path)
    except OSError as error:
        told = f"the process table cannot be written to {path}: {error.strerror}"
        raise ConsoleError(told, next_step(error, writing=True)) from None


_STUB = """\
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

static MPIR_PROCDESC processes[] = {
%s};

MPIR_PROCDESC *MPIR_proctable = processes;
int MPIR_proctable_size = %d;
volatile int MPIR_being_debugged = 0;
volatile int MPIR_debug_state = %d;
volatile int MPIR_debug_gate = 1;
char *MPIR_debug_abort_string = 0;
int MPIR_i_am_starter = 1;
int MPIR_acquired_pre_main = 0;
int MPIR_partial_attach_ok = 1;

void MPIR_Breakpoint(void)
{
}

int main(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* where Yama lets only ancestors trace */
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    printf("ready\\n");
    fflush(stdout);
    MPIR_Breakpoint();
    for (;;)
        pause();
}
"""


def stub(entries: list[dict[str, Any]]) -> str:
    """A C program with the table as its symbols, for debuggers that attach to a starter."""
    rows = "".join(
        f"    {{{_string(one['host_name'])}, {_string(one['executable_name'])}, {int(one['pid'])}}},\n"
        for one in entries
    )
    return _STUB % (rows, len(entries), _SPAWNED)


def _string(text: str) -> str:
    # Octal with three digits, so that no following character can extend the escape.
    plain = b"/._-+ 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in os.fsencode(text)) + '"'
