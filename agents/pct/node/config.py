"""PCTs of service nodes (the PCT emulator, row A11): the same protocol, lower priority, limits of their own."""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict

ROLE = "service"
#: Added to the nice value of whatever runs there: logins and file systems come first.
NICE = 10


class Service:
    """What launches on a service node have to live with; ``memory`` is bytes of address space, 0 for any."""

    __slots__ = ("memory",)

    def __init__(self, config: Dict[str, Any]) -> None:
        self.memory = int(config.get("service_memory_mb", 0)) << 20

    def begin(self) -> None:
        """Bind this process, a launch child, and all that it starts."""
        os.nice(NICE)
        if self.memory:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            least = self.memory if hard == resource.RLIM_INFINITY else min(self.memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (least, least))
