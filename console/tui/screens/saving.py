"""Saving a launch's output: asks for a file's name, and before one is written over."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from agents.wire.errors import AgentError
from console.counted import counted
from console.launch.spool import spool_path
from console.tui.saving import save
from console.tui.screens.confirm import Confirm
from console.tui.screens.frame import Framed

if TYPE_CHECKING:
    from console.tui.run import Run
    from console.tui.widgets.output_pane import OutputPane
    from console.tui.widgets.prompt import Prompt


class Saving(Framed):
    """What the run view knows about files."""

    _run: Run
    _output: OutputPane
    _prompt: Prompt

    def action_save(self) -> None:
        """Asks where to."""
        self._prompt.ask("save", "save what is shown to", f"launch-{self._run.launcher}.out")

    def save_to(self, path: str, *, overwrite: bool = False) -> None:
        """Writes what the pane would show into a file, without holding the screen up."""
        if path.strip():
            self.run_worker(self._save(os.path.expanduser(path.strip()), overwrite), group="saving")

    async def _save(self, path: str, overwrite: bool) -> None:
        run = self._run
        spool = spool_path(self.console.settings.state_dir, run.launcher)
        keep = self._output.keeps()
        lines = run.output.lines(0)
        try:
            count = await asyncio.to_thread(save, path, lines, spool, keep, overwrite=overwrite, labels=run.size > 1)
        except FileExistsError:
            question = Confirm(f"{path} exists. Write over it?", "What is in it is lost.", "Overwrite")
            self.app.push_screen(question, lambda yes: self.save_to(path, overwrite=True) if yes else None)
        except OSError as error:
            self.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        except AgentError as error:
            self.notify(error.message, severity="error", markup=False)
        else:
            self.notify(f"{counted(count, 'line', form=',')} in {path}", markup=False)
