"""``mesh serve``: the console in a browser on this machine."""

import argparse

from console.errors import ConsoleError
from console.settings import Settings


def serve(settings: Settings, options: argparse.Namespace) -> int:
    """Serve until ^C."""
    if not 0 < options.port < 1 << 16:
        raise ConsoleError(f"{options.port} is not a port", "mesh serve --port 8000", exit_status=2)
    try:
        from console.tui.terminal.web import serve_console
    except ModuleNotFoundError as error:
        raise ConsoleError(
            f"mesh serve needs {error.name}, which is not installed", "pip install 'redmesh[serve]'", exit_status=2
        ) from None
    return serve_console(options.port, config=options.config or settings.file, read_only=options.read_only)
