"""How a command ends: whatever fails is one line on stderr and an exit status, never a traceback."""

import errno
import os
import sys

from console.cli.options.parser import complain
from console.errors import ConsoleError

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal  # signal itself loads enum; agents.link.lean would load the agents into every viewer


def guarded(command: str, run: "Callable[[], int]") -> int:
    """Run a command; its exit status. REDMESH_DEBUG in the environment lets a bug show its traceback."""
    taken = False
    try:
        taken = take_interrupts()
        return _status_of(command, run)
    except KeyboardInterrupt:
        return 130  # also one that came while an error was being told
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
        _drop_output()  # whoever read us has gone: nothing more to say
        return 0
    except Exception as error:
        _drop_output()
        if hasattr(error, "hint"):  # every package's own; their modules are loaded only where they can happen
            return complain(command, error)
        if isinstance(error, OSError):
            return complain(command, refused(error))
        if "REDMESH_DEBUG" in os.environ:
            raise
        if isinstance(error, ImportError):
            hint = f"install Redmesh and what it requires for {sys.executable} again; REDMESH_DEBUG=1 shows where"
            return complain(command, ConsoleError(f"this Python cannot load what {command} needs: {error}", hint))
        told = f"this is a bug in {command}: {type(error).__name__}: {error}"
        return complain(command, ConsoleError(told, "REDMESH_DEBUG=1 shows where"))


def take_interrupts() -> bool:
    """Have SIGINT raise KeyboardInterrupt again where our first instruction put its default action; whether it had."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        return False  # in somebody's process, or ignored: nohup, or a shell's background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return True


def leave_interrupts() -> None:
    """From here on SIGINT just ends the process: Python would say a traceback while it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def refused(error: OSError) -> ConsoleError:
    """What the system refused, in words; what names no file was most likely on its way to stdout."""
    unnamed = "standard output" if error.errno in (errno.ENOSPC, errno.EBADF) else "system"
    return ConsoleError(f"{error.filename or unnamed}: {error.strerror or error}")


def open_standard_descriptors() -> None:
    """Put /dev/null where 0, 1 or 2 is closed, lest a socket that gets the number be written to.

    A closed standard output stays one that cannot be written: what was meant for it is lost, and that is not success.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if fd == 1 else os.O_RDWR)
    # Python has None for what was closed, and print() would then write errors to stdout
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _drop_output() -> None:
    # what is still buffered would fail again, with a complaint of Python's own, when we exit
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
