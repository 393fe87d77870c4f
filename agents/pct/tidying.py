"""What the PCT does for its launches' images: it sweeps after dead ones, and keeps the modules for living ones."""

from __future__ import annotations

import os


def sweep(ram_disk: str = "/dev/shm") -> int:
    """Remove from the RAM disk what dead launch children of this user left there; without them, one look. 0: done."""
    base = f"{ram_disk}/redmesh-{os.geteuid()}"
    try:
        names = os.listdir(base)
        if any(name.startswith("launch-") for name in names) or ("images" in names and os.listdir(f"{base}/images")):
            from agents.pct.image import sweep as sweep_images

            sweep_images(ram_disk)
    except OSError:
        pass  # there is none, which is the rule
    return 0


def keep_ready() -> None:
    """Load what a launch child with cargo needs: the next ones are forked with it, instead of 15 ms of loading each."""
    import hashlib  # noqa: F401

    import agents.pct.cargo
    import agents.pct.digests  # noqa: F401
