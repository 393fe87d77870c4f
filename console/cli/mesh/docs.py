"""``mesh docs``: the documentation as local files for a browser."""

import argparse
import os
import sys

from console.errors import ConsoleError
from console.settings import Settings
from redmesh.start_command import ROOMS, ROOT


def docs(_settings: Settings, options: argparse.Namespace) -> int:
    """Print the address of a page, and open it in a browser if there is a desktop."""
    page = f"{_site()}/{options.page.removesuffix('.md').removesuffix('.html')}.html"
    if not os.path.isfile(page):
        raise ConsoleError(f"the documentation has no page {options.page!r}", "mesh docs opens the first page")
    print(f"file://{page}", flush=True)
    if not options.print_only and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        import webbrowser

        if not webbrowser.open(f"file://{page}"):
            print("mesh: no browser could be started: open the address above", file=sys.stderr)
    return 0


def _site() -> str:
    """The directory of the site: in the wheel, or built by ``make docs``. Raises ConsoleError if there is none."""
    for place in (f"{ROOMS}/console/site", f"{ROOT}/build/site"):
        if os.path.isfile(f"{place}/index.html"):
            return place
    raise ConsoleError(
        "the documentation site is not installed",
        "in the source tree, make docs builds it and prints where it is; its pages are text files in docs/",
    )
