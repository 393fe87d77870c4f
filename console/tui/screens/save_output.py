"""Saves the output shown in a launch's tab to a file."""

from __future__ import annotations

import asyncio
import os

from agents.wire.errors import AgentError
from console.launch.events.spool import spool_path
from console.tui.model.launch import Run
from console.tui.model.patterns import FilterError
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Confirm
from console.tui.sources.spool import save
from console.tui.widgets.output import OutputPane
from redmesh.text import counted


class SaveOutput:
    """Writes the shown output; asks before a file is overwritten."""

    def __init__(self, screen: Framed, run: Run, output: OutputPane) -> None:
        self._screen, self._run, self._output = screen, run, output

    def save(self, path: str, *, overwrite: bool = False) -> None:
        """Write the lines to a file without blocking the screen."""
        if path.strip():
            work = self._save(os.path.expanduser(path.strip()), overwrite)
            self._screen.run_worker(work, group="saving")

    async def _save(self, path: str, overwrite: bool) -> None:
        screen, run = self._screen, self._run
        spool = spool_path(screen.console.settings.state_dir, run.launcher)
        keep = self._output.keeps()
        lines = run.output.lines(0)
        try:
            count = await asyncio.to_thread(save, path, lines, spool, keep, overwrite=overwrite, labels=run.size > 1)
        except FileExistsError:
            question = Confirm(f"{path} exists. Write over it?", "What is in it is lost.", "Overwrite")
            screen.app.push_screen(question, lambda yes: self.save(path, overwrite=True) if yes else None)
        except OSError as error:
            screen.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        except (AgentError, FilterError) as error:
            screen.notify(f"{path} is incomplete: {error.message}", severity="error", markup=False)
        else:
            screen.notify(f"{counted(count, 'line', form=',')} in {path}", markup=False)
