"""Start one of our daemons or commands in a new interpreter, whatever packages the environment contains.

The packages ``agents``, ``console``, ``db`` and ``simulated`` are the *rooms*. An installed Redmesh keeps them in
``redmesh/_rooms``, where no other distribution has files; a source tree, an editable installation and the snapshot of a
mesh have them beside ``redmesh``. Every process that runs our code puts the rooms first on its path, so that a
top-level package of the same name (``agents`` of openai-agents, for example) is never imported instead. Programs that
only ``import redmesh`` have no rooms on their path.

This file is also run as a script, because ``python -P -m`` is not enough: with a relative entry in ``PYTHONPATH``,
``python -P -m redmesh`` imports a package ``redmesh`` of the current directory. The script drops these entries from its
path before it imports our code. The variable itself is not changed, because ranks get it from yod. The scripts in bin/
begin likewise.
"""

import _signal  # type: ignore[import-not-found]

if __name__ == "__main__" and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # show no traceback for a SIGINT during the import; console/cli/exits.py handles SIGINT afterwards
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = os.path.dirname(os.path.abspath(__file__))
#: The directory with the package ``redmesh``.
ROOT = os.path.dirname(_HERE)
_INSTALLED = os.path.join(_HERE, "_rooms")
#: The directory with the other packages.
ROOMS = _INSTALLED if os.path.isdir(_INSTALLED) else ROOT

#: The daemons and commands by name, each with the module that has its ``main``.
MODULES = {
    "yod": "console.cli.yod.command",
    "mesh": "console.cli.mesh.command",
    "pingd": "console.cli.pingd.command",
    "showmesh": "console.cli.showmesh",
    "keeper": "agents.keeper.__main__",
    "pct": "agents.pct.__main__",
    "rca": "agents.rca.__main__",
    "cpa": "agents.cpa.__main__",
    "cleanup": "agents.cpa.cleanup.__main__",
    "deliver": "agents.cpa.line.delivery_process",
    "job": "agents.job.__main__",
    "attempt": "agents.linux.attempt",
    "simulated": "simulated.__main__",
}


#: The words of a command line before the arguments (:func:`start_command`).
FIXED_WORDS = 4
#: The name of the file with the other arguments, if they are too long for the kernel (redmesh/answers.py).
WORDS_NAME = "redmesh-words"
#: Objects that a command creates before the garbage collector runs.
COLLECT_AFTER = 20_000
#: What a command says without a traceback when it gets no more memory.
NO_MEMORY = "out of memory: a limit of this process is reached (ulimit -v), or the host has none left (free -m)"


def start_command(name: str, root: str = ROOT) -> "list[str]":
    """The command line that starts ``name``, a key of MODULES, of the ``redmesh`` in ``root``; append the arguments."""
    return [sys.executable, "-P", os.path.join(root, "redmesh", "start_command.py"), name]


def without_relative(variables: "Mapping[str, str]") -> "dict[str, str]":
    """``variables`` with only absolute entries in ``PYTHONPATH``, for processes that start no ranks."""
    kept = {**variables}
    path = os.pathsep.join(filter(os.path.isabs, kept.pop("PYTHONPATH", "").split(os.pathsep)))
    return {**kept, "PYTHONPATH": path} if path else kept


def find_rooms() -> None:
    """Put our packages first on ``sys.path``."""
    if ROOT not in (ROOMS, *sys.path):
        # The parent may have found ``redmesh`` by a path of its own (a checkout, a directory that a script added). Our
        # path follows the standard library, so that our packages never replace standard modules.
        library = os.path.dirname(os.__file__)
        known = [place for place, entry in enumerate(sys.path) if entry == library or entry.endswith("/lib-dynload")]
        sys.path.insert(max(known, default=-1) + 1, ROOT)
    sys.path.insert(0, ROOMS)


def run_command(name: str) -> int:
    """Run ``name``, a key of MODULES, with ``sys.argv`` in this process and return its exit status."""
    out_of_memory = f"{name}: {NO_MEMORY}\n".encode()  # made now: there may be no memory for it later
    try:
        find_rooms()
        return _run_module(name)
    except MemoryError:
        os.write(2, out_of_memory)
        return 125


