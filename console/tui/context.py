"""The interface of the application for screens and widgets, so that none of them imports the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.notifications import SeverityLevel
    from textual.screen import Screen
    from textual.signal import Signal
    from textual.widget import Widget

    from console.settings import Settings
    from console.tui.actions.action import Action
    from console.tui.actions.launch_command import Form
    from console.tui.model.jobs import Job
    from console.tui.model.launch import Run
    from console.tui.model.machine import Changed, Launcher, Machine
    from console.tui.model.tabs import Tab
    from console.tui.model.usage import Usage
    from console.tui.model.wrong import Wrong
    from console.tui.navigation.links import Link
    from console.tui.sources.launch import Watch


class Navigation(Protocol):
    """Navigation between places."""

    @property
    def table(self) -> str:
        """The table that was shown last."""

    def open(self, link: Link) -> None:
        """Go to a place; show a note if it does not exist."""

    def step(self, by: int) -> None:
        """Go back or forward in the history of places."""

    def select_on_map(self, cells: Iterable[int]) -> None:
        """Show the map with these cells selected."""


class AppContext(Protocol):
    """The application's interface; see :class:`console.tui.app.ConsoleApp`."""

    settings: Settings
    machine: Machine
    usage: Usage
    runs: dict[int, Run]
    trouble: str
    read_only: bool
    replaying: bool
    first_start: bool
    starting: int
    machine_changed: Signal[Changed]
    runs_changed: Signal[int]
    jobs_changed: Signal[set[str]]

    @property
    def wrongs(self) -> tuple[Wrong, ...]:
        """What is wrong with the machine, the worst first."""

    @property
    def next_wrong(self) -> int | None:
        """The index in ``wrongs`` of what the key goes to."""

    @property
    def harmed(self) -> Mapping[int, str]:
        """Live launchers on nodes that are down: what became of their ranks."""

    @property
    def navigator(self) -> Navigation: ...
    @property
    def problems(self) -> list[str]: ...
    @property
    def open_jobs(self) -> list[Job]: ...
    @property
    def open_tabs(self) -> list[Tab]: ...
    @property
    def current_mode(self) -> str: ...
    @property
    def screen(self) -> Screen[Any]: ...
    @property
    def mode_change_signal(self) -> Signal[str]: ...

    # Watched launches
    def attach(self, launcher: int, *, command: str = "", size: int = 0, show: bool = True) -> None: ...
    def follow(self, watch: Watch) -> None: ...
    def open_job(self, number: int) -> None: ...
    def close_job(self, number: int) -> None: ...
    def close_run(self, launcher: int) -> None: ...
    def debug_rank(self, launcher: int, rank: int) -> None: ...
    def launch_with(self, form: Form) -> None: ...
    def launch_on(self, where: str, size: int) -> None: ...

    # Data
    async def history(self, limit: int) -> list[Launcher]: ...
    @property
    def health_known(self) -> bool: ...
    def may_change(self) -> bool: ...
    def keys_of(self, action: Action) -> str: ...
    def picture_age_s(self) -> float | None: ...
    def wall_clock(self) -> float: ...
    def where_told(self) -> str: ...

    # Display
    def action_show(self, mode: str) -> None: ...
    def action_help(self) -> None: ...
    async def action_quit(self) -> None: ...
    def show_mode(self, mode: str) -> None: ...
    def notify(self, message: str, *, severity: SeverityLevel, markup: bool) -> None: ...
    def push_screen(
        self, screen: Screen[str | None], callback: Callable[[str | None], None] | None = None
    ) -> object: ...
    def run_worker(self, work: Any) -> object: ...
    async def run_action(self, action: str, default_namespace: DOMNode | None = None) -> bool: ...


def context(widget: Widget) -> AppContext:
    """The application of a screen or widget."""
    return cast("AppContext", widget.app)
