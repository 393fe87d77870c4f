"""Numbers of things, as people write them."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 node``, ``2 nodes``; ``plural`` where it is no plain s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
