"""Completion in a zsh that somebody types into: only its line editor runs what `_arguments` was told."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

pytestmark = pytest.mark.skipif(not (shutil.which("zsh") and shutil.which("tmux")), reason="no zsh, or no tmux")


@pytest.fixture
def zsh(yods: PrivateMesh) -> Iterator[Tmux]:
    tmux = Tmux(yods, command="zsh -f")
    try:
        tmux.type("PS1='> '; autoload -U compinit; compinit -D -u; eval \"$(mesh completion zsh)\"; echo re''ady")
        tmux.press("Enter")
        tmux.until("ready")
        yield tmux
    finally:
        tmux.close()


def test_words_values_and_programs(zsh: Tmux) -> None:
    for line, told in (
        ("yod -distribution ", ["block", "cyclic"]),
        ("yod -cpu-bind ", ["core", "map:", "none"]),
        ("yod --sleep=", ["after-exec", "before-go"]),
        ("yod -lab", ["yod -label"]),
        ("yod -sz 4 hostname", ["hostnamectl"]),
        ("pingd -v", ["pingd -verbose"]),
    ):
        zsh.press("C-u")
        zsh.type("clear")
        zsh.press("Enter")
        wait_until(lambda: zsh.screen().strip() == ">", "the prompt is back: what is typed before that may be lost")
        zsh.type(line)
        zsh.until(line.strip())
        zsh.press("Tab", "Tab")
        screen = zsh.until(*told)
        assert "error" not in screen and "not found" not in screen
