"""``mesh reserve``, ``mesh unreserve``, ``mesh mode``: set which users and jobs may use processors."""

import argparse

from console.deploy.mesh.cpas import ask_cpa
from console.launch.options.lists import parse_list
from console.settings import Settings
from redmesh.byte_text import from_system


def mode(settings: Settings, options: argparse.Namespace) -> int:
    """Set the mode of processors."""
    ask_cpa(settings, {"op": "set_mode", "wanted": parse_list(options.list), "mode": options.mode})
    return 0


def reserve(settings: Settings, options: argparse.Namespace) -> int:
    """Reserve processors for a user; cancel reservations if the user is None."""
    request = {"op": "reserve", "wanted": parse_list(options.list), "user": options.user}
    ask_cpa(settings, {**request, "reason": from_system(options.reason)} if options.reason else request)
    return 0
