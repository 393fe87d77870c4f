"""Asking whichever CPA of the mesh answers."""

import glob
from typing import Any

from agents.link.client import Client, Unreachable
from console.errors import ConsoleError
from console.settings import Settings


def ask_cpa(settings: Settings, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """The reply of the first CPA that gives one; ConsoleError when none does, AgentError as it says.

    A CPA that went with the request unanswered is not asked again but the next one: requests carry a key, or
    may be made twice.
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
