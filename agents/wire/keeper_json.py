"""Reads ``keeper.json`` for the daemons."""

from __future__ import annotations

from agents.wire.control import decode
from agents.wire.errors import AgentError, WireError
from redmesh.resource_limits import limit_hint
from redmesh.settings.keeper_file import KeeperFile, read_keeper_file
from redmesh.settings.record import MissingFields


class ConfigError(AgentError):
    """An unusable configuration of a daemon."""

    code = "invalid"
    exit_status = 2


def read_keeper_json(path: str) -> KeeperFile:
    """Read ``keeper.json`` at ``path``. Raises ConfigError, which names the file and the fault."""
    try:
        with open(path, "rb") as file:
            return read_keeper_file(decode(file.read()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", limit_hint(error)) from None
    except MissingFields as error:
        raise ConfigError(f"{path} lacks {error}", "run: mesh up") from None
    except (WireError, ValueError) as error:
        raise ConfigError(f"{path} is not a keeper.json: {error}", "run: mesh up") from None
