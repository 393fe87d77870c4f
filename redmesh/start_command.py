"""Start one of our commands in an interpreter of its own, which loads nothing from the current directory.

``python -P -m`` is not enough: with a relative entry in ``PYTHONPATH`` it imports a package ``console`` of the current
directory. So this file is run as a script, drops these entries from its path, and only then imports the command. The
variable itself stays as it is, because ranks get it from yod. The scripts in bin/ begin with the same lines.
"""

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

    wanted = __import__(sys.argv.pop(1), fromlist=["main"])
    sys.exit(wanted.main())
