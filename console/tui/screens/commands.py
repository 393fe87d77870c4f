"""Dialogs for commands on processors, nodes and launches: the question, the command, its answer."""

from __future__ import annotations

from collections.abc import Callable

from textual.notifications import SeverityLevel

from console.tui.actions import commands
from console.tui.model.jobs import Job
from console.tui.screens.base import Framed
from console.tui.screens.dialogs import Confirm, Entry


class CommandDialogs:
    """The dialogs of one screen. ``target``: the selection, or what is under the cursor."""

    def __init__(self, screen: Framed, target: Callable[[], commands.Target]) -> None:
        self._screen, self._target = screen, target
        self._boot = ""  # of the mesh, when the question was asked

    def copy(self, text: str) -> None:
        """Copy a list to the clipboard, and say so."""
        if text:
            self._screen.app.copy_to_clipboard(text)
            self._notify(f"copied: {commands.shortened(text)}")

    def _notify(self, text: str, *, title: str = "", severity: SeverityLevel = "information") -> None:
        timeout = 10 if severity == "error" else None
        self._screen.notify(text, title=title, severity=severity, markup=False, timeout=timeout)

    def do(self, name: str) -> None:
        """Ask for confirmation, then run the shown command."""
        if self._screen.console.replaying:
            self._notify("this is a recording: nothing in it can be acted on", severity="warning")
            return
        found, verb = self._target(), commands.VERBS[name]
        self._boot = self._screen.console.machine.boot_id
        wrong = commands.problem(verb, found)
        if wrong:
            self._notify(f"{verb.label}: {wrong}", severity="warning")
        elif verb.asks:
            self._ask_more(verb, found)
        else:
            self._ask(verb, found, "")

    def _ask_more(self, verb: commands.Verb, found: commands.Target) -> None:
        """Ask for the user, or the reason."""
        whom = verb.asks == "user"
        users = sorted({row.user for row in self._screen.console.machine.launchers.values()}) if whom else []

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
        self._screen.app.push_screen(entry, answered)

    def _ask(self, verb: commands.Verb, found: commands.Target, answer: str) -> None:
        words = commands.command(verb, found, answer)

        def answered(yes: bool | None) -> None:
            if not yes or not self._screen.console.may_change():
                return
            wrong = commands.overtaken(verb, found, self._screen.console.machine, self._boot)
            if wrong:
                self._notify(f"{verb.label}: {wrong}", severity="warning")
            else:
                self._screen.run_worker(self._do(words), group="verbs")

        question = commands.question(verb, found)
        self._screen.app.push_screen(Confirm(question, commands.consequence(verb, found, words), verb.label), answered)

    async def _do(self, words: list[str]) -> None:
        await _run(self._screen, words)


class JobDialogs:
    """The job commands of a screen: ``target`` gives the jobs."""

    def __init__(self, screen: Framed, target: Callable[[], list[Job]]) -> None:
        self._screen, self._target = screen, target

    @staticmethod
    def makes_sense(name: str, job: Job) -> bool:
        """True if the command is possible for that job now."""
        held, unfinished = job.state == "held", job.tasks - job.finished
        return {
            "hold": job.live and not held,
            "release": held,
            "retry": not job.calls and bool(job.failed or (not job.live and unfinished)),
            "cancel": job.live,
            "resume": not job.calls and job.state in ("owner lost", "suspended"),
        }[name]

    def do(self, name: str) -> None:
        """Run the command for the jobs for which it is possible; asks before jobs are cancelled."""
        screen, verb = self._screen, commands.JOB_VERBS[name]
        chosen = self._target()
        jobs = [job for job in chosen if self.makes_sense(name, job)]
        if not jobs:
            why = verb.otherwise
            if name in ("retry", "resume") and any(job.calls for job in chosen):
                why = "the calls are a Python program's, which can submit them again"
            screen.notify(f"{verb.label}: {why}", severity="warning", markup=False)
            return
        if not screen.console.may_change():
            return
        words = [*verb.words, *(job.id for job in jobs)]

        def answered(yes: bool | None) -> None:
            if yes:
                screen.run_worker(_run(screen, words, verb.did), group="verbs")

        if not verb.asks:
            answered(True)
            return
        names = ", ".join(f"{job.id} ({job.name or job.command[:30]})" for job in jobs[:3])
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        question = f"{verb.label} job{'s' * (len(jobs) > 1)} {names}{more}?"
        told = f"{verb.effect}\n{commands.shortened(commands.line(words), 200)}"
        them = "it" if len(jobs) == 1 else "them"
        screen.app.push_screen(Confirm(question, told, f"{verb.label} {them}", f"Keep {them}"), answered)


async def _run(screen: Framed, words: list[str], did: str = "done") -> None:
    title = commands.shortened(commands.line(words))
    try:
        told = await commands.run(words)
    except commands.ActionError as error:
        screen.notify(error.message, title=title, severity="error", markup=False, timeout=10)
    except OSError as error:
        told = f"it could not be started: {error.strerror}"
        screen.notify(told, title=title, severity="error", markup=False, timeout=10)
    else:
        screen.notify(told or did, title=title, markup=False)
