"""The end of a command: every failure is one line on stderr and an exit status, never a traceback."""

import errno
import os
import sys

from console.cli.options.parser import complain
from console.errors import ConsoleError, next_step
from redmesh.resource_limits import OF_PROCESS, limit_hint

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal  # signal itself imports enum; agents.link.lean would import the agents into every viewer


def guarded(command: str, run: "Callable[[], int]") -> int:
    """Run a command and return its exit status. With REDMESH_DEBUG in the environment, a bug shows its traceback."""
    taken = False
    try:
        taken = take_interrupts()
        return _status_of(command, run)
    except KeyboardInterrupt:
        return 130  # also for an interrupt while an error was being printed
    finally:
        if taken:
            leave_interrupts()


def _status_of(command: str, run: "Callable[[], int]") -> int:
    try:
        open_standard_descriptors()
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _drop_output()  # the reader of standard output has exited, so print nothing more
        return 0
    except MemoryError:
        raise  # redmesh/start_command.py says so without any more memory
    except Exception as error:
        _drop_output()
        if hasattr(error, "hint"):  # an error class of Redmesh; this module imports none of them, to start fast
            return complain(command, error)
        if isinstance(error, OSError):
            return complain(command, refused(error))
        if limit_hint(error):
            return complain(command, ConsoleError(str(error), limit_hint(error)))
        if "REDMESH_DEBUG" in os.environ:
            raise
        if isinstance(error, ImportError):
            hint = f"install Redmesh and what it requires for {sys.executable} again; REDMESH_DEBUG=1 shows where"
            return complain(command, ConsoleError(f"this Python cannot load what {command} needs: {error}", hint))
        told = f"this is a bug in {command}: {type(error).__name__}: {error}"
        return complain(command, ConsoleError(told, "REDMESH_DEBUG=1 shows where"))


def take_interrupts() -> bool:
    """Make SIGINT raise KeyboardInterrupt if its action is SIG_DFL, as start_command set it; returns whether it was."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        return False  # called from another program, or SIGINT is ignored (nohup, a shell's background job)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return True


def leave_interrupts() -> None:
    """Make SIGINT end the process at once: during its exit Python would print a traceback for KeyboardInterrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def refused(error: OSError) -> ConsoleError:
    """An error of the system in words; one without a file name was most likely caused by writing to stdout."""
    if error.errno in OF_PROCESS:
        return ConsoleError(os.strerror(error.errno or 0), limit_hint(error))  # the file is whichever came next
    unnamed = "standard output" if error.errno in (errno.ENOSPC, errno.EBADF) else "system"
    hint = (next_step(error) if error.filename else "") or limit_hint(error)
    return ConsoleError(f"{error.filename or unnamed}: {error.strerror or error}", hint)


def open_standard_descriptors() -> None:
    """Open /dev/null for 0, 1 or 2 if it is closed, so that no socket gets that number and is written to.

    A closed standard output stays unwritable: lost output must not count as success.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if fd == 1 else os.O_RDWR)
    # Python sets a closed stream to None, and print() would then write errors to stdout.
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _drop_output() -> None:
    # Buffered data would fail again, with Python's own message, at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
