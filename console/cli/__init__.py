"""The commands. As ``python -m console.cli.NAME`` this is the first instruction of ours, as in bin/ the script is."""

import _signal  # type: ignore[import-not-found]  # built in
import sys

if sys.argv[:1] == ["-m"] and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # no traceback while we load; endings.py takes it up
