"""What to write instead of a word that ``mesh`` does not know. Imported only after an error.

The words are those of Slurm's commands, GNU parallel and mpiexec.
"""

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence

from console.errors import UsageError
from redmesh.sanitise import clean

_NO_QUEUES = "leave it out: a mesh has no partitions and accounts"
_TASKS = "a job has one-processor tasks: --array 1-N or --tasks FILE; yod -n N runs a parallel program"
_SECTIONS = "mesh sections run has it: mesh sections run --help"
_LIMIT = "--limit N: at most N processors at a time"
_LIMIT_OF_TIME = "--time 60s; a number alone is minutes"
_HOSTS = "leave it out: a job takes the mesh's hosts (mesh init --host NAME)"
_HALT = "--max-fails N: N+1 failures end the job"
_JOBLOG = "mesh job tasks JOB --joblog, also later"
_PIPE = "cut the input into files, and give each task one (split -n l/8; --tasks or ::::)"
_JSON = "--json, and a filter such as jq"

#: Commands of others.
_COMMANDS = {
    **dict.fromkeys(("ps", "list", "top", "info", "sinfo", "ls"), "showmesh, pingd or mesh status"),
    **dict.fromkeys(("kill", "scancel"), "yod -signal TERM ID ends a launch, mesh cancel JOB a job"),
    **dict.fromkeys(("run", "exec", "launch", "srun", "alloc", "salloc"), "yod PROGRAM"),
    **dict.fromkeys(("sbatch", "batch"), "mesh submit -- PROGRAM"),
    **dict.fromkeys(("sacct", "acct"), "mesh history for launches, mesh queue --all for jobs"),
    **dict.fromkeys(("scontrol", "update", "undrain"), "mesh drain and mesh resume NODES; mesh status shows nodes"),
    **dict.fromkeys(("log", "logs"), "mesh job log JOB; yod --attach ID for a detached launch"),
    **dict.fromkeys(("start", "boot"), "mesh up"),
    **dict.fromkeys(("stop", "halt", "shutdown"), "mesh down"),
    **dict.fromkeys(("jobs", "launches"), "mesh queue for jobs, showmesh or pingd for launches"),
    "squeue": "mesh queue for jobs, pingd for launches",
    "parallel": "mesh sections run -- PROGRAM {} ::: A B C, or mesh submit --tasks FILE",
    "xargs": "mesh submit --tasks - -- PROGRAM",
}
#: Words after `mesh COMMAND`, without dashes.
_WORDS = {
    "submit": {
        **dict.fromkeys(("j", "jobs", "P", "max-procs"), _LIMIT),
        **dict.fromkeys(("n", "np", "ntasks", "N", "nodes", "ntasks-per-node"), _TASKS),
        **dict.fromkeys(("p", "partition", "A", "account", "q", "qos"), _NO_QUEUES),
        **dict.fromkeys(("a", "arg-file"), "--array LIST, or --tasks FILE"),
        **dict.fromkeys(("o", "results"), "--output 'DIR/{#}.out', and --error FILE for standard error"),
        **dict.fromkeys(("t", "timeout"), _LIMIT_OF_TIME),
        **dict.fromkeys(("S", "sshlogin", "slf", "sshloginfile"), _HOSTS),
        **dict.fromkeys(("J", "job-name"), "--name NAME"),
        **dict.fromkeys(("d", "dependency"), "--after JOB"),
        **dict.fromkeys(("H", "begin"), "--hold, then mesh release JOB"),
        **dict.fromkeys(("D", "chdir", "workdir", "wd"), "--cwd DIR"),
        **dict.fromkeys(("i", "input"), "--stdin FILE"),
        **dict.fromkeys(("gres", "gpus", "G"), "--gpus-per-task N"),
        **dict.fromkeys(("mem", "mem-per-cpu"), "leave it out: memory is not limited"),
        **dict.fromkeys(("colsep", "C", "link", "xapply"), _SECTIONS),
        **dict.fromkeys(("resume", "resume-failed", "retry-failed"), "mesh retry JOB"),
        **dict.fromkeys(("progress", "bar", "eta"), "--wait on a terminal, or mesh job watch JOB"),
        **dict.fromkeys(("k", "keep-order"), "mesh job tasks JOB is in order; --output FILE for each task"),
        **dict.fromkeys(("pipe", "pipepart", "block"), _PIPE),
        "e": "--error FILE",
        "c": "--cpus-per-task N",
        "W": "--wait",
        "export": "--env NAME=VALUE",
        "wrap": "mesh submit -- sh -c '…'",
        "joblog": _JOBLOG,
        "halt": _HALT,
        "retry": "--retries N",
    },
    "sections": {
        **dict.fromkeys(("j", "jobs", "P", "max-procs"), _LIMIT),
        **dict.fromkeys(("n", "np", "ntasks"), "--size N: ranks of a section; --limit N: processors"),
        **dict.fromkeys(("a", "arg-file"), "mesh sections run -- PROGRAM {} :::: FILE"),
        **dict.fromkeys(("results", "o"), "--output 'DIR/{#}'"),
        **dict.fromkeys(("t", "timeout"), _LIMIT_OF_TIME),
        **dict.fromkeys(("S", "sshlogin", "slf", "sshloginfile"), _HOSTS),
        **dict.fromkeys(("resume", "resume-failed", "retry-failed"), "mesh sections resume JOB"),
        **dict.fromkeys(("k", "keep-order", "tag"), "mesh job tasks JOB is in order; --output FILE for each section"),
        **dict.fromkeys(("progress", "bar", "eta", "wait"), "leave it out: a terminal shows how far the job is"),
        **dict.fromkeys(("link", "xapply"), "::: and :::+"),
        **dict.fromkeys(("pipe", "pipepart", "block", "cat", "fifo"), _PIPE),
        **dict.fromkeys(("N", "L", "m", "X", "max-args", "max-lines", "xargs"), "a section has one row: {1} {2}"),
        **dict.fromkeys(("u", "ungroup", "lb", "line-buffer", "linebuffer"), "--output 'out/{#}': all of it, in files"),
        **dict.fromkeys(("q", "quote"), "leave it out: no shell reads the command"),
        **dict.fromkeys(("transfer", "transferfile", "return", "trc", "basefile"), "stage = true in a job file"),
        **dict.fromkeys(("wd", "workdir", "chdir"), "leave it out: sections run in the current directory"),
        "header": "table = 'FILE.csv' in a job file: the header names the parameters",
        "I": "leave it out: the replacement string is {}",
        **dict.fromkeys(("env", "stdin", "file", "after", "hold", "array", "tasks", "error"), "mesh submit has it"),
        "C": "--colsep TEXT",
        "joblog": "mesh sections report --joblog --file LOG",
        "halt": _HALT,
        "dry-run": "mesh sections status --all prints the sections",
    },
    "queue": {
        **dict.fromkeys(("u", "user", "me", "A", "p"), "leave it out: the queue shows the jobs of this account"),
        **dict.fromkeys(("t", "states"), "--all: also jobs that have ended"),
        **dict.fromkeys(("l", "long", "o", "format", "h"), _JSON),
        **dict.fromkeys(("j", "jobs"), "mesh job show JOB"),
    },
    "history": {
        **dict.fromkeys(("u", "user", "S", "starttime", "j", "jobs", "o", "format", "X", "state", "s"), _JSON),
    },
    "up": {
        **dict.fromkeys(("n", "np", "ntasks"), "--processors N"),
        **dict.fromkeys(("N",), "--nodes M"),
        **dict.fromkeys(("host", "hosts", "hostfile", "machinefile"), "mesh init --host NAME or --hostfile FILE first"),
    },
    "cancel": {**dict.fromkeys(("u", "user", "me"), "mesh queue --json names the jobs; cancel them by their UUIDs")},
    "drain": {**dict.fromkeys(("r", "Reason"), "--reason TEXT")},
    "retry": {"wait": "mesh retry JOB, then mesh wait JOB"},
    "purge": {"a": "mesh purge --all"},
}
#: Commands whose further words are probably for an option, or for another command.
_PLACES = {
    "drain": "--reason TEXT, in quotes",
    "status": "showmesh and pingd LIST show single nodes and processors",
    "history": "-n N: how many",
    "up": "mesh up --processors N",
}
_JOBS = "mesh queue --all lists the jobs"


