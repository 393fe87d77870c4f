"""Does something in the middle of the removal of a directory by this process."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_on_removal: list[Callable[[], object]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # rmtree removes files relative to their directory, a plain unlink does not
    if event == "os.remove" and arguments[1] != -1 and _on_removal:
        _on_removal.pop()()


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)  # Python cannot remove it again


@contextmanager
def at_first_removal(do: Callable[[], object]) -> Iterator[None]:
    """Call ``do`` once, when rmtree is about to remove its first file: by then it has listed the directory."""
    _install()
    _on_removal[:] = [do]
    try:
        yield
        assert not _on_removal, "nothing was removed"
    finally:
        _on_removal.clear()
