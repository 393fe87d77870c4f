"""Progress of many hosts: a line for each when it is done, or on a terminal a table that is updated in place."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from console.deploy.hosts.host_states import FINAL, State
from console.deploy.mesh.sharing import told
from redmesh.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from console.deploy.ssh.worker_pool import HostTask, Report

#: The most active hosts in the table; the others are counted.
_SHOWN = 12


class Lines:
    """Prints a line on stderr for every host that is done."""

    def moved(self, errand: "HostTask") -> None:
        """Print the host if it is done."""
        if errand.state in FINAL:
            print(line_of(errand), file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a warning."""
        print(f"mesh: {clean(text)}", file=sys.stderr, flush=True)


class Silent:
    """Prints nothing of hosts, because the answer is JSON."""

    def moved(self, errand: "HostTask") -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Print a warning."""
        print(f"mesh: {clean(text)}", file=sys.stderr, flush=True)


class _Table:
    """Shows active hosts in place; failed ones are printed above and stay."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._all: dict[str, HostTask] = {}
        self.live = Live(console=self._console, refresh_per_second=12, transient=True, get_renderable=self._draw)

    def moved(self, errand: "HostTask") -> None:
        """Update the table with a host's new state."""
        self._all[errand.name] = errand
        if errand.state is State.FAILED:
            from rich.text import Text

            self._console.print(Text(line_of(errand), style="red"), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a warning above the table."""
        self._console.print(f"mesh: {clean(text)}", markup=False, soft_wrap=True)

    def _draw(self) -> Any:
        from rich.text import Text

        counted: dict[State, int] = {}
        for errand in list(self._all.values()):
            counted[errand.state] = counted.get(errand.state, 0) + 1
        head = ", ".join(f"{counted[state]} {state.value}" for state in State if state in counted)
        busy = [errand for errand in list(self._all.values()) if errand.state not in FINAL]
        text = Text(f"hosts: {head}\n" if head else "hosts …\n", style="bold")
        for errand in busy[:_SHOWN]:
            text.append(f"  {errand.name:<20} {errand.state.value}\n", style="not bold")
        if len(busy) > _SHOWN:
            text.append(f"  … and {len(busy) - _SHOWN} more\n", style="not bold")
        return text


@contextmanager
def progress(json: bool) -> "Iterator[Report]":
    """The display for the progress: nothing, lines, or a table."""
    if json:
        yield Silent()
    elif sys.stderr.isatty():
        table = _Table()
        with table.live:
            yield table
    else:
        yield Lines()


def line_of(errand: "HostTask") -> str:
    """A line about a host that is done."""
    if errand.failure is None:
        return f"{errand.name}: {errand.state.value} ({errand.took_s:.1f} s)"
    hint = f" ({clean(errand.failure.hint)})" if errand.failure.hint else ""
    return f"{errand.name}: {clean(errand.failure.message)}{hint}"


def as_rows(errands: "Sequence[HostTask]") -> list[dict[str, Any]]:
    """The hosts in the form of ``--json``."""
    return [
        {
            "name": errand.name,
            "address": errand.host.address,
            "state": errand.state.value,
            "code": errand.failure.code if errand.failure else None,
            "message": errand.failure.message if errand.failure else None,
            "hint": errand.failure.hint if errand.failure else None,
            "python": errand.facts.get("version"),
            "took_s": round(errand.took_s, 3),
            "kept_jobs": errand.kept_jobs,
            "shared": told(errand.facts),
        }
        for errand in errands
    ]
