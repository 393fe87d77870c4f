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
