"""The CPA that somebody names (``--cpa ADDRESS``, ``--cpa-pid PID``; the original's -nid and -pid)."""

from __future__ import annotations

import os

from agents.link.sockets import connect, peer
from agents.wire.errors import AgentError
from console.errors import ConsoleError
from console.launch.authority import SILENT_S, cpa_sockets
from console.launch.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from console.launch.request import Request
    from console.settings import Settings


def reach_named(settings: Settings, request: Request) -> tuple[str, socket.socket]:
    """RUN of that CPA's mesh and a connection to it. ConsoleError when it does not answer; no mesh is started."""
    shown = clean(request.cpa)
    if "/" in request.cpa:
        paths = [os.path.abspath(request.cpa)]
    elif request.cpa:
        paths = [f"{settings.run_dir}/{request.cpa.removesuffix('.sock')}.sock"]
    else:
        paths = cpa_sockets(settings.run_dir)
        shown = f"of process {request.cpa_pid}"
    reason = "no such socket"
    for path in paths:
        try:
            sock = connect(path, SILENT_S)
        except (OSError, AgentError) as error:
            reason = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)
            continue
        if not request.cpa_pid or peer(sock).pid == request.cpa_pid:
            return os.path.dirname(path), sock
        reason = f"it is process {peer(sock).pid}" if request.cpa else "no CPA here is that process"
        sock.close()
    raise ConsoleError(f"the CPA {shown} does not answer: {reason}", "mesh status names the CPAs and their processes")
