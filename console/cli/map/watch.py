"""Shows a picture of the mesh once or repeatedly: in place on a terminal, otherwise line after line."""

import os
import sys
import time

from console.cli.map.drawing import cut
from console.errors import ConsoleError
from db.errors import StoreError
from db.views.viewer import Picture, Viewer, open_viewer
from redmesh.sanitise import clean

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable

    from console.settings import Settings

    #: Makes the lines of a picture for a given width.
    Render = Callable[[Picture, int], list[str]]

UNBOUNDED = 1 << 20
#: The map's width without a terminal.
PLAIN_WIDTH = 80
#: How many events are searched for the end of the mesh, which is among the last ones: nothing happens after it.
_EVENTS = 100


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


def look(
    settings: "Settings",
    render: "Render",
    *,
    every_s: float = 0.0,
    need_mesh: bool = False,
    more: "Callable[[Viewer, Picture], None] | None" = None,
) -> int:
    """Print the picture once, or with ``every_s`` until interrupted. Raises StoreError if the first reading fails.

    ``more`` is called after each reading, and may read more into the picture. With ``need_mesh``, raise ConsoleError
    (exit status 1) after the one picture of a mesh that was taken down.

    On a terminal the picture is drawn in place; elsewhere it is printed after every change. If the database becomes
    unreachable later, the command retries.
    """
    with open_viewer(settings.database, settings.login) as viewer:
        picture = Picture()
        picture.update(viewer)
        if more is not None:
            more(viewer, picture)
        size = terminal_size()
        if not every_s:
            sys.stdout.write("".join(f"{line}\n" for line in render(picture, size[0] if size else PLAIN_WIDTH)))
            sys.stdout.flush()
            why = reason_down(viewer, picture) if need_mesh else ""
            if why:
                hint = (
                    "its administrator starts it: mesh up" if settings.system and os.geteuid() else "mesh up starts it"
                )
                raise ConsoleError(f"the mesh is not up: {clean(why)}", hint, exit_status=1)
            return 0
        try:
            _again(viewer, picture, render, every_s, more)
        except KeyboardInterrupt:
            return 0
        finally:
            if size:
                sys.stdout.write("\x1b[?25h\n")
        return 0


def reason_down(viewer: Viewer, picture: Picture) -> str:
    """Why the whole mesh is down, as the database knows it; "" if it is up, or was not taken down."""
    if any(node.role != "login" and node.state not in ("down", "drained") for node in picture.nodes.values()):
        return ""
    found = [one for one in viewer.events(limit=_EVENTS) if one.kind in ("boot", "down") and one.node is None]
    return found[-1].text if found and found[-1].kind == "down" else ""


def _again(
    viewer: Viewer,
    picture: Picture,
    render: "Render",
    every_s: float,
    more: "Callable[[Viewer, Picture], None] | None",
) -> None:
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
        time.sleep(every_s)  # the interval of -watch
        try:
            picture.update(viewer)
            if more is not None:
                more(viewer, picture)
            trouble = ""
        except StoreError as error:
            trouble = cut(error.message, size[0] if size else UNBOUNDED)
            if not size:
                print(error.message, file=sys.stderr)
