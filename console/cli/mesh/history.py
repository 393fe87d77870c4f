"""``mesh history``."""

import argparse
import json
import shutil
import sys
import time
from typing import Any

from console.cli.map.drawing import elapsed, table
from console.own_texts import OwnTexts
from console.settings import Settings
from db.views.viewer import open_viewer
from redmesh.sanitise import clean


def history(settings: Settings, options: argparse.Namespace) -> int:
    """Print ended launches, the newest last."""
    with open_viewer(settings.database, settings.login) as viewer:
        rows = OwnTexts(settings).put_into(viewer.history(options.last)[::-1])
    if options.json:
        print(json.dumps([_as_dict(row) for row in rows]))
        return 0
    if not rows:
        print("no launch has ended yet")
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20
    head = ("launcher", "ended", "user", "ranks", "processors", "elapsed", "status", "command")
    print("\n".join(table(head, [_line(row) for row in rows], width, right=(0, 3, 4, 5, 6))))
    return 0


def _line(row: Any) -> tuple[str, ...]:
    status = "?" if row.exit_status is None else str(row.exit_status)
    told = clean(row.command) + (f"  ({clean(row.reason)})" if row.reason else "")
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.ended_at))
    ran = elapsed(row.ended_at - (row.started_at or row.created_at))
    ranks = _ranks(row)
    return str(row.id), ended, clean(row.user), "-" if ranks is None else str(ranks), str(row.size), ran, status, told


def _ranks(row: Any) -> int | None:
    """The number of ranks, several on a processor with -overcommit; None if the launch never started."""
    return len(json.loads(row.ranks)) if row.ranks else None


def _as_dict(row: Any) -> dict[str, Any]:
    shown = row._asdict()
    for inner in ("changed", "resources"):
        shown.pop(inner)
    return dict(shown, ranks=_ranks(row), abnormal=bool(row.abnormal))
