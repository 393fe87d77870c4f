"""``python -P -m redmesh cpa --config keeper.json --name cpa-0``"""

import gc
import os
import signal
import sys

from agents.cpa.config import read
from agents.cpa.daemon import Cpa
from agents.link.acceptor import allow_many_files
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.linux.ending import expect_signals, on_terminate
from agents.wire.errors import AgentError
from agents.wire.keeper_json import ConfigError
from db.errors import StoreError
from db.store.store import open_store
from redmesh.resource_limits import limit_hint

#: Objects created before the garbage collector runs: an allocation of 64 creates 300, none of them in a cycle.
COLLECT_AFTER = 50_000
USAGE = "usage: python -P -m redmesh cpa --config FILE --name NAME"


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    try:
        if len(arguments) != 4 or arguments[0] != "--config" or arguments[2] != "--name":
            raise ConfigError(USAGE)
        config, name = read(arguments[1]), arguments[3]
        allow_many_files()
        gc.set_threshold(COLLECT_AFTER)
        loop = Loop()
        journal = Journal(os.path.join(config.state, "log", f"{name}.jsonl"), name)
        cpa = Cpa(loop, config, name, open_store(config.database, patience_s=2.0), journal, os.geteuid())
        cpa.start()
    except (AgentError, StoreError) as error:
        print(f"cpa: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_status
    except OSError as error:
        hint = limit_hint(error)
        print(f"cpa: {error}" + (f" ({hint})" if hint else ""), file=sys.stderr)
        return 1
    if config.signalled:
        expect_signals(config.state)
    on_terminate(loop, cpa.stop, signal.SIGTERM, signal.SIGINT)
    try:
        loop.run()
    except Exception as error:
        # The keeper starts another CPA, which finds everything it needs; the log keeps the reason.
        import traceback

        cpa.journal.write("fault", trace=traceback.format_exc())
        print(f"cpa: ended by a fault of its own: {error!r}", file=sys.stderr)
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
