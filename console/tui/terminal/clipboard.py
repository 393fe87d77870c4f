"""Copies text from the console over SSH and through tmux: OSC 52, or tmux's own command."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping

#: Terminals accept about 100,000 characters of base64 (xterm); some cut longer text off, others ignore it.
MOST = 74_000
_PATIENCE_S = 2.0


def sequence(text: str, environ: Mapping[str, str]) -> str:
    """The sequence by which the terminal copies ``text``, wrapped for GNU screen, and for a tmux with pass-through."""
    told = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
    if environ.get("TMUX"):
        return "\x1bPtmux;" + told.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY"):
        # screen accepts 768 bytes in one string.
        pieces = [told[at : at + 700] for at in range(0, len(told), 700)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return told


def by_tmux(text: str) -> bool:
    """Give the text to tmux, which stores it and tells the terminal; False if that fails (tmux before 3.2)."""
    try:
        done = subprocess.run(
            ["tmux", "load-buffer", "-w", "-"], input=text.encode(), timeout=_PATIENCE_S, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
