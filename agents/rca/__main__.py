"""``python -P -m redmesh rca --config keeper.json``"""

import os
import sys

from agents.link.acceptor import allow_many_files
from agents.link.journal import Journal
from agents.link.lean import signal
from agents.link.loop import Loop
from agents.linux.ending import expect_signals, on_terminate
from agents.rca.config import Config
from agents.rca.daemon import Rca
from agents.wire.errors import AgentError
from agents.wire.keeper_json import ConfigError, read_keeper_json
from redmesh.resource_limits import limit_hint


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    try:
        if len(arguments) != 2 or arguments[0] != "--config":
            raise ConfigError("usage: python -P -m redmesh rca --config FILE")
        config = Config(read_keeper_json(arguments[1]))
        allow_many_files()
        loop = Loop()
        rca = Rca(loop, config, Journal(os.path.join(config.state, "log", "rca.jsonl"), "rca"), os.geteuid())
        rca.start()
    except AgentError as error:
        print(f"rca: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_status
    except OSError as error:
        hint = limit_hint(error)
        print(f"rca: {error}" + (f" ({hint})" if hint else ""), file=sys.stderr)
        return 1
    if config.signalled:
        expect_signals(config.state)
    on_terminate(loop, rca.stop, signal.SIGTERM, signal.SIGINT)
    try:
        loop.run()
    except Exception as error:
        # The keeper starts another RCA, which finds everything it needs; the log keeps the reason.
        import traceback

        rca.journal.write("fault", trace=traceback.format_exc())
        print(f"rca: ended by a fault of its own: {error!r}", file=sys.stderr)
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
