"""``mesh completion SHELL``: prints completion scripts of bash, zsh and fish for yod, pingd, showmesh and mesh."""

import argparse

from console.cli.options.completion import script
from console.cli.options.tables import COMMANDS, table_of
from console.settings import Settings

Tree = dict[str, list[str]]


def completion(_settings: Settings, options: argparse.Namespace) -> int:
    """Print the scripts of one command or of all; for zsh in a form to be sourced."""
    for command in [options.of] if options.of else [*COMMANDS, "mesh"]:
        print(_of(command, options.shell), end="")
    return 0


def _of(command: str, shell: str) -> str:
    if command == "mesh":
        from console.cli.mesh.command import parser

        return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](tree_of(parser()))
    text = script(shell, table_of(command))
    if shell != "zsh":
        return text
    body = "".join(f"    {line}\n" for line in text.splitlines() if not line.startswith("#"))
    return f"_redmesh_{command}() {{\n{body}}}\ncompdef _redmesh_{command} {command}\n"


def tree_of(top: argparse.ArgumentParser) -> Tree:
    """Map the words before the cursor (``mesh``, ``mesh partition`` …) to the possible next words."""
    tree: Tree = {}
    _grow(tree, "mesh", top)
    return tree


def _grow(tree: Tree, path: str, parser: argparse.ArgumentParser) -> None:
    offers = tree.setdefault(path, [])
    for action in parser._actions:  # argparse has no public interface to list the options
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                offers.append(name)
                _grow(tree, f"{path} {name}", below)
        elif action.option_strings:
            offers += action.option_strings
        elif action.choices:
            offers += map(str, action.choices)


def _bash(tree: Tree) -> str:
    cases = "".join(f"        '{path}') offers='{' '.join(offers)}' ;;\n" for path, offers in tree.items())
    return f"""# bash completion for mesh
_redmesh_mesh() {{
    local at path=mesh offers= word
    local -a known=({" ".join(repr(path) for path in tree)})
    for (( at = 1; at < COMP_CWORD; at++ )); do
        for word in "${{known[@]}}"; do
            [[ $word == "$path ${{COMP_WORDS[at]}}" ]] && {{ path=$word; break; }}
        done
    done
    case $path in
{cases}    esac
    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${{COMP_WORDS[COMP_CWORD]}}")
}}
complete -o default -F _redmesh_mesh mesh
"""


def _zsh(tree: Tree) -> str:
    known = " ".join(f"'{path}' '{' '.join(offers)}'" for path, offers in tree.items())
    return f"""_redmesh_mesh() {{
    local -A offers=({known})
    local at path_=mesh
    for (( at = 2; at < CURRENT; at++ )); do
        (( ${{+offers[$path_ $words[at]]}} )) && path_="$path_ $words[at]"
    done
    compadd -- ${{=offers[$path_]}} || _files
}}
compdef _redmesh_mesh mesh
"""


def _fish(tree: Tree) -> str:
    lines = ["# fish completion for mesh", "complete -c mesh -f"]
    for path, offers in tree.items():
        before = path.split()[1:]
        deeper = [one.split()[len(before) + 1] for one in tree if one.startswith(path + " ")]
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in before) or "true"
        unseen = f"; and not __fish_seen_subcommand_from {' '.join(dict.fromkeys(deeper))}" if deeper else ""
        for offer in offers:
            form = (
                f"-l {offer[2:]}" if offer.startswith("--") else f"-o {offer[1:]}" if offer[0] == "-" else f"-a {offer}"
            )
            lines.append(f"complete -c mesh -n '{seen}{unseen}' {form}")
    return "\n".join(lines) + "\n"
