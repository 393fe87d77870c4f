"""Errors of a keeper."""

from agents.wire.errors import AgentError


class KeeperError(AgentError):
    """The base class of this package's errors."""

    code = "keeper"


class Busy(KeeperError):
    """Launches run on the mesh that was to end."""

    code = "busy"
