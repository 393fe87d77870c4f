"""``python -P -m redmesh NAME ARGUMENTS`` runs a daemon (``keeper``) or a command (``mesh``): start_command.MODULES."""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # show no traceback for a SIGINT during the import; console/cli/exits.py handles SIGINT afterwards
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import sys

from redmesh.start_command import main

sys.exit(main())
