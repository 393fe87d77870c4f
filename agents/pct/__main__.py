"""``python -P -m redmesh pct --config keeper.json --node NAME``: the PCT of one node, in the foreground."""

from __future__ import annotations

import sys

from agents.linux import prctl
from agents.pct.errors import PctError
from agents.pct.node.daemon import serve
from agents.wire.errors import AgentError
from agents.wire.keeper_json import read_keeper_json
from redmesh.resource_limits import limit_hint

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List

_USAGE = "usage: python -P -m redmesh pct --config keeper.json --node NAME"


def main(arguments: List[str]) -> int:
    """Run the PCT; returns the exit status."""
    options = {arguments[i]: arguments[i + 1] for i in range(0, len(arguments) - 1, 2)}
    if len(arguments) != 4 or set(options) != {"--config", "--node"}:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        file = read_keeper_json(options["--config"])
        prctl.settle_memory()
        serve(file, options["--node"])
    except OSError as error:
        told = f"{error.filename or options['--config']}: {error.strerror}"
        return _complain(PctError(told, limit_hint(error), exit_status=2))
    except AgentError as error:
        return _complain(error)
    return 0


def _complain(error: AgentError) -> int:
    print(f"pct: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
