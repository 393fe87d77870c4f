"""Reads ``keeper.json`` for the daemons."""

from __future__ import annotations

from agents.wire.control import decode
from agents.wire.errors import AgentError, WireError
from redmesh.resource_limits import limit_hint
from redmesh.settings.keeper_file import read_keeper_file, read_place
from redmesh.settings.record import MissingFields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, TypeVar

    from redmesh.settings.keeper_file import KeeperFile, PlaceInFile

    T = TypeVar("T")


class ConfigError(AgentError):
    """An unusable configuration of a daemon."""

    code = "invalid"
    exit_status = 2


def read_keeper_json(path: str) -> KeeperFile:
    """Read ``keeper.json`` at ``path``. Raises ConfigError, which names the file and the fault."""
    return _read(path, read_keeper_file)


def place_in(path: str) -> PlaceInFile:
    """What commands need of ``keeper.json`` at ``path``. Raises ConfigError as :func:`read_keeper_json`."""
    return _read(path, read_place)


def _read(path: str, reader: Callable[[object], T]) -> T:
    try:
        with open(path, "rb") as file:
            return reader(decode(file.read()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", limit_hint(error)) from None
    except MissingFields as error:
        raise ConfigError(f"{path} lacks {error}", "run: mesh up") from None
    except (WireError, ValueError) as error:
        raise ConfigError(f"{path} is not a keeper.json: {error}", "run: mesh up") from None
