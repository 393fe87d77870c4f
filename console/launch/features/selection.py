"""Selects the features that a request needs. A plain launch does not import this module."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.launch.features.feature import Feature
    from console.launch.features.terminal import LentTerminal
    from console.launch.options.output import OutputOptions
    from console.launch.options.request import Request
    from console.launch.options.run import RunOptions


def features_of(request: Request) -> list[Feature]:
    """The features, in the order in which their hooks are called."""
    found: list[Feature] = []
    if request.run is not None:
        found += _before_go(request.run)
    if request.output is not None:
        found += _of_output(request.output)
    if request.run is not None:
        found += _from_go(request.run)
    return found


def _before_go(options: RunOptions) -> list[Feature]:
    found: list[Feature] = []
    if options.sleep_s:
        from console.launch.features.hold import Sleep

        found.append(Sleep(options))
    if options.mpir_file:
        from console.launch.features.debug import ProcessTable

        found.append(ProcessTable(options.mpir_file))
    return found


def _of_output(options: OutputOptions) -> list[Feature]:
    found: list[Feature] = []
    if options.topics or options.timing:
        from console.launch.features.phases import Phases

        found.append(Phases(options))
    if options.output is not None or options.error is not None:
        from console.launch.features.files import OutputFiles

        found.append(OutputFiles())
    if options.limit_s is not None or options.wait_s is not None:
        from console.launch.features.limits import TimeLimits

        found.append(TimeLimits(options))
    if options.completion_fd >= 0:
        from console.launch.features.files import CompletionFile

        found.append(CompletionFile(options))
    return found


def _from_go(options: RunOptions) -> list[Feature]:
    found: list[Feature] = []
    terminal: LentTerminal | None = None
    if options.pty is not None:
        from console.launch.features.terminal import LentTerminal

        terminal = LentTerminal()
        found.append(terminal)
    if options.hold:
        from console.launch.features.hold import Hold

        found.append(Hold(options, terminal))
    if options.backtrace:
        from console.launch.features.debug import CrashStacks

        found.append(CrashStacks())
    return found
