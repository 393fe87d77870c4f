"""The agent's archive, built once in a run of the tests, and given to every mesh that puts agents on hosts.

Building costs a second of processor time (console/deploy/agent/build.py), and dozens of tests have such a mesh.
"""

import shutil
import sys
from pathlib import Path

from console.deploy.agent import build
from tests.support.once import made_once


def _build(directory: Path) -> None:
    build.agent_for(sys.implementation.cache_tag, str(directory))


def give_agent(state: Path) -> None:
    """Put the archive where a mesh with this state directory would have built it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(made_once("agent", _build), state / "agents")
