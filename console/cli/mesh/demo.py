"""``mesh demo``: a parallel program on a mesh of its own."""

import argparse

from console.settings import Settings


def demo(_settings: Settings, _options: argparse.Namespace) -> int:
    """Run the demonstration; 0 when the picture is whole and nothing is left behind."""
    from console.demo.show import demonstrate

    return demonstrate()
