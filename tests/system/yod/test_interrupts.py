"""SIGINT at any moment of a command: it ends, and no traceback of ours is printed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.chance import long
from tests.support.mesh import MakeMesh

ROOT = Path(__file__).parents[3]
#: So many interrupts, spread over the time that a command takes.
MOMENTS = long(8, 96)
#: What the interpreter does before the first instruction of a program has been done: a signal that came before it is
#: raised in that instruction, or in the first ones, which let signals end the program without a word.
START_UP = (
    "import _signal",
    "if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler",
    "_signal.signal(_signal.SIGINT, _signal.SIG_DFL)",
    "<frozen runpy>",
    "<frozen site>",
    "<frozen zipimport>",
    ", line 0, in <module>",
)


def ours(errors: str) -> bool:
    """Whether a traceback is from an instruction of ours, and not of the interpreter's start."""
    return f'File "{ROOT}/' in errors and not any(place in errors for place in START_UP)


@pytest.mark.storm
@pytest.mark.parametrize(
    "words",
    [
        ["bin/mesh", "status"], ["bin/showmesh"], ["bin/pingd"], ["bin/yod", "--show", "true"],
        ["-m", "redmesh", "mesh", "status"], ["-m", "redmesh", "yod", "--show", "true"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_interrupt_gives_no_traceback(mesh: MakeMesh, words: list[str]) -> None:
    private = mesh(2, 1, up=False)
    words = [str(ROOT / word) if word.startswith("bin/") else word for word in words]
    began = time.monotonic()
    subprocess.run([sys.executable, *words], env=private.env, cwd=ROOT, capture_output=True)
    whole_s = time.monotonic() - began
    for at in range(MOMENTS):
        process = private.start(sys.executable, *words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            subprocess.Popen.wait(process, whole_s * at / MOMENTS)  # not with patience: this is the moment
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        errors = process.communicate()[1]
        assert not ours(errors), f"after {at}/{MOMENTS} of its time: {errors}"
