"""Requests to any CPA of the mesh that answers."""

import glob
from typing import Any

from agents.link.client import Client, Unreachable
from console.errors import ConsoleError
from console.settings import Settings


def ask_cpa(settings: Settings, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """The reply of the first CPA that answers. Raises ConsoleError if none does, AgentError as the CPA reports it.

    If a CPA dies with the request unanswered, the next one is asked: requests have a key, or may be repeated.
    """
    paths = sorted(glob.glob(f"{glob.escape(settings.run_dir)}/cpa-*.sock"))
    last = ""
    for path in paths:
        try:
            with Client(path, "admin", timeout_s) as client:
                return client.call(request)
        except Unreachable as error:
            last = f": {error.message}"
    if not paths:
        raise ConsoleError("no mesh is up", "mesh up")
    raise ConsoleError(f"no CPA answers{last}", "mesh status")
