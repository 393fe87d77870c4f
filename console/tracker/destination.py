"""The login processor on which a job is to continue, as the tracker has it (``goes_to``)."""

from __future__ import annotations

import contextlib
import os
import time

from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import ask_cpa
from console.errors import ConsoleError
from console.settings import Settings
from redmesh.state import url_on

#: Seconds: between two looks; until a move is given up as slow.
_LOOK_S, LONGEST_S = 0.25, 120.0


def continue_on(settings: Settings, uuid: str, login: str, uid: int | None = None) -> None:
    """Record that a running job is to continue on ``login``. Raises AgentError or ConsoleError."""
    uid = os.geteuid() if uid is None else uid
    ask_cpa(settings, {"op": "state_send", "uuid": uuid, "login": login, "uid": uid})


def stay(settings: Settings, uuid: str, login: str, uid: int | None = None) -> None:
    """Record that a job is not to move to ``login`` any more. If no CPA answers, its move goes on."""
    uid = os.geteuid() if uid is None else uid
    with contextlib.suppress(AgentError, ConsoleError):
        ask_cpa(settings, {"op": "state_stay", "uuid": uuid, "login": login, "uid": uid})


def await_arrival(settings: Settings, uuid: str, login: str) -> int:
    """Wait until a job continues on ``login``; returns the number of its moves. Raises AgentError or ConsoleError."""
    until, answered = time.monotonic() + LONGEST_S, ""
    while time.monotonic() < until:
        try:
            found = ask_cpa(settings, {"op": "state_locate", "uuid": uuid})
        except (AgentError, ConsoleError) as error:
            if getattr(error, "code", "") == "invalid":
                raise ConsoleError(f"job {uuid} was purged", "mesh job list", exit_status=1) from None
            answered = f": {error.message}"  # the CPA that was asked has died
        else:
            if not found["goes_to"]:
                if found["url"] == url_on(login, uuid):
                    return int(found["counter"])
                raise ConsoleError(f"job {uuid} stays where it is", "mesh job log tells why", exit_status=1)
        time.sleep(_LOOK_S)  # poll: a CPA does not report changes of a location
    raise ConsoleError(
        f"job {uuid} does not run on {login} after {LONGEST_S:g} s{answered}",
        "it goes on there as soon as it can; mesh job log tells what it waits for", exit_status=1,
    )  # fmt: skip
