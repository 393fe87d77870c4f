"""``python -P -m redmesh simulated --config keeper.json --name sim-0``"""

from __future__ import annotations

import sys

from agents.wire.errors import AgentError
from agents.wire.keeper_json import read_keeper_json
from simulated.daemon import serve

TYPE_CHECKING = False


def main(arguments: list[str]) -> int:
    """Stand in for nodes until SIGTERM or SIGINT; returns the exit status."""
    if len(arguments) != 4 or arguments[0] != "--config" or arguments[2] != "--name":
        print("usage: python -P -m redmesh simulated --config FILE --name NAME", file=sys.stderr)
        return 2
    try:
        serve(read_keeper_json(arguments[1]), arguments[3])
    except (OSError, ValueError, KeyError) as error:
        print(f"simulated: {arguments[1]}: {error!r}", file=sys.stderr)
        return 2
    except AgentError as error:
        print(f"simulated: {error.message} ({error.hint})", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
