"""What is printed of hosts that other meshes use too. ``mesh status`` imports nothing more of the deployment."""

from collections.abc import Iterable

from redmesh.idset import fold_names

#: What it means that two meshes use a host.
MEANING = "neither knows what the other runs, so both may run ranks on the same processors"


def lines(hosts: Iterable[tuple[str, str]]) -> list[str]:
    """A line for all hosts of which the same is told, from their names and what ``sharing.told`` says of each."""
    return [f"{fold_names(names)} {'is' if len(names) == 1 else 'are'} {text}" for text, names in alike(hosts)]


def alike(hosts: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    """Each text with the names of its hosts; hosts without a text are left out."""
    found: dict[str, list[str]] = {}
    for name, text in hosts:
        if text:
            found.setdefault(text, []).append(name)
    return found.items()
