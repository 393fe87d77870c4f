"""Start one of our commands in an interpreter of its own, which loads nothing from the current directory.

``python -P -m`` is not enough: with a relative entry in ``PYTHONPATH`` it imports a package ``console`` of the current
directory. So this file is run as a script, drops these entries from its path, and only then imports the command. The
variable itself stays as it is, because ranks get it from yod. The scripts in bin/ begin with the same lines.
Where the new interpreter does not find our packages by itself, it takes those that this file belongs to.
"""

import _signal  # type: ignore[import-not-found]

if __name__ == "__main__" and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # no traceback while we load; console/cli/exits.py takes it up

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def start_command(module: str) -> list[str]:
    """The words that start the command ``module`` (``console.cli.yod.command``): its own words follow."""
    return [sys.executable, "-P", os.path.abspath(__file__), module]


def without_relative(variables: "Mapping[str, str]") -> dict[str, str]:
    """``variables`` whose ``PYTHONPATH`` has absolute entries alone: for processes that start no ranks."""
    kept = {**variables}
    path = os.pathsep.join(filter(os.path.isabs, kept.pop("PYTHONPATH", "").split(os.pathsep)))
    return {**kept, "PYTHONPATH": path} if path else kept


def _main(module: str) -> int:
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if root not in sys.path:
        # Whoever starts us may have found the packages by a path of its own (a checkout, a directory that a script
        # added), which a new interpreter does not have. Behind the standard library: nothing there may replace that.
        library = os.path.dirname(os.__file__)
        known = [place for place, entry in enumerate(sys.path) if entry == library or entry.endswith("/lib-dynload")]
        sys.path.insert(max(known, default=-1) + 1, root)
    try:
        wanted = __import__(module, fromlist=["main"])
    except (ImportError, OSError, SyntaxError) as error:
        if "REDMESH_DEBUG" in os.environ:
            raise
        command = next((word for word in reversed(module.split(".")) if word not in ("command", "__main__")), module)
        reason = f"{type(error).__name__}: {error}"
        hint = (
            f"{sys.executable} needs all of Redmesh and what it requires: install it again; REDMESH_DEBUG=1 shows where"
        )
        print(f"{command}: the packages in {root} cannot be loaded: {reason} ({hint})", file=sys.stderr)
        return 125
    return int(wanted.main())


if __name__ == "__main__":
    if os.environ.get("PYTHONPATH"):
        entries = os.environ["PYTHONPATH"].split(":")
        if not all(map(os.path.isabs, entries)):
            import site

            try:
                here = {os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)}
            except OSError:  # the current directory was removed: site left these entries as they are
                here = set()
            here -= {os.path.abspath(entry) for entry in entries if os.path.isabs(entry)}
            library = f"{os.path.dirname(os.__file__)}/"  # still needed by whoever stands there
            sys.path[:] = [e for e in sys.path if os.path.isabs(e) and (e not in here or f"{e}/".startswith(library))]
            site.main()  # adds site-packages and its paths again, if the current directory is one of them

    sys.exit(_main(sys.argv.pop(1)))
