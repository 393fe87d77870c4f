"""Removes directories of a mesh that ends, in which other processes may still create files."""

from __future__ import annotations

import os

#: Passes over a directory. A process that has not noticed the end creates a file or two, so few passes are needed.
_PASSES = 10
#: In the state directory of a keeper: the files by which others see whether it is dead. They are removed last.
EVIDENCE = ("keeper.json", "mesh.lock")


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it, as far as possible.

    A file that is created after its directory was listed keeps the directory from being removed. So look again: for
    example, the yod of a launch that just ended appends to STATE/usage.log, late if the host is busy.
    """
    import shutil  # slow to import, and needed once

    for _ in range(_PASSES):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return


def remove_state(path: str) -> None:
    """Remove the state directory of a keeper: its lock and configuration last, by which others see that it is dead.

    A batch system may kill this process meanwhile (agents/keeper/leftovers.py).
    """
    remove_all_but(path, *EVIDENCE)
    remove_tree(path)


def remove_all_but(path: str, *kept: str) -> None:
    """Like :func:`remove_tree`, but leave the entries ``kept`` of the directory, and thus the directory."""
    for _ in range(_PASSES):
        try:
            names = [name for name in os.listdir(path) if name not in kept]
        except OSError:
            return
        if not names:
            return
        for name in names:
            place = os.path.join(path, name)
            if os.path.isdir(place) and not os.path.islink(place):
                remove_tree(place)
            else:
                try:
                    os.unlink(place)
                except OSError:
                    pass


def remove_empty(path: str, count: int) -> None:
    """Remove a directory and those above it, ``count`` in all, as far as nothing is in them."""
    for _ in range(count):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            return
        path = os.path.dirname(path)