def _run_module(name: str) -> int:
    # What is imported stays until the end: to look for garbage in it takes a tenth of the time of a command.
    gc.disable()
    try:
        module = __import__(MODULES[name], fromlist=["main"])
    except (ImportError, OSError, SyntaxError) as error:
        if "REDMESH_DEBUG" in os.environ:
            raise
        reason = f"{type(error).__name__}: {error}"
        hint = _limit_hint(error) or (
            f"{sys.executable} needs all of Redmesh and what it requires: install it again; REDMESH_DEBUG=1 shows where"
        )
        print(f"{name}: the packages in {ROOMS} cannot be loaded: {reason} ({hint})", file=sys.stderr)
        return 125
    finally:
        gc.freeze()
        gc.enable()
    if MODULES[name].startswith("console."):
        gc.set_threshold(COLLECT_AFTER)  # commands import the rest while they run
        return int(module.main())
    return int(module.main(sys.argv[1:]))


def _limit_hint(error: Exception) -> str:
    try:
        from redmesh.resource_limits import limit_hint
    except ImportError:  # an incomplete installation
        return ""
    except OSError:  # it cannot be read either
        return "a limit of this process may be reached: ulimit -n, ulimit -v"
    return limit_hint(error)


def _given(variable: str) -> int:
    """The descriptor that a program gave us in ``variable``, or -1; our children are not given it again."""
    number = os.environ.pop(variable, "")
    return int(number) if number.isdecimal() and len(number) < 10 and int(number) > 2 else -1


def _take_answers() -> int:
    """Print to the descriptor that a program gave us (redmesh/answers.py).

    Returns a descriptor for what is printed after us, or -1 if there is no such program.
    """
    given = _given("REDMESH_ANSWERS")
    if given < 0:
        return -1
    if sys.stdout is not None:
        sys.stdout.flush()  # what was printed before us
    try:
        said = os.dup(1)
        os.dup2(given, 1)
    except OSError:
        return -1  # the variable of another process, without its descriptor
    os.close(given)
    # The first one remembers that it could seek, and then fails in reconfigure.
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    return said


def _take_words() -> None:
    """Take the arguments from the file that a program gave us because they are too long (redmesh/answers.py)."""
    given = _given("REDMESH_WORDS")
    if given < 0:
        return
    try:
        # Any other descriptor with this number, such as a pipe without an end, is not ours to read and close.
        if not os.readlink(f"/proc/self/fd/{given}").startswith(f"/memfd:{WORDS_NAME}"):
            return
        with open(given, "rb") as file:
            sys.argv += map(os.fsdecode, file.read().split(b"\0"))
    except OSError:
        pass  # the variable of another process, without its descriptor


def main() -> int:
    """Run the command that ``sys.argv[1]`` names."""
    said = _take_answers()
    _take_words()
    try:
        return _run()
    finally:
        if said >= 0:
            try:
                sys.stdout.flush()
            except OSError:
                pass  # the program reads no more
            sys.stdout = open(said, "w", closefd=False)  # noqa: SIM115  (a user's atexit may print)


def _run() -> int:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name == "--version":
        from redmesh.version import VERSION

        print(f"redmesh {VERSION}")
        return 0
    if name not in MODULES:
        print(f"usage: python -P -m redmesh {'|'.join(MODULES)} [arguments]", file=sys.stderr)
        return 2
    return run_command(name)


if __name__ == "__main__":
    if os.environ.get("PYTHONPATH"):
        entries = os.environ["PYTHONPATH"].split(":")
        if not all(map(os.path.isabs, entries)):
            import site

            try:
                here = {os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)}
            except OSError:  # the current directory was removed, so site left these entries unchanged
                here = set()
            here -= {os.path.abspath(entry) for entry in entries if os.path.isabs(entry)}
            library = f"{os.path.dirname(os.__file__)}/"  # needed if the current directory is the standard library
            sys.path[:] = [e for e in sys.path if os.path.isabs(e) and (e not in here or f"{e}/".startswith(library))]
            site.main()  # adds site-packages and its paths again, if the current directory is one of them

    sys.exit(main())
