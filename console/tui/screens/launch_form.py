"""``n``: the launch form, with the equivalent yod command line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from console.tui.actions import launch_command
from console.tui.actions.launch_command import FIELDS, Entry, Form, LaunchError
from console.tui.actions.registry import bindings
from console.tui.format import several
from console.tui.model.machine import State
from console.tui.navigation.completion import PathSuggester
from console.tui.navigation.presets import Presets, config_directory
from console.tui.screens.base import Framed, Page
from console.tui.screens.dialogs import Choosing
from console.tui.widgets.bars import set_subtitle
from console.tui.widgets.inputs import Choice, CleanInput, Prompt
from console.tui.widgets.lines import LineList
from console.tui.widgets.offers import EarlierLaunches, FreeNodes
from redmesh.sanitise import clean


class Field(CleanInput):
    """An input line; Enter launches. It is not a priority key, which would overtake letters typed before it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("field")


class LaunchScreen(Framed):
    """A form whose fields are yod's options."""

    TITLE_FOR_HELP = "launch"
    AUTO_FOCUS = "#command"
    BINDINGS: ClassVar[list[BindingType]] = bindings("launch")
    PLACES = ("launch", "field", "choice", "lines")
    HORIZONTAL_BREAKPOINTS = [*Framed.HORIZONTAL_BREAKPOINTS, (170, "-broad")]  # what fills the form stands beside it
    VERTICAL_BREAKPOINTS = [*Framed.VERTICAL_BREAKPOINTS, (50, "-high")]  # … or below it

    def compose(self) -> Iterable[Widget]:
        """Fields, the command line, and its error."""
        form = VerticalScroll(*map(_row, FIELDS), id="form", can_focus=False)
        form.border_title = "new launch"
        line = Static(id="yod-line")
        line.border_title = "the same in a shell"
        earlier, nodes = EarlierLaunches(id="earlier"), FreeNodes(self.console.machine, id="free-nodes")
        earlier.border_title, nodes.border_title = "launches of before", "nodes with free processors"
        for one in (earlier, nodes):
            set_subtitle(one, "a click fills the form")
        main = Vertical(form, line, Static(id="launch-note"), id="launch-main")
        body = Container(main, Vertical(earlier, nodes, id="launch-offers"), id="launch-body")
        return self.framed(body, Prompt(id="prompt"))

    def on_mount(self) -> None:
        """Show the command line for the empty form."""
        self.busy = False
        self._presets = Presets(self.console.settings.state_dir, config_directory())
        self.console.machine_changed.subscribe(self, lambda _: self._update())
        self.console.mode_change_signal.subscribe(self, self._mode_changed)
        self._update()
        self._show_earlier()

    def on_screen_resume(self) -> None:
        """Show what has changed meanwhile."""
        self._update()
        self._show_earlier()

    def _mode_changed(self, mode: str) -> None:
        """Come back to the form: what is typed replaces the program of before."""
        if mode == "launch":
            program = self.query_one("#command", Input)
            self.set_focus(program)  # at once, for what is typed right after the key
            program.action_select_all()

    def on_resize(self) -> None:
        """A larger window may have room for the lists."""
        self.call_after_refresh(self._update)

    def _show_earlier(self) -> None:
        self.query_one(EarlierLaunches).show(self._presets.named, self._presets.history)

    @on(LineList.Chosen, "#earlier")
    def _earlier_chosen(self, event: LineList.Chosen) -> None:
        self.fill(self.query_one(EarlierLaunches).form(event.key))
        self.query_one("#command").focus()

    @on(LineList.Chosen, "#free-nodes")
    def _node_chosen(self, event: LineList.Chosen) -> None:
        where, size = self.query_one(FreeNodes).where(event.key)
        if size:
            self.fill_in(where, size)
            self.query_one("#command").focus()

    def fill_in(self, where: str, size: int) -> None:
        """Take processors selected on the map."""
        self.query_one("#where", Input).value = where
        self.query_one("#size", Input).value = str(size)

    def form(self) -> Form:
        """The present contents of the fields."""
        found: Form = {}
        for entry in FIELDS:
            widget = self.query_one(f"#{entry.id}")
            if isinstance(widget, Choice):
                if widget.index:
                    found[entry.id] = widget.value
            elif isinstance(widget, Input) and widget.value:
                found[entry.id] = widget.value
        return found

    def fill(self, form: Form) -> None:
        """Fill the fields from an earlier form."""
        for entry in FIELDS:
            widget = self.query_one(f"#{entry.id}")
            value = form.get(entry.id, "")
            if isinstance(widget, Choice):
                words = [word for word, _ in entry.choices]
                widget.index = words.index(value) if value in words else 0
            elif isinstance(widget, Input):
                widget.value = value
                widget.cursor_position = len(value)
        self._update()

    @on(Input.Changed)
    @on(Choice.Changed)
    def _changed(self) -> None:
        self._note("")
        self._update()

    def _update(self) -> None:
        if not self.is_current:
            return
        self.query_one("#yod-line", Static).update(Content(launch_command.yod_line(self.form())))
        machine = self.console.machine
        free = machine.counts()[State.FREE]
        box = self.query_one("#form")
        set_subtitle(box, f"{free:,} of {several(machine.cells, 'processor')} free")
        nodes = self.query_one(FreeNodes)
        if self.query_one("#launch-offers").display:
            nodes.update_nodes()

    def _note(self, text: str, *, bad: bool = False) -> None:
        note = self.query_one("#launch-note", Static)
        note.update(Content(text))
        note.set_class(bad, "-bad")

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_launch()

    def action_launch(self) -> None:
        """Launch, once every field has processed its input."""
        if not self.busy and self.console.may_change():
            self.run_worker(self._launch_when_typed(), exclusive=True)

    async def _typed_form(self) -> Form | None:
        """The form after all input is processed; None, with a message, if it is invalid."""
        while any(field.message_queue_size for field in self.query(Field)):
            await asyncio.sleep(0.005)
        form = self.form()
        where, wrong = launch_command.problem(form)
        if wrong:
            self._note(wrong, bad=True)
            self.query_one(f"#{where}").focus()
            return None
        return form

    async def _launch_when_typed(self) -> None:
        form = await self._typed_form()
        if form is None:
            return
        self.busy = True
        self._note("starting …")
        self.console.starting += 1
        try:
            launcher = await launch_command.launch(form)
        except LaunchError as error:
            self._note(_told(error), bad=True)
        except OSError as error:
            self._note(f"yod could not be started: {error.strerror}", bad=True)
        else:
            self._note("")
            self._remember(launcher, form)
            self.console.attach(launcher, command=form["command"], size=int(form.get("size") or 1))
        finally:
            self.busy = False
            self.console.starting -= 1

    def _remember(self, launcher: int, form: Form) -> None:
        try:
            self._presets.launched(launcher, form)
            self._show_earlier()
        except OSError as error:
            self.notify(f"the launch is not remembered: {error.strerror}", severity="warning", markup=False)

    def action_preview(self) -> None:
        """Show the placement that yod would choose now."""
        self.run_worker(self._preview(), exclusive=True)

    async def _preview(self) -> None:
        form = await self._typed_form()
        if form is None:
            return
        self._note("asking …")
        try:
            lines = await launch_command.dry_run(form)
        except LaunchError as error:
            self._note(_told(error), bad=True)
        except OSError as error:
            self._note(f"yod could not be started: {error.strerror}", bad=True)
        else:
            self._note("")
            self.app.push_screen(Page("where the ranks would go", lines))

    def action_presets(self) -> None:
        """Choose from earlier and named launches."""
        named = self._presets.named
        rows = [(f"★ {name}", launch_command.yod_line(form), form) for name, form in sorted(named.items())]
        rows += [(str(number), launch_command.yod_line(form), form) for number, form in self._presets.history]
        if not rows:
            self._note("nothing was launched from here before, and nothing has a name yet")
            return

        def chosen(form: Form | None) -> None:
            if form is not None:
                self.fill(form)

        def forget(title: str) -> bool:
            if title.startswith("★ "):
                self._presets.name(title[2:], None)
            return title.startswith("★ ")

        self.app.push_screen(Choosing("launches of before", rows, forget), chosen)

    def action_name(self) -> None:
        """Ask for a name for this form."""
        self.query_one(Prompt).ask("name", "keep this form as", placeholder="a name")

    @on(Prompt.Answered)
    def _named(self, event: Prompt.Answered) -> None:
        name = event.value.strip()
        if not name:
            return
        try:
            self._presets.name(name, self.form())
        except OSError as error:
            self.query_one(Prompt).complain(error.strerror or str(error))
            return
        self._close_prompt()
        self._note(f"kept as {name}; ctrl+o offers it")

    @on(Prompt.Left)
    def _close_prompt(self) -> None:
        self.query_one(Prompt).remove_class("-open")
        self.set_focus(self.query_one("#command"))  # at once, for the keys behind enter

    def action_copy(self) -> None:
        """Copy the yod command line to the clipboard."""
        self.app.copy_to_clipboard(launch_command.yod_line(self.form()))

    def action_clear(self) -> None:
        """Empty the form."""
        self.fill({})
        self.query_one("#command").focus()

    def action_back(self) -> None:
        """Close the prompt, or go back to where one was."""
        if self.query_one(Prompt).is_open:
            self._close_prompt()
            return
        self.console.navigator.step(-1)
        if self.console.current_mode == "launch":  # nothing before it is left
            self.console.action_show("mesh")


def _told(error: LaunchError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _here() -> str:
    """The console's directory, in which programs start."""
    try:
        path = os.getcwd()
    except OSError:  # it was deleted
        return ""
    home = os.path.expanduser("~")
    return ": " + clean(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path)


def _row(entry: Entry) -> Widget:
    if entry.choices:
        field: Widget = Choice(tuple(word for word, _ in entry.choices), id=entry.id)
    else:
        suggester = PathSuggester(commands=entry.id == "command") if entry.paths else None
        field = Field(
            placeholder=f"{entry.hint}{_here()}" if entry.id == "chdir" else entry.hint,
            id=entry.id,
            compact=True,
            restrict="[0-9]*" if entry.id == "size" else None,
            suggester=suggester,
        )
    return Horizontal(Label(entry.label, classes="field-name"), field, classes="field")
