"""Screens from which processors, nodes and launches can be acted on: the question, the command, its answer."""

from __future__ import annotations

from console.tui.actions import commands
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Confirm, Entry


class CommandScreen(Framed):
    """A screen with something selected."""

    def target(self) -> commands.Target:
        """What is acted on: the selection, or what is under the cursor."""
        raise NotImplementedError

    def action_copy(self, what: str = "nodes") -> None:
        """The selection as a list of nodes, or of processors."""
        found = self.target()
        text = found.node_list if what == "nodes" else found.processor_list
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"copied: {commands.shortened(text)}", markup=False)

    def action_do(self, name: str) -> None:
        """Asks, and then does it by the command it shows."""
        if self.console.replaying:
            self.notify("this is a recording: nothing in it can be acted on", severity="warning", markup=False)
            return
        found, verb = self.target(), commands.VERBS[name]
        wrong = commands.problem(verb, found)
        if wrong:
            self.notify(f"{verb.label}: {wrong}", severity="warning", markup=False)
        elif verb.asks:
            self._ask_more(verb, found)
        else:
            self._ask(verb, found, "")

    def _ask_more(self, verb: commands.Verb, found: commands.Target) -> None:
        """For whom, or why."""
        whom = verb.asks == "user"
        users = sorted({row.user for row in self.console.machine.launchers.values()}) if whom else []

        def answered(text: str | None) -> None:
            if text is not None and (text.strip() or not whom):
                self._ask(verb, found, text.strip())

        entry = Entry(
            f"{verb.label} for user" if whom else f"{verb.label}: why? (may be empty)",
            lambda text: commands.shortened(
                commands.line(commands.command(verb, found, text.strip() or "USER" * whom)), 110
            ),
            offers=lambda text: [user for user in users if user.startswith(text)],
        )
        self.app.push_screen(entry, answered)

    def _ask(self, verb: commands.Verb, found: commands.Target, answer: str) -> None:
        words = commands.command(verb, found, answer)

        def answered(yes: bool | None) -> None:
            if yes and self.console.may_change():
                self.run_worker(self._do(words), group="verbs")

        question = commands.question(verb, found)
        self.app.push_screen(Confirm(question, commands.consequence(verb, found, words), verb.label), answered)

    async def _do(self, words: list[str]) -> None:
        title = commands.shortened(commands.line(words))
        try:
            told = await commands.run(words)
        except commands.ActionError as error:
            self.notify(error.message, title=title, severity="error", markup=False, timeout=10)
        except OSError as error:
            self.notify(f"it could not be started: {error.strerror}", title=title, severity="error", markup=False)
        else:
            self.notify(told or "done", title=title, markup=False)
