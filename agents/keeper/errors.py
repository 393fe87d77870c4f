"""What a keeper refuses or fails at."""

from agents.wire.errors import AgentError


class KeeperError(AgentError):
    """The root of this package's errors."""

    code = "keeper"


class Busy(KeeperError):
    """Launches run on the mesh that was to end."""

    code = "busy"
