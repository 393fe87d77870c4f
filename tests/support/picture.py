"""The states that viewers show, read from a database in the process of the test: a look starts no command."""

from collections import Counter

from db.views.viewer import Picture, open_viewer


def _taken(database: str) -> Picture:
    picture = Picture()
    with open_viewer(database) as viewer:
        picture.update(viewer)
    return picture


def processor_states(database: str) -> Counter[str]:
    """Return how many processors are in each state (``free``, ``busy``, ``down`` …)."""
    picture = _taken(database)
    return Counter(picture.state(processor) for processor in picture.processors)


def node_states(database: str) -> dict[str, str]:
    """Map the nodes that are no login nodes to their states."""
    return {node.name: node.state for node in _taken(database).nodes.values() if node.role != "login"}
