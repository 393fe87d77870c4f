"""``mesh demo``: runs a parallel program on a temporary mesh."""

import argparse

from console.settings import Settings


def demo(_settings: Settings, _options: argparse.Namespace) -> int:
    """Run the demonstration; returns 0 if the picture is complete and nothing is left behind."""
    from console.demo.show import demonstrate

    return demonstrate()
