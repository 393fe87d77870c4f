"""The notice that ranks get before the mesh of a batch job is taken down: SIGTERM, and time for a checkpoint."""

from __future__ import annotations

import contextlib
import signal
import time

from console.deploy.personal.plan import cpa_url
from console.errors import ConsoleError
from console.launch.attach.client import send_signal
from console.settings import Settings
from db.errors import StoreError
from db.views.viewer import open_viewer

#: Seconds from SIGTERM until ranks are killed that have not exited, as for a yod that is terminated; between two looks.
GRACE_S, _LOOK_S = 5.0, 0.1


def give_notice(settings: Settings) -> None:
    """Send SIGTERM to the ranks of every launch, and wait until no launch runs; ranks that ignore it are killed later.

    A launch that cannot be signalled, or a database that does not answer, delays nothing.
    """
    for launcher in _launchers(settings):
        with contextlib.suppress(ConsoleError):
            send_signal(settings.run_dir, launcher, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while _launchers(settings) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)  # poll: launches are no children of this command


def _launchers(settings: Settings) -> list[int]:
    try:
        with open_viewer(cpa_url(settings)) as viewer:
            return sorted(one.id for one in viewer.read().launchers)
    except (StoreError, ConsoleError):
        return []
