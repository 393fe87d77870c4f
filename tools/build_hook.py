"""Hatchling hook that adds to the wheel: manual pages made from the parsers, and the site if `make docs` built it."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPagesAndSite(BuildHookInterface):  # type: ignore[type-arg]
    """Adds share/man/man1/*.1 and redmesh/_rooms/console/site."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and add them and the site to the wheel; an editable installation gets neither."""
        if version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        try:
            from console.cli.mesh.manual import write_pages

            self._manual = tempfile.TemporaryDirectory()  # not in the tree: several builds may run at once
            pages = write_pages(Path(self._manual.name))
        finally:
            sys.path.remove(str(root))
        for page in pages:
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"
        if (root / "build" / "site" / "index.html").exists():
            build_data["force_include"][str(root / "build" / "site")] = "redmesh/_rooms/console/site"
