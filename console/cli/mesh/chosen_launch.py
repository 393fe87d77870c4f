"""Chooses the launch for a command that was given none."""

import os

from console.errors import UsageError
from console.own_texts import OwnTexts
from console.settings import Settings
from db.views.viewer import open_viewer
from redmesh.sanitise import clean


def chosen_launch(settings: Settings, given: int | None) -> int:
    """``given``, or the caller's only running launch. Raises UsageError if there is none, or more than one."""
    if given is not None:
        return given
    with open_viewer(settings.database, settings.login) as viewer:
        mine = [one for one in viewer.read().launchers if one.uid == os.getuid()]
    if len(mine) == 1:
        return int(mine[0].id)
    if not mine:
        raise UsageError("no launch of yours runs", "showmesh shows the launches of all users")
    some = ", ".join(f"{one.id} ({clean(one.command)[:30]})" for one in OwnTexts(settings).put_into(mine[:5]))
    raise UsageError(f"{len(mine)} launches of yours run", f"say which: {some}{' …' if len(mine) > 5 else ''}")
