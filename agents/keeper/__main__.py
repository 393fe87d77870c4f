"""``python -P -m redmesh keeper --config keeper.json [--detach] [--ready FD]``"""

from __future__ import annotations

import os
import sys

from agents.keeper.errors import KeeperError
from agents.keeper.keeper import Keeper
from agents.keeper.spawn import detach_stdio
from agents.wire.errors import AgentError
from agents.wire.keeper_json import read_keeper_json
from redmesh.resource_limits import limit_hint

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List

_USAGE = "usage: python -P -m redmesh keeper --config keeper.json [--detach] [--ready FD]"


def main(arguments: List[str]) -> int:
    """Run the mesh's daemons until told to end; returns the exit status. ``--ready``: where to write our pid once we
    listen."""
    detach = "--detach" in arguments
    words = [word for word in arguments if word != "--detach"]
    ready = int(words.pop()) if len(words) == 4 and words[2] == "--ready" and words[3].isdigit() else -1
    words = words[:2] if ready >= 0 else words
    if len(words) != 2 or words[0] != "--config":
        print(_USAGE, file=sys.stderr)
        return 2
    path = os.path.abspath(words[1])
    try:
        config = read_keeper_json(path)
        if detach and not _detach():
            return 0
        keeper = Keeper(config, path)
        if detach:
            detach_stdio(os.path.join(config.state, "log", "keeper.stderr"))
        if ready >= 0:
            os.write(ready, b"%d" % os.getpid())
            os.close(ready)
        keeper.run()
    except OSError as error:
        return _complain(KeeperError(f"{error.filename or path}: {error.strerror}", limit_hint(error), exit_status=2))
    except AgentError as error:
        return _complain(error)
    return 0


def _detach() -> bool:
    # False in the process that was called: the keeper continues in another process with its own session.
    if os.fork():
        return False
    os.setsid()
    os.chdir("/")
    return True


def _complain(error: AgentError) -> int:
    print(f"keeper: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
