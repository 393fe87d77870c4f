"""Finds the program before any process is started, so that a missing one is reported at once."""

import os
import stat
import sys

from console.errors import ConsoleError, next_step
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: The search path of execvp if PATH is not set (confstr(_CS_PATH)).
_DEFAULT_PATH = b"/bin:/usr/bin"
_HEAD = 4096  # bytes to read; the kernel itself reads 256
#: By the end of a script's name, the program that runs it.
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".pl": "perl", ".R": "Rscript", ".jl": "julia"}


class ProgramError(ConsoleError):
    """A program cannot be started: exit status 127 if not found, 126 if found but not executable."""


def find(name: str, environ: "Mapping[bytes, bytes]", *, quiet: bool = True) -> bytes:
    """Return the absolute path of the program ``name``, searched like execvp(3), after checking that it can run.

    A program that is not on PATH is also searched in the current directory, as by the original yod; unless ``quiet``, a
    line on stderr reports that. Raises ProgramError with the reason why it cannot run.
    """
    wanted = os.fsencode(name)
    if not wanted:
        raise ProgramError("the program's name is empty", "yod [options] program arguments", exit_status=127)
    if b"/" in wanted:
        path = wanted if wanted.startswith(b"/") else os.path.join(os.getcwdb(), wanted)
        _check(name, path)
        return path
    denied = b""
    for folder in environ.get(b"PATH", _DEFAULT_PATH).split(b":"):
        path = os.path.join(os.getcwdb(), folder, wanted) if not folder.startswith(b"/") else folder + b"/" + wanted
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            _check(name, path)
            return path
        denied = denied or path
    if denied:
        _check(name, denied)
    if not os.path.isfile(wanted):
        here = _folder(os.path.join(os.getcwdb(), wanted))
        told = f"{clean(name)}: no such program in PATH or in the current directory, {here}"
        raise ProgramError(told, "write its path; yod [options] program arguments", exit_status=127)
    path = os.path.join(os.getcwdb(), wanted)
    _check(name, path)
    if not quiet:
        print(f"yod: {clean(name)} is not in PATH: running ./{clean(name)}", file=sys.stderr)
    return path


def _folder(path: bytes) -> str:
    """The directory in which a file was looked for."""
    return clean(os.fsdecode(os.path.normpath(os.path.dirname(path))))


def run_it(name: str) -> str:
    """The beginning of a hint for a script whose name says what runs it; otherwise empty."""
    interpreter = _INTERPRETERS.get(os.path.splitext(name)[1])
    return f"yod {interpreter} {clean(name)} runs it; " if interpreter else ""


def _check(name: str, path: bytes) -> None:
    shown = clean(name)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        where = "" if name.startswith("/") else f" in {_folder(path)}"
        raise ProgramError(f"{shown}: no such file{where}", "check its name and directory", exit_status=127) from None
    except NotADirectoryError:
        told = f"{shown}: a part of the path is not a directory"
        raise ProgramError(told, "check the name", exit_status=127) from None
    except OSError as error:
        raise ProgramError(f"{shown}: {error.strerror}", next_step(error), exit_status=126) from None
    if stat.S_ISDIR(mode):
        raise ProgramError(f"{shown} is a directory", "name a program in it", exit_status=126)
    if not stat.S_ISREG(mode):
        raise ProgramError(f"{shown} is not a regular file", "name a program", exit_status=126)
    if os.access(path, os.X_OK):
        _check_head(shown, path)
        return
    if not (head := _head(path)):
        raise ProgramError(f"{shown} is empty", "was its compiler or the copy interrupted?", exit_status=126)
    if _looks_like_text(head):
        raise ProgramError(
            f"{shown} is not executable; it looks like a load file",
            f"yod -load {shown} runs a load file; chmod +x makes a script executable",
            exit_status=126,
        )
    raise ProgramError(f"{shown} is not executable", "chmod +x makes it so", exit_status=126)


def _head(path: bytes) -> bytes:
    # Executable but unreadable is fine: the kernel checks by itself.
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_HEAD) or b""
    except OSError:
        return b"\x7fELF"


def _looks_like_text(head: bytes) -> bool:
    return not head.startswith((b"\x7fELF", b"#!")) and b"\0" not in head


def _check_head(shown: str, path: bytes) -> None:
    head = _head(path)
    if head.startswith(b"#!"):
        _check_interpreter(shown, head[2:].partition(b"\n")[0])
    elif not head:
        raise ProgramError(f"{shown} is empty", "was its compiler or the copy interrupted?", exit_status=126)
    elif _looks_like_text(head):
        raise ProgramError(
            f"{shown} is text that does not begin with #!: this looks like a load file",
            f"{run_it(shown)}a script needs a first line like #!/bin/sh; a load file is not executable (chmod -x)",
            exit_status=126,
        )


def _check_interpreter(shown: str, line: bytes) -> None:
    # The kernel splits the line only at spaces and tabs: a carriage return belongs to the interpreter's name.
    interpreter = line.replace(b"\t", b" ").strip(b" ").partition(b" ")[0]
    text = clean(os.fsdecode(interpreter))
    if not interpreter.rstrip(b"\r"):
        raise ProgramError(f"{shown}: its first line #! names no interpreter", "like #!/bin/sh", exit_status=126)
    if not os.path.exists(interpreter):
        windows = line.endswith(b"\r")
        raise ProgramError(
            f"{shown}: its interpreter {text} does not exist",
            "the script has Windows line ends" if windows else "look at its first line",
            exit_status=127,
        )
    if os.path.isdir(interpreter) or not os.access(interpreter, os.X_OK):
        raise ProgramError(f"{shown}: its interpreter {text} is not executable", "see the first line", exit_status=126)
