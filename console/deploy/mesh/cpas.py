"""Requests to any CPA of the mesh that answers."""

import glob
from contextlib import suppress
from typing import Any

from agents.link.client import Client, Unreachable
from agents.wire.errors import AgentError
from console.errors import ConsoleError
from console.settings import Settings


def ask_cpa(settings: Settings, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Return the reply of the first CPA that answers. Raises ConsoleError if none does, AgentError for an error reply.

    If a CPA exits before it answers, the next one is asked: requests have a key, or are idempotent.
    """
    paths = sorted(glob.glob(f"{glob.escape(settings.run_dir)}/cpa-*.sock"))
    last = ""
    for path in paths:
        try:
            with Client(path, "admin", timeout_s) as client:
                return client.call(request)
        except Unreachable as error:
            last = f": {error.message}"
        except AgentError as error:
            if error.code == "unknown_op":
                error.hint = "the CPAs of this mesh are of an earlier version: mesh upgrade"
            raise
    if not paths:
        raise ConsoleError("no mesh is up", "mesh up")
    raise ConsoleError(f"no CPA answers{last}", "mesh status")


def announce_change(settings: Settings) -> None:
    """Have the mesh's daemons read the state of the machine, which this command has changed in the database.

    They find it within a minute without this, if no CPA answers.
    """
    with suppress(ConsoleError, AgentError):
        ask_cpa(settings, {"op": "nodes_moved"})
