"""``n``: the launch form, with the yod line that does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from console.tui import launching
from console.tui.actions.registry import bindings
from console.tui.launching import Form, LaunchError
from console.tui.machine import State
from console.tui.screens.frame import Framed
from console.tui.widgets.choice import Choice
from console.tui.widgets.titles import set_subtitle
from console.tui.words import several


class Field(Input):
    """A line of text; Enter launches. Not sooner: a key of higher priority would overtake what was typed before it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("field")


class LaunchScreen(Framed):
    """A form whose every field is one of yod's words."""

    TITLE_FOR_HELP = "launch"
    AUTO_FOCUS = "#command"
    BINDINGS: ClassVar[list[BindingType]] = bindings("launch")
    PLACES = ("launch", "field", "choice")

    def body(self) -> Iterable[Widget]:
        """Fields, the line, and what is wrong with it."""
        form = Vertical(
            _row("Program", Field(placeholder="program and arguments", id="command", compact=True)),
            _row("Size", Field(placeholder="processors; empty: 1", id="size", compact=True, restrict="[0-9]*")),
            _row("On", Field(placeholder="anywhere; or nodes and processors: n0,n2,8..11", id="where", compact=True)),
            _row("Ranks", Choice(("block", "cyclic"), id="distribution")),
            _row("Behaviour", Choice(("default", "batch", "interactive"), id="behaviour")),
            _row("Output", Choice(("as it comes", "label each line with its rank"), id="label")),
            _row("Crowding", Choice(("a processor each", "overcommit"), id="overcommit")),
            id="form",
        )
        form.border_title = "new launch"
        line = Static(id="yod-line")
        line.border_title = "the same in a shell"
        yield Vertical(form, line, Static(id="launch-note"), id="launch-body")

    def on_mount(self) -> None:
        """Shows the line for the empty form."""
        self.busy = False
        self.console.machine_changed.subscribe(self, lambda _: self._update())
        self._update()

    def fill_in(self, where: str, size: int) -> None:
        """Takes processors chosen on the map."""
        self.query_one("#where", Input).value = where
        self.query_one("#size", Input).value = str(size)

    def form(self) -> Form:
        """What is filled in now."""
        return Form(
            command=self.query_one("#command", Input).value,
            size=self.query_one("#size", Input).value,
            where=self.query_one("#where", Input).value,
            distribution=self.query_one("#distribution", Choice).value,
            behaviour=self.query_one("#behaviour", Choice).value,
            label=self.query_one("#label", Choice).index == 1,
            overcommit=self.query_one("#overcommit", Choice).index == 1,
        )

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self._note("")
        self._update()

    def _update(self) -> None:
        if not self.is_current:
            return
        form = self.form()
        self.query_one("#yod-line", Static).update(Content(launching.yod_line(form)))
        machine = self.console.machine
        free = machine.counts()[State.FREE]
        box = self.query_one("#form")
        set_subtitle(box, f"{free:,} of {several(machine.cells, 'processor')} free")

    def _note(self, text: str, *, bad: bool = False) -> None:
        note = self.query_one("#launch-note", Static)
        note.update(Content(text))
        note.set_class(bad, "-bad")

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_launch()

    def action_launch(self) -> None:
        """Starts it, once every field has taken in what was typed."""
        if not self.busy:
            self.run_worker(self._launch_when_typed(), exclusive=True)

    async def _launch_when_typed(self) -> None:
        while any(field.message_queue_size for field in self.query(Field)):
            await asyncio.sleep(0.005)
        form = self.form()
        wrong = launching.problem(form)
        if wrong:
            self._note(wrong, bad=True)
            self.query_one("#size" if wrong.startswith("size") else "#command").focus()
            return
        self.busy = True
        self._note("starting …")
        self.console.starting += 1
        try:
            launcher = await launching.launch(form)
        except LaunchError as error:
            self._note(f"{error.message} ({error.hint})" if error.hint else error.message, bad=True)
        except OSError as error:
            self._note(f"yod could not be started: {error.strerror}", bad=True)
        else:
            self._note("")
            self.console.attach(launcher, command=form.command, size=int(form.size or 1))
        finally:
            self.busy = False
            self.console.starting -= 1


def _row(name: str, field: Widget) -> Widget:
    kind = "field -option" if isinstance(field, Choice) else "field"
    return Horizontal(Label(name, classes="field-name"), field, classes=kind)
