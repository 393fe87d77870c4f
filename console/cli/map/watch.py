"""Shows a picture of the mesh once or repeatedly: in place on a terminal, otherwise line after line."""

import os
import sys
import time

from console.cli.map.drawing import cut
from db.errors import StoreError
from db.views.viewer import Picture, Viewer, open_viewer

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable

    from console.settings import Settings

    #: Makes the lines of a picture for a given width.
    Render = Callable[[Picture, int], list[str]]

UNBOUNDED = 1 << 20
#: The map's width without a terminal.
PLAIN_WIDTH = 80


def terminal_size() -> "tuple[int, int] | None":
    """Columns and lines of the terminal on stdout, None if there is none. COLUMNS has priority."""
    if not sys.stdout.isatty():
        return None
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    asked = os.environ.get("COLUMNS", "")
    return (int(asked) if asked.isdigit() and int(asked) else columns or PLAIN_WIDTH, lines or 24)


def in_colour() -> bool:
    """True if stdout is a terminal and its user wants colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "") != "dumb"


def look(settings: "Settings", render: "Render", *, every_s: float = 0.0) -> int:
    """Print the picture once, or with ``every_s`` until interrupted. Raises StoreError if the first reading fails.

    On a terminal the picture is drawn in place; elsewhere it is printed after every change. If the database becomes
    unreachable later, the command retries.
    """
    with open_viewer(settings.database, settings.login) as viewer:
        picture = Picture()
        picture.update(viewer)
        size = terminal_size()
        if not every_s:
            sys.stdout.write("".join(f"{line}\n" for line in render(picture, size[0] if size else PLAIN_WIDTH)))
            return 0
        try:
            _again(viewer, picture, render, every_s)
        except KeyboardInterrupt:
            return 0
        finally:
            if size:
                sys.stdout.write("\x1b[?25h\n")
        return 0


def _again(viewer: Viewer, picture: Picture, render: "Render", every_s: float) -> None:
    trouble, shown = "", None
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25l\x1b[2J")
    while True:
        size = terminal_size()
        if size:
            lines = render(picture, size[0]) + ([trouble] if trouble else [])
            # Clear each line after its text: that avoids flicker, and removes the rest of a longer line.
            body = "\x1b[K\n".join(lines[: size[1] - 1])
            sys.stdout.write(f"\x1b[H{body}\x1b[K\x1b[J")
        elif shown != picture.counter:
            print("\n".join(render(picture, PLAIN_WIDTH)))
            shown = picture.counter
        sys.stdout.flush()
        time.sleep(every_s)
        try:
            picture.update(viewer)
            trouble = ""
        except StoreError as error:
            trouble = cut(error.message, size[0] if size else UNBOUNDED)
            if not size:
                print(error.message, file=sys.stderr)
