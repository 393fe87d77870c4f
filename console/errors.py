"""The root of the console's errors."""


class ConsoleError(Exception):
    """What failed, and what to do next; ``exit_status`` is what the command that dies of it ends with."""

    exit_status = 125

    def __init__(self, message: str, hint: str = "", *, exit_status: "int | None" = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_status is not None:
            self.exit_status = exit_status
