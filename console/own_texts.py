"""Puts the arguments of the caller's own launches into rows of the system database, which lacks them in system mode.

A CPA has them (db/allocation/full_texts.py); if none answers, the rows keep what the database has.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from console.settings import Settings

#: Seconds for a CPA's reply, and until one is asked again after none has answered.
ANSWER_S, AGAIN_S = 2.0, 10.0
#: The most launchers that a CPA takes in one request.
_AT_ONCE = 100
#: The most launchers whose texts are kept.
_MOST = 20_000


class OwnTexts:
    """The full commands and reasons of the caller's launches; for root, of all launches.

    Each launch is asked for once while it lives, and once after its end. Outside of system mode, nothing is asked.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._texts: dict[tuple[int, bool], tuple[str, str] | None] = {}
        self._not_before = 0.0

    def put_into(self, rows: Iterable[Any]) -> list[Any]:
        """The rows (db.views.rows.LauncherRow), with full texts where the caller may know them. Raises nothing."""
        found = list(rows)
        if not self._settings.system:
            return found
        uid = os.geteuid()
        wanted = [row for row in found if uid in (0, row.uid) and _key(row) not in self._texts]
        if len(self._texts) > _MOST:
            self._texts.clear()
        if wanted and time.monotonic() >= self._not_before:
            self._ask(wanted)
        return [self._filled(row) for row in found]

    def _filled(self, row: Any) -> Any:
        texts = self._texts.get(_key(row))
        return row if texts is None else row._replace(command=texts[0], reason=texts[1])

    def _ask(self, rows: list[Any]) -> None:
        from agents.wire.errors import AgentError  # only system mode needs a connection
        from console.deploy.mesh.cpas import ask_cpa
        from console.errors import ConsoleError

        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            request = {"op": "full_texts", "launchers": [row.id for row in some]}
            if self._settings.login:
                request["login"] = self._settings.login
            try:
                told = ask_cpa(self._settings, request, ANSWER_S)["launchers"]
                texts = {int(one["launcher"]): (str(one["command"]), str(one["reason"])) for one in told}
            except (AgentError, ConsoleError, KeyError, TypeError, ValueError):
                self._not_before = time.monotonic() + AGAIN_S
                return
            self._texts.update((_key(row), texts.get(row.id)) for row in some)


def _key(row: Any) -> tuple[int, bool]:
    return row.id, row.ended_at is not None