def unknown_command(prog: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for ``mesh NAME``, or ``mesh job NAME``."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {prog} {near[0]}?" if near else f"{prog} --help lists the commands"
    if prog == "mesh":
        hint = _COMMANDS.get(name, hint)
    return UsageError(f"{prog} has no command {clean(name)!r}", hint)


def unknown_words(parser: argparse.ArgumentParser, words: list[str]) -> UsageError:
    """The error for words that a subcommand does not take."""
    command = parser.prog.removeprefix("mesh ").partition(" ")[0]
    word = words[0]
    if not word.startswith("-"):
        hint = _PLACES.get(command) or _usage(parser)
        return UsageError(f"{parser.prog} takes no further word {clean(word)!r}", hint)
    option = word.partition("=")[0]
    name = option.lstrip("-")
    meant = _WORDS.get(command, {})
    letter = name[:1] if name[1:].isdigit() and not word.startswith("--") else name  # -j4
    hint = meant.get(letter, "")
    if not hint:
        options = [one for action in parser._actions for one in action.option_strings]  # argparse has no other way
        near = difflib.get_close_matches(option, options, 1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else _usage(parser)
    return UsageError(f"{parser.prog} has no option {clean(option)}", hint)


def explained(parser: argparse.ArgumentParser, message: str, words: Sequence[str]) -> UsageError:
    """An error of argparse about the command line ``words`` in our words, with the next step."""
    usage = _usage(parser)
    if found := re.fullmatch(r"the following arguments are required: (.*)", message):
        return UsageError(f"{parser.prog} needs {found[1]}", _missing(parser, found[1], words) or usage)
    if found := re.fullmatch(r"argument (.*): expected .*argument.*", message):
        return UsageError(f"{parser.prog}: {found[1]} needs a value", usage)
    if found := re.fullmatch(r"argument (.*): invalid (?:int|float) value: (.*)", message, re.DOTALL):
        return UsageError(f"{parser.prog}: {found[1]} is a number, not {clean(found[2])}", usage)
    if found := re.fullmatch(r"argument (.*): invalid choice: (.*) \(choose from (.*)\)", message, re.DOTALL):
        return UsageError(f"{parser.prog}: {found[1]} is not {clean(found[2])}", f"it is one of {found[3]}")
    return UsageError(f"{parser.prog}: {clean(message.removeprefix('argument '))}", usage)


def _missing(parser: argparse.ArgumentParser, names: str, words: Sequence[str]) -> str:
    """What to do about arguments that are missing, perhaps because another launcher's option stands there."""
    for action in parser._actions:  # argparse has no other way to ask it
        if isinstance(action, argparse._SubParsersAction):
            shown = [one.dest for one in action._choices_actions]
            return f"one of: {', '.join(shown)}" if len(shown) < 15 else f"{parser.prog} --help lists the commands"
    meant = _WORDS.get(parser.prog.removeprefix("mesh "), {})
    hints = [meant[word.lstrip("-")] for word in words if word.startswith("-") and word.lstrip("-") in meant]
    if hints:
        return hints[0]
    return f"{_usage(parser)}; {_JOBS}" if re.search(r"\bJOB\b", names) else ""


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage of a command in one line, without the options of every command."""
    text = " ".join(parser.format_usage().split())
    for common in (" [-h]", " [--config FILE]", " [--quiet]", " [--json]"):
        text = text.replace(common, "")
    return text if len(text) < 160 else f"{parser.prog} --help has the options"
