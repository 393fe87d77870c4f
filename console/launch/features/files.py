"""Files of a launch on the login processor: ``-output``, ``-error``, and ``-file`` for the completion table."""

from __future__ import annotations

import os

from console.errors import ConsoleError
from console.launch.events.completion_report import completion_lines
from console.launch.features.feature import Feature
from console.launch.states import Event
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.options.output import OutputOptions
    from console.launch.options.request import Request

    Make = Callable[[Loop, Request, Callable[[int], None], Callable[[str, int], None]], Any]


def front_maker(make: Make, options: OutputOptions) -> Make:
    """Return a factory that wraps the frontend of ``make`` in one that writes files, or that gathers output."""

    def made(
        loop: Loop, request: Request, on_passed: Callable[[int], None], on_broken: Callable[[str, int], None]
    ) -> Any:
        inner = make(loop, request, on_passed, on_broken)
        if options.gather:
            from console.launch.stdio.gather import GatherFront

            inner = GatherFront(inner, loop, on_passed, on_broken)
        if options.output is not None or options.error is not None:
            from console.launch.stdio.files import FilesFront

            inner = FilesFront(inner, loop, request, options, on_passed, on_broken)
        return inner

    return made


class OutputFiles(Feature):
    """Opens the files of ``-output`` and ``-error`` when every process is held."""

    def before_confirm(self, go_on: Callable[[], None]) -> bool:
        context = self.context
        try:
            if context.plan is not None:
                context.front.open(context.plan, context.launch.launcher)  # type: ignore[attr-defined]
        except ConsoleError as error:
            facts = error.message, 125, error.hint
            context.loop.after(0, lambda: context.handle(Event.OUTPUT_BROKEN, *facts))
            return False
        return True


class CompletionFile(Feature):
    """``-file``: appends the command line and a line for each rank to a file, instead of printing to stderr."""

    def __init__(self, options: OutputOptions) -> None:
        self._options = options

    def completes(self) -> bool:
        context = self.context
        import shlex

        lines = [shlex.join(self._options.command_line), *completion_lines(context.launch.ranks)]
        text = "".join(f"{clean(line)}\n" for line in lines).encode("utf-8", "replace")
        try:
            view = memoryview(text)
            while view:
                view = view[os.write(self._options.completion_fd, view) :]
        except OSError as error:
            context.say(f"{self._options.completion} cannot be written: {error.strerror}", "")
            if not context.launch.exit_status:
                context.launch.outcome.exit_status = 125
        return True
