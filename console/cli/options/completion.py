"""Completion for bash, zsh and fish, generated from the same table as parser, help and page.

``python -m console.cli.options.completion bash yod`` prints a shell's script. The script does not offer prefixes of the
options (``-l`` for ``-list``), but completes their values.
"""

from __future__ import annotations

import signal
import sys

from console.cli.options.parser import Word, complain
from console.cli.options.tables import COMMANDS, Table, spellings, table_of
from console.errors import UsageError
from console.launch.options.output import TOPICS
from console.launch.options.run import PLACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SHELLS = ("bash", "zsh", "fish")
#: Placeholders of values that a shell can complete by itself; others are left to the user.
_FILES, _FOLDERS = ("FILE", "PATH"), ("DIR",)
#: Known values, by their placeholder in the help.
_KNOWN = {
    "HOW": ["none", "core", "map:"],
    "SIG[@T]": [one.name.removeprefix("SIG") for one in signal.Signals],
    "TYPE": list(TOPICS),
    "WHERE": list(PLACES),
    "WHO": ["shared", "all", "none"],
}


def script(shell: str, table: Table) -> str:
    """The script for one command. Raises UsageError for an unsupported shell."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in makers:
        raise UsageError(f"no completion for {shell}", "there is one for " + ", ".join(SHELLS))
    return makers[shell](table)


def offered(word: Word) -> list[str]:
    """The offered forms: the word and its GNU form."""
    return [f"-{word.name}", f"--{word.long}"]


def choices(word: Word) -> list[str]:
    """The possible values, if they are few."""
    return word.kind.split("|") if "|" in word.kind else _KNOWN.get(word.metavar, [])


def _action(word: Word) -> str:
    if word.metavar in _FILES:
        return "file"
    if word.metavar in _FOLDERS:
        return "folder"
    return " ".join(choices(word)) or "nothing"


def _bash(table: Table) -> str:
    command = table.command
    name = "_redmesh_" + command
    kinds = ""
    for word in table.words:
        if word.kind != "flag":
            kinds += f"        {'|'.join(spellings(table, word))}) kind='{_action(word)}' ;;\n"
    options = " ".join(form for word in table.words for form in offered(word))
    rest = f"{name}_program $at" if table.program else ":"
    return _BASH.format(command=command, name=name, kinds=kinds, rest=rest, options=options)


#: The bash script. It walks over the words before the cursor like the parser, to know which option's value is next.
_BASH = """# bash completion for {command}, made from its table of words
{name}_value() {{
    case $1 in
        file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
        folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
        nothing) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2") ;;
    esac
}}
{name}_program() {{
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif (( $1 == COMP_CWORD )); then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -c -- "$2"; compgen -d -- "$2")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
    fi
}}
{name}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} at=1 kind
    COMPREPLY=()
    while (( at < COMP_CWORD )); do
        kind=
        case ${{COMP_WORDS[at]}} in
        --) (( at++ )); {rest} "$cur"; return ;;
{kinds}        -?*) ;;
        *) {rest} "$cur"; return ;;
        esac
        (( at++ ))
        # bash cuts --size=4 into three words
        if [[ ${{COMP_WORDS[at]}} == = ]]; then
            (( at == COMP_CWORD )) && cur=
            (( at++ ))
        fi
        if [[ $kind ]]; then
            if (( at >= COMP_CWORD )); then
                {name}_value "$kind" "$cur"
                return
            fi
            (( at++ ))
        fi
    done
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '{options}' -- "$cur")
    else
        {rest} "$cur"
    fi
}}
complete -F {name} {command}
"""


def _zsh(table: Table) -> str:
    command = table.command
    lines = [f"#compdef {command}", f"# zsh completion for {command}, made from its table of words", "_arguments \\"]
    for word in table.words:
        forms = offered(word) + ([f"-{word.letter}"] if word.letter else [])
        told = word.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("'", "'\\''")
        value = ""
        if word.kind != "flag":
            known = f"({_action(word)})".replace(":", "\\:")  # a colon starts the next argument
            action = {"file": "_files", "folder": "_files -/", "nothing": " "}.get(_action(word), known)
            value = f":{(word.metavar or 'value').replace(':', ' ')}:{action}"
        once = "*" if word.kind == "texts" else f"({' '.join(forms)})"
        for form in forms:
            equals = "=" if value and form.startswith("--") else ""
            lines.append(f"    '{once}{form}{equals}[{told}]{value}' \\")
    lines += (
        ["    '(-)1:program:_command_names -e' \\", "    '*::arguments:_normal'"] if table.program else ["    ':: :'"]
    )
    return "\n".join(lines) + "\n"


def _fish(table: Table) -> str:
    command = table.command
    lines = [f"# fish completion for {command}, made from its table of words", f"complete -c {command} -f"]
    ours = ""
    if table.program:
        forms = [form for word in table.words if word.kind != "flag" for form in spellings(table, word)]
        # fish's function takes a first argument with two dashes as its own option.
        values = " ".join(sorted(forms, key=lambda form: form.startswith("--")))
        ours = f" -n __redmesh_{command}_options"
        lines.append(_FISH_OPTIONS.format(command=command, values=values))
        lines.append(f"complete -c {command} -x -a '(__fish_complete_subcommand {values})'")
    for word in table.words:
        line = f"complete -c {command}{ours}"
        line += f" -o {word.name} -l {word.long}" + (f" -s {word.letter}" if word.letter else "")
        if word.kind != "flag":
            action = _action(word)
            line += {"file": " -r -F", "folder": " -x -a '(__fish_complete_directories)'", "nothing": " -x"}.get(
                action, f" -x -a '{action}'"
            )
        told = word.help.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"{line} -d '{told}'")
    return "\n".join(lines) + "\n"


#: A fish function that is true until a program is named: after that, options are the program's.
_FISH_OPTIONS = """function __redmesh_{command}_options
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        set -l word $words[1]
        set -e words[1]
        if contains -- $word {values}
            set -q words[1]; and set -e words[1]
        else if test "$word" = --; or not string match -q -- '-*' $word
            return 1
        end
    end
    return 0
end"""


def main(arguments: Sequence[str] | None = None) -> int:
    """``completion SHELL COMMAND``: the script on stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(given) != 2 or given[1] not in COMMANDS:
            raise UsageError(
                "completion SHELL COMMAND", f"commands: {', '.join(COMMANDS)}; shells: {', '.join(SHELLS)}"
            )
        print(script(given[0], table_of(given[1])), end="")
    except UsageError as error:
        return complain("completion", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
