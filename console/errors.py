"""The root of the console's errors."""


class ConsoleError(Exception):
    """What failed, on which node or launcher (``message``), and what to do next (``hint``)."""

    exit_status = 125

    def __init__(self, message: str, hint: str = "", *, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_status is not None:
            self.exit_status = exit_status


class UsageError(ConsoleError):
    """An invalid command line or configuration: exit status 2."""

    exit_status = 2


def numbered(message: str, hint: str = "") -> str:
    """An error as it is printed (message_codes.coded), without its number if no descriptor is left to find it."""
    try:
        from console.message_codes import coded  # needed only after an error
    except OSError:
        return message + (f" ({hint})" if hint else "")
    return coded(message, hint)


def next_step(error: OSError, *, writing: bool = False) -> str:
    """What to do if a file that the user named cannot be opened, for ``writing`` or for reading; "" if unknown."""
    import errno  # needed only after an error

    if error.errno == errno.ENOENT:
        return (
            "its directory has to exist: mkdir -p" if writing else "check the name, and from which directory it counts"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"ls -ld shows who may {'write' if writing else 'read'} it; name a file elsewhere"
    if error.errno == errno.EISDIR:
        return "name a file, not a directory"
    if error.errno == errno.ENOTDIR:
        return "a part of the path is a file: check the name"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there, or name a file elsewhere"
    return ""
