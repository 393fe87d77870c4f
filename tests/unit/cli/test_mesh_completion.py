"""``mesh completion``: one script for all commands, read by real shells; of mesh itself what its parser knows."""

import shutil
import subprocess
from pathlib import Path

import pytest

from console.cli.mesh.command import main, parser
from console.cli.mesh.completion import tree_of

COMMANDS = ("yod", "pingd", "showmesh", "mesh")


def scripts(shell: str, capsys: pytest.CaptureFixture[str], *of: str) -> str:
    assert main(["completion", shell, *of]) == 0
    return capsys.readouterr().out


def test_the_tree_is_the_parsers() -> None:
    tree = tree_of(parser())
    assert {"up", "down", "completion", "partition"} <= set(tree["mesh"])
    assert "--batch-job" in tree["mesh partition create"] and "--force" in tree["mesh down"]
    assert {"bash", "zsh", "fish"} <= set(tree["mesh completion"])
    assert "reserved" in tree["mesh mode"]


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["mesh", "comp"], ["completion"]),
        (["mesh", "partition", "d"], ["destroy"]),
        (["mesh", "partition", "destroy", "--f"], ["--force"]),
        (["mesh", "completion", "z"], ["zsh"]),
        (["pingd", "-interr"], ["-interrupt"]),
        (["yod", "-timi"], ["-timing"]),
    ],
)
def test_bash_completes_words_and_prefixes(
    words: list[str], offers: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script").write_text(scripts("bash", capsys))
    line = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {tmp_path}/script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _redmesh_{words[0]};"
        " printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (offers, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others_read_it(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = scripts(shell, capsys)
    assert all(f"complete -c {name} " in text or f"compdef _redmesh_{name} {name}\n" in text for name in COMMANDS)
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(text)
    before = "autoload -U compinit; compinit -u -D; " if shell == "zsh" else ""
    done = subprocess.run([shell, "-c", f"{before}source {tmp_path}/script"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_command_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = scripts("bash", capsys, "pingd")
    assert "complete -F _redmesh_pingd pingd" in text and "yod" not in text
